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
from _hvd.torch import reducer as reducer_module
from _hvd.torch import tensors
from checks import check, expect_error, main
from fake_cuda import GPU, Tensor, plain, stream, to_gpu

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()
MEAN = (N - 1) / 2


def same(tensor, expected):
    assert isinstance(tensor, Tensor), "it is not on the GPU"
    np.testing.assert_allclose(tensor.cpu().float().numpy(), np.asarray(expected, np.float32), rtol=1e-6)


def on_gpu(*values, dtype=torch.float32):
    return to_gpu(torch.tensor(values, dtype=dtype))


class Calls:
    """Of functions of _native, in the order of calls: (name, arguments)."""

    def __init__(self, *names):
        self.names, self.made, self.real = names, [], {}

    def __enter__(self):
        for name in self.names:
            self.real[name] = getattr(_native, name)

            def call(*args, name=name):
                self.made.append((name, args))
                return self.real[name](*args)

            setattr(_native, name, call)
        return self

    def __exit__(self, *_):
        for name, function in self.real.items():
            setattr(_native, name, function)

    def of(self, name):
        return [args for n, args in self.made if n == name]

    def count(self, name):
        return len(self.of(name))


WAITS = ("wait", "wait_on_stream", "wait_many")


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
    for dtype in (
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.bool,
    ):
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
def one_rank_to_another():
    if N < 2:
        return
    if R == 0:
        hvd.send(on_gpu(1.0, 2.0), 1, name="p2p")
    if R == 1:
        same(hvd.recv(on_gpu(0.0, 0.0), 0, name="p2p"), np.array([1.0, 2.0]))


@check
def memory_of_results_is_given_back():
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


def is_done(which):
    GPU.enter()
    return GPU.cu.cuStreamQuery(ctypes.c_void_p(which)) == 0


@check
def the_default_stream_is_followed_too():
    """Its handle is 0, of which torch would make a new stream."""
    mine, may_go_on, place = GPU.stream(), threading.Event(), tensors.where(on_gpu(1.0))
    assert place.stream == 0
    GPU.fake_wait(0, may_go_on)
    with stream(mine):
        tensors.follow(place)
    assert not GPU.fake_soon(lambda: is_done(mine)), "it has not waited"
    may_go_on.set()
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
    first, second, may_go_on = GPU.stream(), GPU.stream(), threading.Event()
    with stream(first):
        handle = hvd.allgather_async(on_gpu(R, R))
    with stream(second):
        result = hvd.synchronize(handle)
    GPU.finish(second)
    GPU.fake_wait(second, may_go_on)  # reads it
    hvd.barrier()  # the runtime has let it go
    before = GPU.cu.hvd_fake_n_blocks()
    del result
    gc.collect()
    assert not GPU.fake_soon(lambda: GPU.cu.hvd_fake_n_blocks() < before), "it is freed while it is read"
    may_go_on.set()
    assert GPU.fake_soon(lambda: GPU.cu.hvd_fake_n_blocks() < before, 20), "it is not freed"


@check
def an_input_that_comes_late_is_waited_for():
    mine, may_go_on = GPU.stream(), threading.Event()
    x = on_gpu(0.0, 0.0)
    memory = plain(x)
    GPU.fake_wait(mine, may_go_on, then=lambda: memory.fill_(R + 1.0))
    with stream(mine):
        handle = hvd.allreduce_async_(x, op=hvd.Sum, name="late")
        _native.wait_on_stream(handle, GPU.stream())  # now it could run
        assert not GPU.fake_soon(lambda: hvd.poll(handle)), "it has ended before its input was made"
        may_go_on.set()
        same(hvd.synchronize(handle), np.full(2, N * (N + 1) / 2))


@check
def a_group_is_waited_for_once():
    with Calls(*WAITS, "submit_held") as calls:
        got = hvd.grouped_allreduce([on_gpu(float(i)) for i in range(5)], op=hvd.Sum, name="five")
    assert [x.tolist() for x in got] == [[float(i * N)] for i in range(5)]
    assert [name for name, _ in calls.made] == ["submit_held", "wait_many"], calls.made


@check
def the_host_waits_where_it_is_told_to():
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
    assert [name for name, _ in calls.made[2:]] == ["wait", "wait_on_stream"], "nobody says who reads it"
    assert calls.made[3][1][1] == 0


@check
def a_host_tensor_is_waited_for_as_before():
    with Calls(*WAITS) as calls:
        hvd.allreduce(torch.ones(3), op=hvd.Sum, name="host tensor")
    assert [name for name, _ in calls.made] == ["wait"], calls.made


# --- the optimizer ------------------------------------------------------------------------------------


def parameters(n, elements=10, gpu_from=0):
    """n of them, on the GPU from number gpu_from on; their gradients are there already, and are added to."""
    made = []
    for i in range(n):
        data = torch.zeros(elements)
        p = torch.nn.Parameter(to_gpu(data) if i >= gpu_from else data)
        p.grad = to_gpu(data) if i >= gpu_from else torch.zeros(elements)
        made.append((f"p{i}", p))
    return made


def optimizer_of(named, **options):
    base = torch.optim.SGD([p for _, p in named], lr=1.0)
    return hvd.DistributedOptimizer(base, named, op=hvd.Sum, **options)


def backward(named):
    """The gradient of parameter i is (i + 1) * (R + 1) everywhere."""
    loss = 0
    for i, (_, p) in enumerate(named):
        loss = loss + (p.as_subclass(torch.Tensor) * float((i + 1) * (R + 1))).sum()
    loss.backward()


def check_step(named):
    total = N * (N + 1) / 2
    for i, (name, p) in enumerate(named):
        got = p.detach()
        got = got.cpu() if isinstance(got, Tensor) else got
        assert np.allclose(got.numpy(), -(i + 1) * total), f"{name}: {got[:3]} not {-(i + 1) * total}"


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


@check
def a_bucket_of_a_gpu_is_larger():
    named = parameters(6, elements=1 << 10)
    before = reducer_module.GPU_BUCKET_BYTES
    reducer_module.GPU_BUCKET_BYTES = 2 * 4 << 10
    try:
        optimizer = optimizer_of(named)
        with Calls("submit_held") as calls:
            backward(named)
            assert [len(args[1]) for args in calls.of("submit_held")] == [2, 2, 2], calls.made
        optimizer.step()
    finally:
        reducer_module.GPU_BUCKET_BYTES = before
    check_step(named)
    assert before > reducer_module.BUCKET_BYTES


@check
def each_gradient_has_the_stream_of_its_hook():
    named = parameters(3)
    optimizer = optimizer_of(named)
    streams = {name: GPU.stream() for name, _ in named}
    reducer = (
        optimizer._hvd_reducer if hasattr(optimizer, "_hvd_reducer") else next(iter(reducer_module._live))
    )
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
    taken = {args[2][0].rpartition(".")[2]: args[2][-1] for args in calls.of("allreduce")}
    assert taken == streams, (taken, streams)
    assert calls.count("submit_held") == 1
    waited = [args[1] for args in calls.of("wait_many")]
    assert sorted(waited) == sorted([0, *streams.values()]) and waited[-1] == 0, waited
    check_step(named)


@check
def gpu_and_host_parameters_in_one_optimizer():
    named = parameters(6, gpu_from=3)
    optimizer = optimizer_of(named)
    backward(named)
    optimizer.step()
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


@check
def a_compressor_of_the_users():
    class Half:
        @staticmethod
        def compress(tensor):
            assert isinstance(tensor, Tensor)
            return tensor.half(), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tensor.to(ctx)

    named = parameters(3)
    optimizer = optimizer_of(named, compression=Half)
    backward(named)
    optimizer.step()
    check_step(named)


@check
def what_a_compressor_makes_is_kept_for_the_step():
    class Double:
        @staticmethod
        def compress(tensor):
            return tensor.double(), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tensor.to(ctx)

    mine, named = GPU.stream(), parameters(2)
    optimizer = optimizer_of(named, compression=Double)
    with Calls("allreduce") as calls, stream(mine):
        backward(named)
    fake_cuda.history.clear()
    optimizer.step()
    sent = [args[2][1] for _, args in calls.made]
    assert fake_cuda.history == [(at, 0) for at in sent] and len(sent) == 2, (fake_cuda.history, sent)
    check_step(named)


@check
def what_a_compressor_makes_is_of_the_stream_it_is_made_in():
    class Double:
        @staticmethod
        def compress(tensor):
            return tensor.double(), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tensor.to(ctx)

    first, second, named = GPU.stream(), GPU.stream(), parameters(2)
    optimizer = optimizer_of(named, compression=Double)
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
    assert [s for _, s in fake_cuda.history] == [0] * 4, fake_cuda.history  # changes, and what was before
    assert len({at for at, _ in fake_cuda.history}) == 4, fake_cuda.history


@check
def a_gradient_that_is_missing_is_zeros():
    named = parameters(2)
    optimizer = optimizer_of(named)
    backward(named[: 1 + (R == 0)])
    optimizer.step()
    assert np.allclose(named[1][1].detach().cpu().numpy(), -2.0), named[1][1]


@check
def an_operation_with_a_gradient():
    x = to_gpu(torch.ones(4) * (R + 1), requires_grad=True)
    y = hvd.allreduce(x, op=hvd.Sum, name="with.grad")
    assert y.tolist() == [N * (N + 1) / 2] * 4


# --- parameters and states ---------------------------------------------------------------------------


@check
def parameters_start_as_the_root_has_them():
    state = {"a": on_gpu(R, 1.0), "b": torch.full((2,), float(R))}
    hvd.broadcast_parameters(state, root_rank=N - 1)
    same(state["a"], np.array([N - 1, 1.0]))
    assert state["b"].tolist() == [N - 1.0] * 2


@check
def optimizer_states_go_to_each_ranks_own_gpu():
    p = torch.nn.Parameter(on_gpu(1.0, 2.0))
    optimizer = torch.optim.SGD([p], lr=0.1 + R, momentum=0.9)
    if R == 0:
        optimizer.state[p]["momentum_buffer"] = on_gpu(3.0, 4.0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    same(optimizer.state[p]["momentum_buffer"], np.array([3.0, 4.0]))
    assert optimizer.param_groups[0]["lr"] == 0.1


@check
def a_commit_is_of_what_has_ended():
    """The host waits there: a state must not be kept of a step that fails afterwards."""
    state = hvd.elastic.TorchState(step=0)
    mine, may_go_on = GPU.stream(), threading.Event()
    x = on_gpu(1.0)
    with stream(mine):
        GPU.fake_wait(mine, may_go_on)
        handles.finish(hvd.allreduce_async_(x, op=hvd.Sum, name="before a commit"))
    (last,) = handles._last
    timer = threading.Timer(0.2, may_go_on.set)
    timer.start()
    with Calls("wait") as calls:
        state.commit()
    assert may_go_on.is_set() and calls.of("wait")[0] == (last,), calls.made
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
def gpu_here_and_host_there_is_an_error_everywhere():
    if N == 1:
        return
    x = on_gpu(1.0) if R else torch.ones(1)
    words = ["Mismatched CPU/GPU", "rank 0", "CPU"]
    expect_error(hvd.HorovodInternalError, words, hvd.allreduce, x, name="apart")
    same(hvd.allreduce(on_gpu(1.0), op=hvd.Sum, name="together"), np.array([N]))
    assert not handles._pending


@check
def a_failure_ends_a_step_and_the_next_is_good():
    if N == 1:
        return
    named = parameters(2, elements=4 + (R == 0))
    optimizer = optimizer_of(named)
    backward(named)
    expect_error(hvd.HorovodInternalError, ["p"], optimizer.step)
    assert not handles._pending
    named = parameters(2)
    optimizer = optimizer_of(named)
    backward(named)
    optimizer.step()
    check_step(named)


@check
def a_rank_that_has_joined_makes_zeros_on_the_gpu_it_names():
    if N == 1:
        return
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
