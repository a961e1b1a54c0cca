# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with the back end "hvd" and tensors on (fake) GPUs: values, and what waits."""

import threading
from datetime import timedelta

import fake_cuda
import horovod.torch as hvd
import numpy as np
import torch
import torch.distributed as dist
from _hvd import _native, gpu
from checks import check, check_if, expect_error, main
from fake_cuda import GPU, Tensor, futures, stream, to_gpu
from gpu_group import GROUP, allreduce, follows_and_continues, sum_of, wait, zeros
from gpu_steps import N, R, is_done, on_gpu

torch.set_num_threads(1)


@check
def collectives_on_gpus():
    total = N * (N + 1) / 2
    x = on_gpu(R + 1.0, 2.0)
    wait(allreduce(x))
    assert x.tolist() == [total, 2.0 * N], x
    opts = dist.BroadcastOptions()
    opts.rootRank = N - 1
    x = on_gpu(float(R))
    wait(GROUP.broadcast([x], opts))
    assert x.tolist() == [N - 1.0]
    outputs = [zeros(2) for _ in range(N)]
    wait(GROUP.allgather([outputs], [on_gpu(R, R + 1.0)]))
    assert [o.tolist() for o in outputs] == [[float(r), r + 1.0] for r in range(N)]
    whole = zeros(2 * N)
    wait(GROUP._allgather_base(whole, on_gpu(R, R + 1.0)))
    assert whole.tolist() == [v for r in range(N) for v in (float(r), r + 1.0)]
    mine = zeros(2)
    came = zeros(N)
    wait(GROUP.all_to_all_single(came, to_gpu(torch.arange(float(N)) + 10 * R)))
    assert came.tolist() == [10.0 * r + R for r in range(N)]
    wait(
        GROUP.reduce_scatter(
            [mine], [[on_gpu(float(r), 1.0) for r in range(N)]], dist.ReduceScatterOptions()
        )
    )
    assert mine.tolist() == [float(R * N), float(N)], mine
    if N > 1 and R < 2:
        x = on_gpu(7.0) if R == 0 else zeros(1)
        wait(GROUP.send([x], 1, 3) if R == 0 else GROUP.recv([x], 0, 3))
        assert x.tolist() == [7.0]


@check
def a_copy_goes_back_in_the_present_stream():
    x = to_gpu(torch.arange(6.0).view(2, 3)).t()
    wait(allreduce(x))
    assert np.array_equal(x.cpu().numpy(), torch.arange(6.0).view(2, 3).t().numpy() * N)


@check
def no_thread_waits_for_the_gpu():
    mine, release = GPU.stream(), threading.Event()
    x = on_gpu(1.0)
    with stream(mine):
        GPU.fake_wait(mine, release)
        work = allreduce(x)
        wait(work)  # and it is not done
        assert not GPU.fake_soon(lambda: is_done(mine))
        release.set()
        assert x.tolist() == [float(N)]


@check
def each_stream_that_waits_has_it_behind_it():
    """Also one that comes when another has waited, and the work is over as far as threads know."""
    first, second, release, x = GPU.stream(), GPU.stream(), threading.Event(), on_gpu(1.0)
    work = sum_of(x, first, release)
    with stream(first):
        wait(work)
    with stream(second):
        wait(work)
    follows_and_continues(second, release)
    GPU.finish(second)


def future_of_a_sum(is_over):
    """A stream that waits for the future follows the work; is_over: it ended before get_future()."""
    first, asks, waits = GPU.stream(), GPU.stream(), GPU.stream()
    release, x = threading.Event(), on_gpu(1.0)
    work = sum_of(x, first, release)
    if is_over:
        with stream(first):
            wait(work)
    with stream(asks), futures():
        future = work.get_future()
    with stream(waits):
        (result,) = future.wait()
    follows_and_continues(waits, release)
    with stream(waits):
        assert result.tolist() == [float(N)], result


@check
def continuations_of_a_future_follow_the_work():
    """Also of work that is over, in a stream that has not waited."""
    for is_over in (False, True):
        future_of_a_sum(is_over)


@check
def a_stream_that_waits_for_coalesced_works_follows_them():
    """Also where another stream has waited for each of them, as the thread does that finishes a dropped one."""
    first, second, release, x = GPU.stream(), GPU.stream(), threading.Event(), on_gpu(1.0)
    GROUP._start_coalescing()
    work = sum_of(x, first, release)
    joined = GROUP._end_coalescing()
    with stream(first):
        wait(work)
    with stream(second):
        wait(joined)
    follows_and_continues(second, release)
    with stream(second):
        assert x.tolist() == [float(N)], x


@check
def a_copy_is_kept_for_the_stream_that_reads_it():
    first, second, x = GPU.stream(), GPU.stream(), to_gpu(torch.zeros(2, 3)).t()
    fake_cuda.history.clear()
    with stream(first):
        work = allreduce(x)
        outputs = [zeros(2) for _ in range(N)]
        gathered = GROUP.allgather([outputs], [on_gpu(1.0, 2.0)])
        folded = allreduce(to_gpu(torch.tensor([3, 6])), dist.ReduceOp.BAND)  # of what all have, gathered
    with stream(second):
        wait(work)
        wait(gathered)
        wait(folded)
    assert [s for _, s in fake_cuda.history] == [second] * 3, fake_cuda.history


@check_if(N > 1)
def one_that_others_do_not_call_is_late():
    if R == 0:
        work = allreduce(on_gpu(1.0))
        expect_error(hvd.HorovodInternalError, ["has not ended after"], work.wait, timedelta(seconds=0.3))
        hvd.barrier()
        wait(work)
    else:
        hvd.barrier()
        wait(allreduce(on_gpu(1.0)))


@check
def without_a_usable_gpu_the_error_has_the_reason():
    before, gpu._problem = gpu._problem, "no NVIDIA driver here"
    try:
        words = ["all_reduce", "no NVIDIA driver here"]
        expect_error(RuntimeError, words, allreduce, on_gpu(1.0))
    finally:
        gpu._problem = before
    assert isinstance(on_gpu(1.0), Tensor) and _native.is_initialized()


main(R)
