# SPDX-License-Identifier: Apache-2.0
"""horovod.torch's optimizer with parameters on GPUs; fake_cuda.py stands in for torch's CUDA (gpu_torch.py)."""

import contextlib

import fake_cuda
import horovod.torch as hvd
import numpy as np
import torch
from _hvd import handles
from _hvd.torch import reducer as reducer_module
from checks import Calls, check, expect_error, main
from fake_cuda import GPU, Tensor, stream
from gpu_steps import WAITS, N, R, backward, check_step, on_gpu, optimizer_of, parameters, same

torch.set_num_threads(1)


@check
def gradients_of_one_queue_are_one_submit_and_one_wait():
    named = parameters(8)
    optimizer = optimizer_of(named)
    with Calls(*WAITS, "submit_held", "allreduce") as calls:
        backward(named)
        assert calls.count("allreduce") == 8 and calls.count("submit_held") == 1, calls.made
        assert len(calls.of("submit_held")[0][1]) == 8
        optimizer.step()
    assert [name for name, _ in calls.made if name in WAITS] == ["wait_many"], calls.made
    check_step(named)
    assert not handles._pending


@contextlib.contextmanager
def buckets(first, other):
    """Of these bytes instead of their own."""
    before = reducer_module.GPU_FIRST_BUCKET_BYTES, reducer_module.GPU_BUCKET_BYTES
    reducer_module.GPU_FIRST_BUCKET_BYTES, reducer_module.GPU_BUCKET_BYTES = first, other
    try:
        yield
    finally:
        reducer_module.GPU_FIRST_BUCKET_BYTES, reducer_module.GPU_BUCKET_BYTES = before


@check
def a_bucket_of_a_gpu_is_larger_but_the_first_of_a_step():
    named = parameters(8, elements=1 << 10)
    optimizer = optimizer_of(named)
    with buckets(1 * 4 << 10, 3 * 4 << 10):
        for _ in range(2):
            with Calls("submit_held") as calls:
                backward(named)
            sizes = [len(args[1]) for args in calls.of("submit_held")]
            assert sizes == [1, 3, 3, 1], sizes
            optimizer.step()
    first, others = reducer_module.GPU_FIRST_BUCKET_BYTES, reducer_module.GPU_BUCKET_BYTES
    assert first < reducer_module.BUCKET_BYTES < others


@check
def the_first_bucket_may_differ_on_each_rank():
    """Operations are matched by name, whatever was submitted together."""
    named = parameters(8, elements=1 << 10)
    optimizer = optimizer_of(named)
    with buckets((1 + R) * 4 << 10, (2 + R) * 4 << 10):
        backward(named)
        optimizer.step()
    check_step(named)


@check
def each_gradient_has_the_stream_of_its_hook():
    named = parameters(3)
    optimizer = optimizer_of(named)
    streams = {name: GPU.stream() for name, _ in named}
    reducer = optimizer._hvd
    ready = type(reducer).ready
    names = {p: name for name, p in named}

    def in_its_stream(self, p):
        with stream(streams[names[p]] if p in names else 0):
            ready(self, p)

    type(reducer).ready = in_its_stream
    try:
        with Calls("allreduce", "submit_held", *WAITS) as calls:
            backward(named)
            optimizer.step()
    finally:
        type(reducer).ready = ready
    sent = {f"allreduce.{optimizer._hvd.sent_as(p)}": name for name, p in named}
    taken = {sent[args[2][0]]: args[2][-1] for args in calls.of("allreduce")}
    assert taken == streams, (taken, streams)
    assert calls.count("submit_held") == 1
    waited = [args[1] for args in calls.of("wait_many")]
    assert sorted(waited) == sorted([0, *streams.values()]) and waited[-1] == 0, waited
    check_step(named)


@check
def groups_and_passes():
    named = parameters(4)
    optimizer = optimizer_of(named, groups=2, backward_passes_per_step=2)
    backward(named)
    backward(named)
    optimizer.step()
    for i, (_, p) in enumerate(named):
        assert np.allclose(p.detach().cpu().numpy(), -(i + 1) * N * (N + 1)), p


def compressor_to(dtype):
    """One of the users: gradients travel as dtype."""

    class Compressor:
        @staticmethod
        def compress(tensor):
            assert isinstance(tensor, Tensor)
            return tensor.to(dtype), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tensor.to(ctx)

    return Compressor


@check
def what_a_compressor_makes_is_kept_for_the_step():
    mine, named = GPU.stream(), parameters(2)
    optimizer = optimizer_of(named, compression=compressor_to(torch.double))
    with Calls("allreduce") as calls, stream(mine):
        backward(named)
    fake_cuda.history.clear()
    optimizer.step()
    sent = [args[2][1] for _, args in calls.made]
    assert fake_cuda.history == [(at, 0) for at in sent] and len(sent) == 2, (fake_cuda.history, sent)
    check_step(named)


@check
def what_a_compressor_makes_is_of_the_stream_it_is_made_in():
    first, second, named = GPU.stream(), GPU.stream(), parameters(2)
    optimizer = optimizer_of(named, compression=compressor_to(torch.double))
    with Calls("allreduce") as calls:
        with stream(first):
            backward(named[:1])  # it waits for the other one
        with stream(second):
            backward(named[1:])
        optimizer.step()
    assert [args[2][-1] for _, args in calls.made] == [second] * 2, calls.made


@check
def zeros_are_made_before_they_are_sent():
    mine, named = GPU.stream(), parameters(2)
    optimizer = optimizer_of(named)
    with stream(mine):
        backward(named[:1])  # it waits for the other one
    named[0][1].grad = None
    with Calls("allreduce") as calls:
        optimizer.step()
    assert [args[2][-1] for _, args in calls.made] == [0, 0], calls.made
    assert named[0][1].grad.tolist() == [0.0] * 10


@check
def fewer_bits_on_the_way():
    for codec in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.int8):
        named = parameters(4, gpu_from=1)
        optimizer = optimizer_of(named, compression=codec)
        with Calls("submit_held") as calls:
            backward(named)
        assert len(calls.of("submit_held")[0][1]) == 3, calls.made
        optimizer.step()
        check_step(named)


@check
def adasum_of_half_the_bits():
    """Horovod's usual pair on GPUs; of equal vectors it is the vector itself."""
    for codec in (hvd.Compression.fp16, hvd.Compression.bf16):
        x = on_gpu(1.0, -2.0, 0.5)
        same(hvd.allreduce(x, op=hvd.Adasum, compression=codec), [1.0, -2.0, 0.5])
        named = parameters(2)
        base = torch.optim.SGD([p for _, p in named], lr=1.0)
        optimizer = hvd.DistributedOptimizer(base, named, op=hvd.Adasum, compression=codec)
        sum((p.as_subclass(torch.Tensor) * 2.0).sum() for _, p in named).backward()
        optimizer.step()
        for _, p in named:
            assert np.allclose(p.detach().cpu().numpy(), -2.0, atol=1e-3), p


@check
def what_adasum_reads_is_kept_for_the_step():
    mine, named = GPU.stream(), parameters(2)
    base = torch.optim.SGD([p for _, p in named], lr=1.0)
    optimizer = hvd.DistributedOptimizer(base, named, op=hvd.Adasum)
    with stream(mine):
        backward(named)
    fake_cuda.history.clear()
    optimizer.step()
    assert [s for _, s in fake_cuda.history] == [0] * 2, fake_cuda.history  # the changes
    assert len({at for at, _ in fake_cuda.history}) == 2, fake_cuda.history


# --- parameters and states ---------------------------------------------------------------------------


@check
def parameters_start_as_the_root_has_them():
    state = {"a": on_gpu(R, 1.0), "b": torch.full((2,), float(R))}
    hvd.broadcast_parameters(state, root_rank=N - 1)
    same(state["a"], np.array([N - 1, 1.0]))
    assert state["b"].tolist() == [N - 1.0] * 2


@check
def replicas_on_gpus_are_compared():
    hvd.check_replicas([on_gpu(1.0, 2.0, 3.0)])
    with stream(GPU.stream()):
        other = on_gpu(1.0, 2.0, 3.0) + (R == N - 1)
        words = ["element 0: 1 ", f"2 on rank {N - 1}", "3 of 3 elements"]
        expect_error(hvd.HorovodInternalError, words, hvd.check_replicas, [other])


@check
def optimizer_states_go_to_each_ranks_own_gpu():
    p = torch.nn.Parameter(on_gpu(1.0, 2.0))
    optimizer = torch.optim.SGD([p], lr=0.1 + R, momentum=0.9)
    if R == 0:
        optimizer.state[p]["momentum_buffer"] = on_gpu(3.0, 4.0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    same(optimizer.state[p]["momentum_buffer"], np.array([3.0, 4.0]))
    assert optimizer.param_groups[0]["lr"] == 0.1


main(R)
