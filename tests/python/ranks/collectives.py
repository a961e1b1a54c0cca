# SPDX-License-Identifier: Apache-2.0
"""Every collective of horovod.torch against numpy: dtypes, sizes, in place and not."""

import os
import sys

import horovod.torch as hvd
import numpy as np
import torch
from _hvd import handles
from checks import check, expect_error, main

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [*FLOATS, torch.int32, torch.int64]
SIZES = [0, 1, 7, 2**20 + 3]


def values(size, rank, dtype):
    """Small whole numbers, other ones on each rank: sums are exact in every dtype."""
    numbers = (np.arange(size) * 7 + rank * 3) % 11 - 5
    return torch.from_numpy(numbers).to(dtype)


def numpy_sum(size):
    return sum(((np.arange(size) * 7 + r * 3) % 11 - 5) for r in range(N))


def same(tensor, expected, tolerance=0.0):
    got = tensor.to(torch.float64).numpy()
    expected = np.asarray(expected, dtype=np.float64)
    assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}"
    wrong = np.abs(got - expected) > tolerance
    assert not wrong.any(), f"{int(wrong.sum())} wrong, first {got[wrong][:3]} not {expected[wrong][:3]}"


def each(function):
    for dtype in DTYPES:
        for size in SIZES:
            try:
                function(dtype, size)
            except Exception as e:
                raise AssertionError(f"{dtype}, {size} elements: {e}") from e


@check
def allreduce_sum_equals_numpy():
    def one(dtype, size):
        x = values(size, R, dtype)
        same(hvd.allreduce(x, op=hvd.Sum), numpy_sum(size))
        same(x, values(size, R, torch.float64).numpy())

    each(one)


@check
def allreduce_average_equals_numpy():
    def one(dtype, size):
        got = hvd.allreduce(values(size, R, dtype), op=hvd.Average)
        expected = numpy_sum(size) / N
        if dtype in FLOATS:
            same(got, expected, tolerance={torch.float16: 0.01, torch.bfloat16: 0.05}.get(dtype, 1e-5))
        else:
            same(got, np.trunc(expected))

    each(one)


@check
def allreduce_in_place_equals_numpy():
    def one(dtype, size):
        x = values(size, R, dtype)
        assert hvd.allreduce_(x, op=hvd.Sum) is x
        same(x, numpy_sum(size))

    each(one)


@check
def broadcast_equals_the_root():
    def one(dtype, size):
        for root in {0, N - 1}:
            x = values(size, R, dtype)
            same(hvd.broadcast(x, root), values(size, root, torch.float64).numpy())
            same(x, values(size, R, torch.float64).numpy())
            hvd.broadcast_(x, root)
            same(x, values(size, root, torch.float64).numpy())

    each(one)


@check
def allgather_equals_numpy_with_uneven_first_dimension():
    def one(dtype, size):
        mine = size + R
        got = hvd.allgather(values(mine, R, dtype))
        parts = [values(size + r, r, torch.float64).numpy() for r in range(N)]
        same(got, np.concatenate(parts))

    each(one)
    rows = torch.full((R, 3), float(R))
    expected = np.concatenate([np.full((r, 3), float(r)) for r in range(N)])
    same(hvd.allgather(rows), expected)


@check
def other_dtypes_are_broadcast_and_gathered():
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.bool):
        x = torch.tensor([R % 2, 1, 0]).to(dtype)
        assert hvd.broadcast(x, 0).tolist() == torch.tensor([0, 1, 0]).to(dtype).tolist()
        assert hvd.allgather(x).numel() == 3 * N


@check
def scale_factors_apply_before_and_after():
    x = torch.ones(5) * (R + 1)
    got = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    same(got, np.full(5, 2.0 * N * (N + 1) / 2), 1e-5)


@check
def shapes_and_strides_survive():
    x = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    assert hvd.allreduce(x, op=hvd.Sum).shape == x.shape
    scalar = torch.tensor(2.0)
    assert hvd.allreduce(scalar, op=hvd.Sum).item() == 2.0 * N
    turned = x.clone().permute(2, 0, 1)
    hvd.allreduce_(turned, op=hvd.Sum)
    same(turned, x.permute(2, 0, 1).numpy() * N)
    turned = (x + R).permute(2, 0, 1)
    hvd.broadcast_(turned, 0)
    same(turned, x.permute(2, 0, 1).numpy())


@check
def fp16_compression_returns_the_dtype():
    got = hvd.allreduce(torch.ones(4) * (R + 1), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert got.dtype == torch.float32
    same(got, np.full(4, N * (N + 1) / 2))


@check
def old_average_argument_works():
    import warnings

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        same(hvd.allreduce(torch.ones(2), average=False), np.full(2, N))
        same(hvd.allreduce(torch.ones(2), average=True), np.ones(2), 1e-6)
    assert any(issubclass(w.category, DeprecationWarning) for w in seen)
    words = ["op parameter supersedes average"]
    expect_error(ValueError, words, hvd.allreduce, torch.ones(2), average=True, op=hvd.Sum)


@check
def reducescatter_with_adasum_is_horovods_error():
    words = ["reducescatter does not support op=hvd.Adasum"]
    for call, what in ((hvd.reducescatter, torch.ones(N)), (hvd.grouped_reducescatter, [torch.ones(N)])):
        expect_error(RuntimeError, words, call, what, op=hvd.Adasum)


@check
def operations_without_names_meet_after_a_join():
    for first in range(N):
        for _ in range(first + 1 if first != R else 0):
            same(hvd.allreduce(torch.ones(2), op=hvd.Sum), np.full(2, N - 1))
        assert hvd.join() in range(N)
        same(hvd.allreduce(torch.ones(2), op=hvd.Sum), np.full(2, N))
        same(hvd.allgather(torch.tensor([R])), np.arange(N))


@check
def ranks_may_submit_in_any_order():
    names = [f"order.{i}" for i in range(20)]
    order = names if R % 2 == 0 else names[::-1]
    tensors = {name: torch.full((i + 1,), float(i)) for i, name in enumerate(names)}
    handles = {name: hvd.allreduce_async(tensors[name], op=hvd.Sum, name=name) for name in order}
    for i, name in enumerate(names):
        same(hvd.synchronize(handles[name]), np.full(i + 1, float(i * N)))


@check
def poll_tells_the_end_and_a_handle_ends_once():
    import time

    handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum)
    deadline = time.monotonic() + 60
    while not hvd.poll(handle):
        assert time.monotonic() < deadline
    same(hvd.synchronize(handle), np.full(3, N))
    assert hvd.synchronize(handle) is None


@check
def tensors_live_as_long_as_their_operation():
    import gc

    def submit(i):
        return hvd.allreduce_async(torch.full((50000,), float(i)), op=hvd.Sum, name=f"alive.{i}")

    handles = [submit(i) for i in range(20)]
    gc.collect()
    junk = [torch.full((50000,), -1.0) for _ in range(20)]
    for i, handle in enumerate(handles):
        same(hvd.synchronize(handle), np.full(50000, float(i * N)))
    del junk


@check
def gradients_are_horovods():
    x = torch.full((3,), float(R + 1), requires_grad=True)
    (hvd.allreduce(x, op=hvd.Sum) * (R + 1)).sum().backward()
    same(x.grad, np.full(3, N * (N + 1) / 2))

    x = torch.ones(R + 1, 2, requires_grad=True)
    gathered = hvd.allgather(x)
    weights = torch.arange(gathered.shape[0], dtype=torch.float32).reshape(-1, 1)
    (gathered * weights).sum().backward()
    start = sum(r + 1 for r in range(R))
    expected = np.repeat(np.arange(start, start + R + 1, dtype=float).reshape(-1, 1), 2, axis=1)
    same(x.grad, expected, 1e-5)

    x = torch.ones(3, requires_grad=True)
    (hvd.broadcast(x, N - 1) * (R + 1)).sum().backward()
    same(x.grad, np.full(3, (N + 1) / 2 if R == N - 1 else 0.0), 1e-6)


@check
def objects_travel():
    thing = {"rank": R, "list": list(range(R)), "text": "ä" * (R + 1)}
    root = N - 1
    assert hvd.broadcast_object(thing, root) == {
        "rank": root,
        "list": list(range(root)),
        "text": "ä" * (root + 1),
    }
    assert [t["rank"] for t in hvd.allgather_object(thing)] == list(range(N))
    assert hvd.allgather_object(None) == [None] * N


@check
def parameters_are_the_roots_from_any_container():
    def model():
        torch.manual_seed(100 + R)
        return torch.nn.Linear(4, 3)

    torch.manual_seed(100)
    expected = torch.nn.Linear(4, 3).weight.detach().numpy()
    m = model()
    hvd.broadcast_parameters(m.state_dict(), 0)
    same(m.weight.detach(), expected)
    m = model()
    hvd.broadcast_parameters(m.named_parameters(), 0)  # a generator
    same(m.weight.detach(), expected)
    m = model()
    hvd.broadcast_parameters(list(m.parameters()), 0)
    same(m.weight.detach(), expected)
    expect_error(ValueError, ["invalid params of type"], hvd.broadcast_parameters, 3, 0)


@check
def barrier_waits_for_the_last():
    import time

    hvd.barrier()
    if R == N - 1:
        time.sleep(0.3)  # makes this rank late: what is tested is that the others wait
    before = time.time()
    hvd.barrier()
    after = hvd.allgather_object((before, time.time()))
    assert max(b for b, _ in after) <= min(a for _, a in after)


@check
def duplicate_names_are_refused():
    if N == 1:
        return  # nothing stays pending
    if R == 0:
        handle = hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum)
        expect_error(ValueError, ["twice"], hvd.allreduce_async, torch.ones(2), name="twice")
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum)
    same(hvd.synchronize(handle), np.full(2, N))


@check
def a_mismatch_fails_on_all_ranks_naming_both_and_the_world_goes_on():
    if N == 1:
        return
    shape = (3,) if R == 0 else (4,)
    words = ["wrong.shape", "3", "4"]
    errors = hvd.HorovodInternalError
    expect_error(errors, words, hvd.allreduce, torch.ones(shape), name="wrong.shape")
    dtype = torch.float32 if R == 0 else torch.int64
    x = torch.ones(2, dtype=dtype)
    expect_error(errors, ["wrong.type", "float32", "int64"], hvd.allreduce, x, name="wrong.type")
    expect_error(
        errors, ["wrong.root", "0", "1"], hvd.broadcast, torch.ones(1), min(R, 1), name="wrong.root"
    )
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), np.full(2, N))


@check
def a_signal_ends_the_wait_and_not_the_operation():
    import signal
    import time

    if N == 1:
        return
    x = torch.ones(4)
    if R == 0:
        handle = hvd.allreduce_async(x, op=hvd.Sum, name="late")

        def ring(signum, frame):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, ring)
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        expect_error(KeyboardInterrupt, [], hvd.synchronize, handle)
        assert time.monotonic() - began < 60
        hvd.barrier()
    else:
        hvd.barrier()  # rank 0 comes here only after its interrupt
        handle = hvd.allreduce_async(x, op=hvd.Sum, name="late")
    same(hvd.synchronize(handle), np.full(4, N))


@check
def a_barrier_follows_one_that_a_signal_interrupted():
    import signal

    if N == 1:
        return
    if R == 0:

        def ring(signum, frame):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        expect_error(KeyboardInterrupt, [], hvd.barrier)
    hvd.allreduce(torch.ones(1), name="interrupted")
    hvd.barrier()  # rank 0's first has begun
    if R > 0:
        hvd.barrier()
    assert not handles._pending


@check
def barriers_of_two_threads_all_end():
    import threading

    def many():
        for _ in range(200):
            hvd.barrier()

    threads = [threading.Thread(target=many) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "a barrier did not end"


@check
def barriers_repeat_their_name():
    """Or none would ever be known again, and each would leave the plan."""
    names = []
    submit = handles.submit

    def note(function, keep, result, name, *args):
        names.append(name)
        return submit(function, keep, result, name, *args)

    handles.submit = note
    try:
        hvd.barrier()
        hvd.barrier()
    finally:
        handles.submit = submit
    assert len(set(names)) == 1, names


@check
def unsupported_things_say_so():
    refused = NotImplementedError
    expect_error(refused, ["sparse_allreduce_async"], hvd.allreduce, torch.ones(2).to_sparse())
    expect_error(ValueError, ["complex", "not supported"], hvd.allreduce, torch.ones(1).to(torch.complex64))
    expect_error(TypeError, ["torch.Tensor", "list"], hvd.allreduce_async, [1.0])
    expect_error((ValueError, hvd.HorovodInternalError), [], hvd.allgather, torch.tensor(1.0))


@check
def init_is_idempotent_and_may_follow_shutdown():
    hvd.init()
    assert hvd.size() == N
    assert hvd.is_initialized()
    hosts = int(os.environ["CHECKS_HOSTS"])
    here = N // hosts
    assert (hvd.local_rank(), hvd.local_size()) == (R % here, here)
    assert (hvd.cross_rank(), hvd.cross_size()) == (R // here, hosts)
    assert hvd.is_homogeneous() is True


@check
def an_interrupt_right_after_a_submission_keeps_its_tensors():
    for name in ("allreduce", "allgather", "broadcast"):

        def interrupt(frame, event, function, name=name):
            if event == "c_return" and function.__name__ == name:
                sys.setprofile(None)
                raise KeyboardInterrupt

        tensor = torch.ones(1000)
        before = len(handles._pending)
        args = (tensor, 0) if name == "broadcast" else (tensor,)
        sys.setprofile(interrupt)
        try:
            getattr(hvd, name + "_async")(*args, name="interrupted")
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("no interrupt")
        finally:
            sys.setprofile(None)
        assert len(handles._pending) == before + 1, f"{name} goes on with memory that is freed"
    hvd.barrier()


main(R)
