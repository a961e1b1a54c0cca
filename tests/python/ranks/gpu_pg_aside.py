# SPDX-License-Identifier: Apache-2.0
"""Threads that finish Works on (fake) GPUs: no stream of the caller waits, and memory is kept long enough."""

import contextlib
import gc
import os
import threading
import weakref

import fake_cuda
import horovod.torch as hvd
import torch
import torch.distributed as dist
from _hvd import _native, handles
from _hvd.exceptions import HorovodInternalError
from _hvd.torch.distributed import work as works
from _hvd.torch.distributed.group import NAMES
from checks import Calls, check, check_if, expect_error, main
from fake_cuda import GPU, futures, plain, stream, to_gpu
from gpu_group import GROUP, allreduce, follows_and_continues, sum_of, wait, zeros
from gpu_steps import WAITS, N, R, on_gpu

torch.set_num_threads(1)


_releases = []


def forgets_all():
    """Once all has ended, none is kept."""
    assert GPU.fake_soon(lambda: handles.sweep() or not handles._aside, 20), handles._aside
    assert not handles._pending


def begin():
    """Nothing of former checks is there, nor of those that failed. Returns two streams, and an event to
    release work."""
    for release in _releases:
        release.set()
    _releases[:] = [threading.Event()]
    gc.collect()
    forgets_all()
    return GPU.stream(), GPU.stream(), _releases[0]


@contextlib.contextmanager
def no_wait_in(*streams):
    before = [GPU.n_waits(s) for s in streams]
    yield
    assert [GPU.n_waits(s) for s in streams] == before, "a stream of the caller waits"


def completed(work):
    """Its future, when a thread has completed it."""
    with futures():
        future = work.get_future()
    assert future._is_over.wait(60), "the future is not completed"
    return future


def ones_summed(first, release):
    """As sum_of(), of a tensor that is freed in the order of the stream."""
    with stream(first):
        return sum_of(on_gpu(1.0), first, release)


def gather(first, release):
    """(A gather that waits for the release, a reference to its source, its output)"""
    with stream(first):
        source, whole = on_gpu(R + 1.0), zeros(N)
        GPU.fake_wait(first, release)
        return GROUP._allgather_base(whole, source), weakref.ref(source), whole


ALL = [r + 1.0 for r in range(N)]


def wait_frees_and_follows(work, source, whole, reads, release):
    """wait() in the stream reads: the gather's source is freed at once, and its output can be read there."""
    with stream(reads):
        wait(work)
    assert source() is None, "it is kept"
    follows_and_continues(reads, release)
    with stream(reads):
        assert whole.tolist() == ALL


@check
def only_consumers_of_a_future_wait():
    first, reads, release = begin()
    with no_wait_in(first, 0):
        work = ones_summed(first, release)
        future = completed(work)
    with no_wait_in(first, 0), stream(reads):
        (result,) = future.wait()
    follows_and_continues(reads, release)
    with stream(reads):
        assert result.tolist() == [float(N)]


@check
def the_stream_that_submitted_follows_a_wait():
    first, reads, release = begin()
    work = ones_summed(first, release)
    completed(work)
    before = GPU.n_waits(first)
    with stream(reads):
        wait(work)
    assert GPU.n_waits(first) == before + 1
    follows_and_continues(reads, release)
    GPU.finish(first)


@check_if(N > 1)
def the_stream_that_submitted_runs_while_another_rank_is_late():
    first, _, release = begin()
    now, has_run = threading.Event(), threading.Event()
    now.set()
    with stream(first):
        x = on_gpu(1.0)
        if R == 1:
            GPU.fake_wait(first, release)
        work = allreduce(x)
        future = completed(work)
    GPU.fake_wait(first, now, then=has_run.set)  # as a kernel of the backward pass
    runs_beside = R == 1 or has_run.wait(20)
    is_over = work.is_completed()
    hvd.barrier()
    release.set()
    assert runs_beside, "it has waited for the other rank"
    assert not is_over
    with stream(first):
        future.wait()
        assert x.tolist() == [float(N)]


@check
def a_future_of_a_finished_work_makes_no_stream_wait():
    first, asks, release = begin()
    work = ones_summed(first, release)
    with stream(first):
        wait(work)
    with no_wait_in(first, asks, 0), stream(asks):
        completed(work)
    release.set()
    GPU.finish(first)


@check
def a_dropped_work_makes_no_stream_wait():
    first, _, release = begin()
    with no_wait_in(first, 0):
        source, whole = gather(first, release)[1:]
        if works._kept is not None:  # torch before 2.9; later works push it out
            works._kept = works._Kept()
        assert GPU.fake_soon(lambda: len(handles._aside) == 1, 20), "no thread finishes it"
    assert source() is not None, "its memory is freed while it is sent"
    release.set()
    forgets_all()
    assert source() is None and whole.tolist() == ALL


@check
def coalesced_works_make_no_stream_wait():
    first, reads, release = begin()
    GROUP._start_coalescing()
    work, source, whole = gather(first, release)
    joined = GROUP._end_coalescing()
    with no_wait_in(first, 0):
        completed(joined)
    assert not joined.is_completed() and not work.is_completed()
    wait_frees_and_follows(joined, source, whole, reads, release)


@check
def memory_is_kept_until_the_operation_has_ended():
    first, reads, release = begin()
    work, source, whole = gather(first, release)
    future = completed(work)
    with stream(reads):
        future.wait()
    del work
    gc.collect()
    handles.sweep()
    assert source() is not None, "it is freed while it is sent"
    (handle,) = handles._aside
    release.set()
    assert GPU.fake_soon(lambda: _native.poll(handle), 20), "it does not end"
    hvd.barrier()  # as every submission, it forgets what has ended
    assert source() is None, "it is kept"
    with stream(reads):
        assert whole.tolist() == ALL


@check
def a_wait_frees_memory_in_the_order_of_its_stream():
    """The fake ends the process at a use of freed memory."""
    first, reads, release = begin()
    work, source, whole = gather(first, release)
    completed(work)
    wait_frees_and_follows(work, source, whole, reads, release)


@check
def what_is_kept_does_not_grow():
    first = begin()[0]
    for _ in range(20):
        with stream(first):
            completed(allreduce(on_gpu(1.0)))
        handle = handles._aside[-1] if handles._aside else 0
        assert GPU.fake_soon(lambda h=handle: _native.poll(h), 20)
        assert len(handles._aside) <= 2, handles._aside


@check
def more_than_there_are_names_are_submitted_at_once():
    """A name is free when its operation is on its way on the GPU."""
    first, _, release = begin()
    with stream(first):
        tensors = [on_gpu(1.0) for _ in range(NAMES + 4)]
        GPU.fake_wait(first, release)
        with Calls("allreduce") as calls, no_wait_in(first, 0):
            kept = [completed(allreduce(x)) for x in tensors]
        assert calls.count("allreduce") == NAMES + 4
        release.set()
        for future in kept:
            future.wait()
        assert [x.tolist() for x in tensors] == [[float(N)]] * len(tensors)


@check
def copies_are_made_beside():
    first, reads, release = begin()
    release.set()  # an operator of the fake runs when its stream is done
    with stream(first):
        x, bits = to_gpu(torch.arange(6.0).view(2, 3)).t(), to_gpu(torch.tensor([3, 6]))
    fake_cuda.history.clear()
    with Calls("wait_on_stream") as calls, no_wait_in(0), stream(first):
        made = [completed(allreduce(x)), completed(allreduce(bits, dist.ReduceOp.BAND))]
    used = {args[1] for args in calls.of("wait_on_stream")} | {s for _, s in fake_cuda.history}
    assert used and not used & {first, 0}, (used, first)
    recorded = {at for at, _ in fake_cuda.history}
    assert len(recorded) == 4 and {plain(x).data_ptr(), plain(bits).data_ptr()} < recorded, recorded
    with stream(reads):
        for future in made:
            future.wait()
        assert x.tolist() == (torch.arange(6.0).view(2, 3).t() * N).tolist() and bits.tolist() == [3, 6]


@check
def it_is_completed_when_it_has_ended_on_the_gpu():
    first, _, release = begin()
    work = ones_summed(first, release)
    completed(work)
    assert not work.is_completed() and not work.is_success() and work.exception() is None
    release.set()
    assert GPU.fake_soon(work.is_completed, 20)
    assert work.is_success() and not handles._pending


@check
def a_commit_waits_for_it():
    first, _, release = begin()
    completed(ones_summed(first, release))
    commit = threading.Thread(target=handles.settle)
    commit.start()
    assert not GPU.fake_soon(lambda: not commit.is_alive()), "it has not waited"
    release.set()
    commit.join(60)
    assert not commit.is_alive()


@check
def the_host_waits_without_async_completion():
    first = begin()[0]
    os.environ["HOROVOD_ENABLE_ASYNC_COMPLETION"] = "0"
    try:
        with Calls(*WAITS) as calls, no_wait_in(first, 0), stream(first):
            completed(allreduce(on_gpu(1.0)))
    finally:
        del os.environ["HOROVOD_ENABLE_ASYNC_COMPLETION"]
    assert [name for name, _ in calls.made] == ["wait", "wait_on_stream"], calls.made
    assert calls.made[1][1][1] not in (first, 0)
    assert not handles._pending


@check
def a_failure_is_reported_when_the_memory_is_free():
    first, _, release = begin()

    def fail(*_):
        raise HorovodInternalError("rank 7 was lost")

    before, _native.wait_on_stream = _native.wait_on_stream, fail
    try:
        work, source, _ = gather(first, release)
        with futures():
            future = work.get_future()
        assert not GPU.fake_soon(future._is_over.is_set), "its memory is in use"
        assert source() is not None
        release.set()
        expect_error(RuntimeError, ["rank 7 was lost"], future.wait)
    finally:
        release.set()
        _native.wait_on_stream = before
    expect_error(HorovodInternalError, ["rank 7 was lost"], work.wait)
    assert not handles._pending


@check
def a_future_ends_when_all_calls_of_cuda_fail():
    """As after an illegal address; both of a Work that a thread finishes and of one that has ended."""
    first = begin()[0]
    with stream(first):
        work, ended = allreduce(on_gpu(1.0)), allreduce(on_gpu(1.0))
        wait(ended)

    def fail(*_):
        raise RuntimeError("CUDA error: an illegal memory access")

    event, streams = fake_cuda.Event, fake_cuda.Stream
    before = event.record, streams.wait_event
    event.record = streams.wait_event = fail
    try:
        for each in (work, ended):
            expect_error(RuntimeError, ["an illegal memory access"], completed(each).wait)
    finally:
        event.record, streams.wait_event = before


main(R)
