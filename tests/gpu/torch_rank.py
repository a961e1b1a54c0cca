# SPDX-License-Identifier: Apache-2.0
"""horovod.torch with CUDA tensors, on 2 ranks or more; checks.main writes what each said.

    CHECKS_DIR=DIR CHECKS_HOSTS=1 horovodrun -np 2 python3 tests/gpu/torch_rank.py [codecs]
    CHECKS_DIR=DIR CHECKS_HOSTS=1 HVD_NANCHECK=1 horovodrun -np 2 python3 tests/gpu/torch_rank.py nan

PYTHONPATH has the tree's python/. Any launcher will do (stages.py: checks_of(bench, "torch", 2, [script], 90)).
codecs: with compression on the way. nan: that alone, as it ends the world. Where torch has no CUDA all is
done in host memory, but what needs streams: so the checks themselves are known to be good.
"""

import ctypes
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "ranks"))

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401  (makes the name known)
import numpy as np
import torch
import torch.distributed as dist
from _hvd.torch import tensors
from checks import check, expect_error, in_threads, main
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.backends.cuda.matmul.allow_tf32 = False  # NVIDIA's images turn it on
HAS_GPU = torch.cuda.is_available()
hvd.init()
R, N = hvd.rank(), hvd.size()
if HAS_GPU:
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
DEVICE = torch.device("cuda", torch.cuda.current_device()) if HAS_GPU else torch.device("cpu")
CODECS = "codecs" in sys.argv
MEAN = (N - 1) / 2


def on(values, dtype=torch.float32):
    return torch.as_tensor(values, dtype=dtype).to(DEVICE)


def same(tensor, expected, tolerance=1e-5):
    assert tensor.device == DEVICE, f"it is on {tensor.device}"
    got = tensor.detach().cpu().double().numpy()
    np.testing.assert_allclose(got, np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance)


def sleep(milliseconds=100):
    """A kernel that takes so long."""
    torch.cuda._sleep(int(milliseconds * 1.5e6))


held = []  # what hold() returned


def hold(release):
    """Later work of the current stream runs after a threading.Event. The result must live until then."""

    def wait(_):
        release.wait(60)

    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wait)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(stream, call, None) == 0
    return call


def soon(is_so, seconds=20):
    """Does it become so within the time?"""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.001)
    return is_so()


def use_group():
    """torch.distributed over the back end "hvd", from the first call on."""
    if not dist.is_initialized():
        dist.init_process_group("hvd", init_method="hvd://")


# --- values -------------------------------------------------------------------------------------------


@check
def operations_give_what_numpy_does():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        x = on([R + i for i in range(2 * N)], dtype)
        total = np.arange(2 * N) * N + N * MEAN
        every = np.concatenate([np.arange(2 * N) + r for r in range(N)])
        same(hvd.allreduce(x, op=hvd.Sum), total)
        same(hvd.allreduce(x, op=hvd.Max), np.arange(2 * N) + N - 1)
        same(hvd.allreduce(x, op=hvd.Min), np.arange(2 * N))
        same(hvd.broadcast(x, N - 1), np.arange(2 * N) + N - 1)
        same(hvd.allgather(x), every)
        same(hvd.allgather(x[: R + 1]), np.concatenate([np.arange(r + 1) + r for r in range(N)]))
        same(hvd.reducescatter(x, op=hvd.Sum), total[2 * R : 2 * R + 2])
        out, splits = hvd.alltoall(x, [2] * N)
        same(out, np.concatenate([np.arange(2 * R, 2 * R + 2) + r for r in range(N)]))
        assert splits.tolist() == [2] * N
        same(hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)[1], total * 2)
        reduced = hvd.reduce(x, 0, op=hvd.Sum)
        same(reduced, total if R == 0 else [])
    same(hvd.allreduce(on([R == 0, False], torch.bool), op=hvd.Max), [1, 0])
    assert hvd.allgather(on([True], torch.bool)).dtype == torch.bool


@check
def host_and_gpu_tensors_in_one_job():
    handles = [
        hvd.allreduce_async(
            (torch.full((i + 1,), float(R))).to(DEVICE if i % 2 else "cpu"), op=hvd.Sum, name=f"mix.{i}"
        )
        for i in range(20)
    ]
    for i, handle in enumerate(handles):
        got = hvd.synchronize(handle)
        assert got.device.type == (DEVICE.type if i % 2 else "cpu") and got.tolist() == [N * MEAN] * (
            i + 1
        ), i
    if HAS_GPU and N > 1:
        x = torch.ones(3, device=DEVICE if R else "cpu")
        words = ["Mismatched CPU/GPU", "apart", "rank 0"]
        expect_error(hvd.HorovodInternalError, words, hvd.allreduce, x, name="apart")


# --- training -----------------------------------------------------------------------------------------


def model_of(seed=0):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(12, 64), torch.nn.Tanh(), torch.nn.Linear(64, 300), torch.nn.Linear(300, 5)]
    return torch.nn.Sequential(*layers)


def data_of(step):
    torch.manual_seed(1000 + step)
    return torch.randn(4 * N, 12), torch.randn(4 * N, 5)


def trained_alone(steps, lr=0.1):
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = data_of(step)
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return model


def trained_together(steps, lr=0.1, passes=1, **options):
    model = model_of(seed=R).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    if R == 0:
        model.load_state_dict(model_of().state_dict())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), backward_passes_per_step=passes, **options
    )
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = (t[4 * R : 4 * R + 4].to(DEVICE) for t in data_of(step))
        for i, t in zip(inputs.chunk(passes), targets.chunk(passes)):
            (torch.nn.functional.mse_loss(model(i), t) / passes).backward()
        optimizer.step()
    return model


def compare(model, tolerance):
    alone = trained_alone(6)
    for (name, mine), expected in zip(model.named_parameters(), alone.parameters()):
        error = (mine.detach().cpu() - expected.detach()).abs().max().item()
        assert error < tolerance, f"{name} is off by {error}"
    for p in model.parameters():
        assert torch.equal(hvd.broadcast(p.detach(), 0), p.detach()), "the ranks differ"


@check
def training_equals_that_of_one_process():
    compare(trained_together(6), 1e-4)
    compare(trained_together(6, passes=2), 1e-4)
    compare(trained_together(6, groups=2), 1e-4)
    compare(trained_together(6, gradient_predivide_factor=2.0), 1e-4)


def trained_by_ddp(steps, lr=0.1, **options):
    use_group()
    model = model_of(seed=R).to(DEVICE)
    net = DistributedDataParallel(model, **options)  # begins with rank 0's parameters
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = (t[4 * R : 4 * R + 4].to(DEVICE) for t in data_of(step))
        torch.nn.functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
    return model


@check
def training_by_ddp_equals_that_of_one_process():
    """torch's own class over the back end "hvd", also with several buckets."""
    for options in (
        {},
        {"bucket_cap_mb": 0.005},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
    ):
        compare(trained_by_ddp(6, **options), 1e-4)


@check
def training_with_fewer_bits_on_the_way():
    if not CODECS:
        return
    compare(trained_together(6, compression=hvd.Compression.fp16), 2e-2)
    compare(trained_together(6, compression=hvd.Compression.bf16), 5e-2)
    compare(trained_together(6, compression=hvd.Compression.int8), 1e-1)
    for codec in (hvd.Compression.topk(ratio=0.5), hvd.Compression.powersgd(rank=4)):
        for p in trained_together(6, compression=codec).parameters():
            assert torch.equal(hvd.broadcast(p.detach(), 0), p.detach()), f"{codec}: the ranks differ"


@check
def training_in_a_stream_of_its_own():
    if not HAS_GPU:
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model = trained_together(6)
    torch.cuda.current_stream().wait_stream(side)
    compare(model, 1e-4)


@check
def batches_are_normalised_over_all_ranks():
    torch.manual_seed(5)
    whole = torch.randn(4 * N, 3, 6) * 3 + 1
    reference = torch.nn.BatchNorm1d(3)
    expected = reference(whole)
    mine = hvd.SyncBatchNorm(3).to(DEVICE)
    x = whole[4 * R : 4 * R + 4].to(DEVICE).requires_grad_()
    got = mine(x)
    same(got, expected[4 * R : 4 * R + 4].detach().numpy(), 1e-4)
    same(mine.running_var, reference.running_var.numpy(), 1e-4)
    (got * got).sum().backward()
    assert x.grad.device == DEVICE


# --- streams: order is proved by values ---------------------------------------------------------------


def needs_gpu(function):
    def only_there():
        if HAS_GPU:
            function()

    only_there.__name__ = function.__name__
    return check(only_there)


@needs_gpu
def an_input_that_is_made_late():
    for kind in ("allreduce", "allgather", "broadcast"):
        side = torch.cuda.Stream()
        x = torch.zeros(1 << 20, device=DEVICE)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            sleep()
            x += R + 1
            if kind == "allreduce":
                handle = hvd.allreduce_async(x, op=hvd.Sum, name="late.sum")
            elif kind == "allgather":
                handle = hvd.allgather_async(x, name="late.gather")
            else:
                handle = hvd.broadcast_async(x, N - 1, name="late.broadcast")
        got = hvd.synchronize(handle)  # in the default stream
        first, last = {"allreduce": (N * (N + 1) / 2,) * 2, "allgather": (1, N), "broadcast": (N, N)}[kind]
        assert float(got[0]) == first and float(got[-1]) == last, f"{kind}: {got[0]}, {got[-1]}"


@needs_gpu
def outputs_are_read_only_when_they_are_there():
    """One rank is slow: the other ranks' streams wait on the device, and their threads do not."""
    x = torch.ones(1 << 20, device=DEVICE)
    for step in range(10):
        if step % N == R:
            sleep(30)
        y = x * (step + 1)
        hvd.allreduce_(y, op=hvd.Sum, name="slow")
        y *= 2
        assert float(y.sum()) == (1 << 20) * 2.0 * N * (step + 1), step


@needs_gpu
def memory_is_not_used_again_too_early():
    """Inputs and results are dropped at once, and memory is asked for again in both streams."""
    side = torch.cuda.Stream()
    for step in range(30):
        with torch.cuda.stream(side):
            x = torch.full((300000 + step,), float(step + R), device=DEVICE)
            handle = hvd.allreduce_async(x, op=hvd.Sum, name=f"reuse.{step % 3}")
            gathered = hvd.allgather_async(x[:1000], name=f"reuse.gather.{step % 3}")
            del x
        out, rows = hvd.synchronize(handle), hvd.synchronize(gathered)
        with torch.cuda.stream(side):
            junk = [torch.full((300000 + step,), -1.0, device=DEVICE) for _ in range(3)]
        assert float(out.min()) == float(out.max()) == N * step + N * MEAN, step
        assert rows.view(N, -1)[:, 0].tolist() == [float(step + r) for r in range(N)], step
        del out, rows, junk


@needs_gpu
def the_default_stream_is_followed_too():
    x, side = torch.zeros(1 << 20, device=DEVICE), torch.cuda.Stream()
    place = tensors.where(x)
    torch.cuda.synchronize()
    sleep()
    x += 1
    with torch.cuda.stream(side):
        tensors.follow(place)
        y = x + 1
    side.synchronize()
    assert float(y.min()) == 2, "side has not waited"


@needs_gpu
def each_stream_that_waits_for_a_work_has_it_behind_it():
    """torch.distributed: the second one too, and one that waits for the future."""
    use_group()
    streams = [torch.cuda.Stream() for _ in range(3)]
    for step in range(4):
        x = torch.ones(1000, 1000, device=DEVICE).t()  # goes by a copy
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[0]):
            sleep(50)
            x += R
            work = dist.all_reduce(x, async_op=True)
            if step % 2:
                work.wait()
        got = []
        for i, wait in enumerate((work.wait, work.wait, work.get_future().wait)):
            with torch.cuda.stream(streams[i]):
                wait()
                got.append(x * 1)
        torch.cuda.synchronize()
        assert [float(y.min()) for y in got] == [N + N * MEAN] * 3, step


def backward_of_ddp(net, futures, is_late):
    """Whether this rank's backward pass ends on its GPU, with another rank late if is_late; and whether its
    collectives end by then."""
    release, has_run = threading.Event(), torch.cuda.Event()

    def probe(gradient):  # near the end of the pass, when the first collective is on its way on the GPU
        assert not is_late or soon(futures[0].done)
        gradient.mul(2)
        has_run.record()

    x = torch.ones(64, 512, device=DEVICE, requires_grad=True)
    x.register_hook(probe)
    torch.cuda.synchronize()
    is_held = is_late and R == N - 1
    try:
        if is_held:
            held.append(hold(release))
        net(x).sum().backward()
        end = torch.cuda.Event()
        end.record()
        runs_beside = is_held or soon(has_run.query)
        has_ended = end.query()
    finally:
        hvd.barrier()
        release.set()
        torch.cuda.synchronize()
    return runs_beside, has_ended


@needs_gpu
def the_backward_pass_of_ddp_runs_while_another_rank_is_late():
    use_group()
    futures = []

    def reduce(_, bucket):
        futures.append(dist.all_reduce(bucket.buffer().div_(N), async_op=True).get_future())
        return futures[-1].then(lambda f: f.value()[0])

    layers = [torch.nn.Linear(512, 512, bias=False) for _ in range(6)]  # a bucket each
    net = DistributedDataParallel(torch.nn.Sequential(*layers).to(DEVICE), bucket_cap_mb=1)
    net.register_comm_hook(None, reduce)
    for is_late in (False, False, True):  # the first pass has one bucket; kernels are loaded by the third
        net.zero_grad()
        futures.clear()
        runs_beside, has_ended = backward_of_ddp(net, futures, is_late)
    assert runs_beside, "it has waited for the other rank's gradients"
    assert not has_ended, "the other rank was not late"


@needs_gpu
def threads_with_streams_of_their_own():
    def work(k):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(20):
                x = torch.full((1000 * k + 7,), float(R + k), device=DEVICE)
                got = hvd.allreduce(x, op=hvd.Sum, name=f"thread.{k}.{i}")
                assert float(got.min()) == float(got.max()) == N * k + N * MEAN, (k, i)

    in_threads(3, work)


@needs_gpu
def a_stream_that_is_captured_is_refused():
    x, side, graph = torch.ones(8, device=DEVICE), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        graph.capture_begin()
        try:
            x.mul_(2)
            expect_error(ValueError, ["captured", "graph"], hvd.allreduce_, x, name="captured")
        finally:
            graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    same(x, np.full(8, 2.0))
    same(hvd.allreduce(x, op=hvd.Sum, name="after"), np.full(8, 2.0 * N))


@needs_gpu
def a_capture_of_the_users_continues_beside_us():
    """What our threads call of the driver meanwhile does not end it."""
    x, y = torch.ones(1000, device=DEVICE), torch.ones(1000, device=DEVICE)
    for i in range(5):
        handles = [hvd.allreduce_async(y, op=hvd.Sum, name=f"beside.{i}.{k}") for k in range(10)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            z = x * 3
        graph.replay()
        for handle in handles:
            same(hvd.synchronize(handle), np.full(1000, N))
        same(z, np.full(1000, 3.0))


@needs_gpu
def the_reports_say_so():
    assert hvd.cuda_built() is True
    assert hvd.nccl_built() > 21000, hvd.nccl_built()


def nan():
    """HVD_NANCHECK=1: all ranks name the rank that has the NaN."""
    x = torch.ones(1000, device=DEVICE)
    hvd.allreduce(x, name="good")
    if R == N - 1:
        x[17] = float("nan")
    words = [f"rank {N - 1}", "bad"]
    expect_error(hvd.HorovodInternalError, words, hvd.allreduce, x, name="bad")


if "nan" in sys.argv:
    from checks import begin

    begin("nan")
    check(nan)
main(R)
