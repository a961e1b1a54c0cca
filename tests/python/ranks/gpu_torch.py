# SPDX-License-Identifier: Apache-2.0
"""horovod.torch with tensors on GPUs: values, and which stream waits for what.

torch has no CUDA here: fake_cuda.py stands in for it, and the fakes of the driver and NCCL do the rest.
"""

import ctypes
import gc
import os
import threading

import fake_cuda
import horovod.torch as hvd
import numpy as np
import torch
from _hvd import _native, gpu, handles
from _hvd.torch import tensors
from checks import Calls, check, check_if, expect_error, in_threads, main
from fake_cuda import GPU, Tensor, plain, stream, to_gpu
from gpu_steps import WAITS, N, R, is_done, on_gpu, same

torch.set_num_threads(1)
MEAN = (N - 1) / 2


@check
def operations_give_what_numpy_does():
    x = on_gpu(*(R + i for i in range(2 * N)))
    total = np.arange(2 * N) * N + N * MEAN
    every = np.concatenate([np.arange(2 * N) + r for r in range(N)])
    same(hvd.allreduce(x, op=hvd.Sum), total)
    same(hvd.allreduce(x), total / N)
    same(hvd.allreduce(x, op=hvd.Max), np.arange(2 * N) + N - 1)
    same(hvd.allreduce(x, compression=hvd.Compression.none, op=hvd.Sum, prescale_factor=0.5), total / 2)
    same(hvd.broadcast(x, N - 1), np.arange(2 * N) + N - 1)
    same(hvd.allgather(x), every)
    same(hvd.reducescatter(x, op=hvd.Sum), total[2 * R : 2 * R + 2])
    same(hvd.alltoall(x), np.concatenate([np.arange(2 * R, 2 * R + 2) + r for r in range(N)]))
    out, splits = hvd.alltoall(x, [2] * N)
    assert splits.tolist() == [2] * N and not isinstance(splits, Tensor)
    out, splits = hvd.alltoall(x, to_gpu(torch.tensor([2] * N)))
    assert splits.tolist() == [2] * N and isinstance(splits, Tensor), "not where the splits are"
    same(hvd.reduce(x, 0, op=hvd.Sum), total if R == 0 else [])
    gathered = hvd.gather(x, 0)
    same(gathered, every if R == 0 else every[:0])
    same(hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)[1], total * 2)
    same(hvd.grouped_allgather([x, x * 2])[1], every * 2)
    same(hvd.grouped_reducescatter([x, x * 2], op=hvd.Sum)[1], total[2 * R : 2 * R + 2] * 2)
    y = x * 1
    assert hvd.allreduce_(y, op=hvd.Sum) is y
    same(y, total)
    hvd.broadcast_(y, 0)
    same(y, total)
    assert not handles._pending


@check
def dtypes_come_back_as_they_were():
    for name in ("uint8", "int8", "int16", "int64", "float16", "bfloat16", "bool"):
        dtype = getattr(torch, name)
        x = on_gpu(1, 0, 1, dtype=dtype)
        got = hvd.allgather(x)
        assert got.dtype == dtype and got.tolist() == x.tolist() * N, dtype
        got = hvd.allreduce(x, op=hvd.Max)
        assert got.dtype == dtype and got.tolist() == x.tolist(), dtype


@check
def what_is_not_contiguous_travels_as_a_copy():
    x = to_gpu(torch.arange(6.0).view(2, 3) + R).t()
    same(hvd.allreduce(x, op=hvd.Sum), (np.arange(6).reshape(2, 3) + MEAN).T * N)
    y = to_gpu(torch.zeros(2, 4))
    part = y[:, 1:3]
    part += 1
    hvd.allreduce_(part, op=hvd.Sum)
    same(y, [[0, N, N, 0]] * 2)


@check
def memory_of_results_is_given_back():
    gc.collect()  # what it finds later is not of this one
    before = fake_cuda.n_taken - fake_cuda.n_given_back
    x = hvd.allgather(on_gpu(R))
    assert fake_cuda.n_taken - fake_cuda.n_given_back == before + 1
    view = x[:1]
    del x
    view.tolist()
    del view
    gc.collect()
    assert fake_cuda.n_taken - fake_cuda.n_given_back <= before + 1


# --- streams ------------------------------------------------------------------------------------------


@check
def no_thread_waits_and_the_present_stream_does():
    mine = GPU.stream()
    with Calls(*WAITS) as calls, stream(mine):
        hvd.allreduce(on_gpu(1.0), op=hvd.Sum, name="waits")
    assert [name for name, _ in calls.made] == ["wait_on_stream"], calls.made
    assert calls.of("wait_on_stream")[0][1] == mine


@check
def both_streams_wait_where_they_differ():
    """The memory is freed in the order of the one, and read in the other."""
    first, second = GPU.stream(), GPU.stream()
    with stream(first):
        handle = hvd.allreduce_async(on_gpu(1.0), op=hvd.Sum, name="both")
    with Calls(*WAITS) as calls, stream(second):
        same(hvd.synchronize(handle), np.array([N]))
    assert [args[1] for args in calls.of("wait_on_stream")] == [first, second], calls.made


@check
def the_default_stream_is_followed_too():
    """Its handle is 0, of which torch would make a new stream."""
    mine, release, place = GPU.stream(), threading.Event(), tensors.where(on_gpu(1.0))
    assert place.stream == 0
    GPU.fake_wait(0, release)
    with stream(mine):
        tensors.follow(place)
    assert not GPU.fake_soon(lambda: is_done(mine)), "it has not waited"
    release.set()
    GPU.finish(mine)


@check
def copies_are_kept_for_the_stream_that_reads_them():
    first, second = GPU.stream(), GPU.stream()
    with Calls("allreduce", "broadcast") as calls, stream(first):
        parts = [to_gpu(torch.zeros(2, 4))[:, 1:3] for _ in range(2)]
        made = [hvd.allreduce_async_(parts[0], op=hvd.Sum), hvd.broadcast_async_(parts[1], 0)]
    fake_cuda.history.clear()
    with stream(second):
        for handle in made:
            hvd.synchronize(handle)
    copies = [args[2][1] for _, args in calls.made]
    assert fake_cuda.history == [(at, second) for at in copies], (fake_cuda.history, copies)
    with stream(first):
        hvd.allreduce_(parts[0], op=hvd.Sum)
    assert len(fake_cuda.history) == 2, "in one stream there is nothing to keep"


@check
def results_are_freed_in_the_order_of_the_stream_that_reads_them():
    first, second, release = GPU.stream(), GPU.stream(), threading.Event()
    with stream(first):
        handle = hvd.allgather_async(on_gpu(R, R))
    with stream(second):
        result = hvd.synchronize(handle)
    GPU.finish(second)
    GPU.fake_wait(second, release)  # reads it
    hvd.barrier()  # the runtime has let it go
    at = plain(result).data_ptr()
    assert GPU.is_memory(at)
    del result
    gc.collect()
    assert not GPU.fake_soon(lambda: not GPU.is_memory(at)), "it is freed while it is read"
    release.set()
    assert GPU.fake_soon(lambda: not GPU.is_memory(at), 20), "it is not freed"


@check
def an_input_that_comes_late_is_waited_for():
    mine, release = GPU.stream(), threading.Event()
    x = on_gpu(0.0, 0.0)
    memory = plain(x)
    GPU.fake_wait(mine, release, then=lambda: memory.fill_(R + 1.0))
    with stream(mine):
        handle = hvd.allreduce_async_(x, op=hvd.Sum, name="late")
        _native.wait_on_stream(handle, GPU.stream())  # now it could run
        assert not GPU.fake_soon(lambda: hvd.poll(handle)), "it has ended before its input was made"
        release.set()
        same(hvd.synchronize(handle), np.full(2, N * (N + 1) / 2))


@check
def threads_have_streams_of_their_own():
    """In any order: names make operations, not order."""

    def work(k):
        with stream(GPU.stream()):
            for i in range(10):
                x = to_gpu(torch.full((50 * k + 7,), float(R + k)))
                same(hvd.allreduce(x, name=f"thread.{k}.{i}"), np.full(50 * k + 7, k + MEAN))

    in_threads(3, work)


@check
def a_group_is_waited_for_once():
    with Calls(*WAITS, "submit_held") as calls:
        got = hvd.grouped_allreduce([on_gpu(float(i)) for i in range(5)], op=hvd.Sum, name="five")
    assert [x.tolist() for x in got] == [[float(i * N)] for i in range(5)]
    assert [name for name, _ in calls.made] == ["submit_held", "wait_many"], calls.made


@check
def the_host_waits_without_async_completion():
    os.environ["HOROVOD_ENABLE_ASYNC_COMPLETION"] = "0"
    try:
        with Calls(*WAITS) as calls:
            hvd.grouped_allreduce([on_gpu(1.0), on_gpu(2.0)], op=hvd.Sum, name="host")
            assert [name for name, _ in calls.made] == ["wait", "wait"], calls.made
            with stream(GPU.stream()):
                handle = hvd.allgather_async(on_gpu(1.0), name="host")
            hvd.synchronize(handle)
    finally:
        del os.environ["HOROVOD_ENABLE_ASYNC_COMPLETION"]
    assert [name for name, _ in calls.made[2:]] == ["wait", "wait_on_stream"], "no reader is named"
    assert calls.made[3][1][1] == 0


@check
def a_commit_is_of_what_has_ended():
    """The host waits there: a state must not be kept of a step that fails afterwards."""
    state = hvd.elastic.TorchState(step=0)
    mine, release = GPU.stream(), threading.Event()
    x = on_gpu(1.0)
    with stream(mine):
        GPU.fake_wait(mine, release)
        handles.finish(hvd.allreduce_async_(x, op=hvd.Sum, name="before a commit"))
    (last,) = handles._last
    timer = threading.Timer(0.2, release.set)
    timer.start()
    with Calls("wait") as calls:
        state.commit()
    assert release.is_set() and calls.of("wait")[0] == (last,), calls.made
    timer.join()


# --- what is refused ---------------------------------------------------------------------------------


@check
def without_a_gpu_path_it_is_one_sentence():
    before, gpu._problem = gpu._problem, "no NVIDIA driver here (libcuda.so.1: not found)"
    try:
        x = on_gpu(1.0)
        for function in (hvd.allreduce, hvd.allgather, lambda t: hvd.broadcast_(t, 0)):
            said = expect_error(NotImplementedError, ["no NVIDIA driver here", "cuda:"], function, x)
            assert "\n" not in said and said.count("no NVIDIA driver") == 1, said
    finally:
        gpu._problem = before
    assert not handles._pending


@check
def a_stream_that_is_captured_is_refused():
    mine, graph, x = GPU.stream(), ctypes.c_void_p(), on_gpu(1.0)
    GPU.call("cuStreamBeginCapture_v2", ctypes.c_void_p(mine), ctypes.c_int(2))  # relaxed
    try:
        with stream(mine):
            expect_error(ValueError, ["captured", "CUDA graph"], hvd.allreduce_, x, name="captured")
    finally:
        GPU.call("cuStreamEndCapture", ctypes.c_void_p(mine), ctypes.byref(graph))
    assert not handles._pending
    same(hvd.allreduce(x, name="captured"), [1.0])


@check_if(N > 1)
def gpu_here_and_host_there_is_an_error_everywhere():
    x = on_gpu(1.0) if R else torch.ones(1)
    words = ["Mismatched CPU/GPU", "rank 0", "CPU"]
    expect_error(hvd.HorovodInternalError, words, hvd.allreduce, x, name="apart")
    same(hvd.allreduce(on_gpu(1.0), op=hvd.Sum, name="together"), np.array([N]))
    assert not handles._pending


@check_if(N > 1)
def a_rank_that_has_joined_makes_zeros_on_the_gpu_it_names():
    hvd.shutdown()
    hvd.init()
    if R == 1:
        hvd.join(device=3)
        words = ["GPU 1", "GPU 3", "a rank uses one GPU"]
        expect_error(ValueError, words, hvd.allreduce, on_gpu(1.0), name="elsewhere")
    else:
        same(hvd.allreduce(on_gpu(5.0), op=hvd.Sum, name="left"), np.array([5.0 * (N - 1)]))
        hvd.join()
    hvd.shutdown()
    hvd.init()
    same(hvd.allreduce(on_gpu(1.0), op=hvd.Sum, name="again"), np.array([N]))


main(R)
