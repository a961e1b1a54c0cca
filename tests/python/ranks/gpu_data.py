# SPDX-License-Identifier: Apache-2.0
"""Collectives of arrays on GPUs against numpy, through _native: kinds, dtypes, operations, streams.

On a real GPU too, with a rank per GPU or NCCL_HOSTID. Words of argv choose: "short" leaves out what only
repeats itself for another dtype.
"""

import itertools
import sys
import threading

import capi
import numpy as np
from _hvd import _native
from _hvd.exceptions import HorovodInternalError
from capi import AVERAGE, DTYPES, MAX, MIN, OP_NAMES, PRODUCT, SUM
from checks import check, expect_error, in_threads, main
from exact import EPS, can_reduce, in_flight, reduced, same, values, wide
from exact import SHORT as SIXTEEN_BITS
from gpu_ops import PENDING, Array, Gpu, Op, ordinal, run

_native.start(0, ((),))
_native.join()
R, N = _native.rank(), _native.size()
SHORT = "short" in sys.argv
GPU = Gpu(ordinal())
OPS = [SUM, AVERAGE, MIN, MAX, PRODUCT]
EVERYONE = range(N)
SIZES = [(0,), (1,), (4099,)]
SOME = ["float32", "bfloat16", "int32", "bool"]  # SHORT has full sizes of these alone


def sizes(dtype):
    return SIZES if dtype in SOME or not SHORT else [(4099,)]


def ops_of(dtype):
    """SHORT: each operation of the types that have kernels of their own."""
    some = OPS if dtype in (*EPS, "int32", "uint8", "bool") or not SHORT else [SUM, AVERAGE]
    return [op for op in some if can_reduce(dtype, op)]


def reductions():
    for dtype in DTYPES:
        for op, shape in itertools.product(ops_of(dtype), sizes(dtype)):
            yield dtype, op, shape


def check_reduced(got, dtype, op, shape, what, pre=1.0, post=1.0, part=slice(None)):
    inputs = [values(shape, dtype, r, op) for r in EVERYONE]
    out, bound = reduced(inputs, dtype, op, pre, post)
    if dtype in SIXTEEN_BITS and op in (
        SUM,
        AVERAGE,
        PRODUCT,
    ):  # NCCL rounds what it is given, and each step
        most = np.abs(out) if op == PRODUCT else post * pre * sum(np.abs(wide(x, dtype)) for x in inputs)
        bound = bound + (N + 1) * EPS[dtype] * most
    bound = bound[part] if np.ndim(bound) else bound
    same(got, out[part], bound, dtype, f"{what} of {dtype} {list(shape)} by {OP_NAMES[op]}")


@check
def allreduce_equals_numpy():
    def start(case):
        dtype, op, shape = case
        in_place = shape == (1,)
        return Op(GPU, "allreduce", values(shape, dtype, R, op), dtype, op=op, in_place=in_place)

    in_flight(reductions(), start, lambda case, o: check_reduced(o.wait(), *case, "allreduce"))


@check
def fewer_bits_on_the_way():
    x = values((64, 65), "float32", R, SUM)
    out, _ = reduced([values((64, 65), "float32", r, SUM) for r in EVERYONE], "float32", SUM)
    for codec, eps in (("fp16", 2.0**-11), ("bf16", 2.0**-8), ("int8", 2.0**-5)):
        got = run(GPU, "allreduce", x, compression=codec)
        most = sum(np.abs(values((64, 65), "float32", r, SUM)) for r in EVERYONE)
        spread = most.max() if codec == "int8" else most
        assert (np.abs(got - out) <= 2 * (N + 1) * eps * spread + 1e-6).all(), codec
    for codec in ("topk:ratio=0.25", "powersgd:rank=4"):
        here, there = (
            run(GPU, "allreduce", x, compression=codec, is_on=is_on, name=f"{codec}.{is_on}")
            for is_on in (True, False)
        )
        assert np.isfinite(here).all() and np.abs(here).max() > 0, codec
        if codec.startswith("topk"):
            assert np.allclose(here, there, atol=1e-5), f"{codec}: not what host memory gives"


# --- order --------------------------------------------------------------------------------------------


@check
def many_together_are_waited_for_once():
    """Held ones of a bucket, and one wait for all."""
    for round_ in range(3):
        many = [
            Op(
                GPU,
                "allreduce",
                values((i * 37 % 500 + 1,), "float32", R, SUM, i),
                name=f"many.{i}",
                is_held=True,
            )
            for i in range(50)
        ]
        _native.submit_held(PENDING, tuple(o.handle for o in many))
        _native.wait_many(tuple(o.handle for o in many), GPU.main)
        for i, o in enumerate(many):
            inputs = [values((i * 37 % 500 + 1,), "float32", r, SUM, i) for r in EVERYONE]
            out, bound = reduced(inputs, "float32", SUM)
            same(o.result(), out, bound, "float32", f"round {round_} tensor {i}")


@check
def groups_go_whole():
    for _ in range(2):
        group = [
            Op(
                GPU,
                "allreduce",
                values((n,), "float32", R),
                name=f"g.{n}",
                group="g",
                group_size=3,
                is_held=True,
            )
            for n in (3, 700, 41)
        ]
        _native.submit_held(PENDING, tuple(o.handle for o in group))
        for n, o in zip((3, 700, 41), group):
            out, bound = reduced([values((n,), "float32", r) for r in EVERYONE], "float32", SUM)
            same(o.wait(), out, bound, "float32", f"group {n}")


@check
def inputs_that_come_late_are_waited_for():
    """No thread waits: what the stream does before is done before, what it does after comes after."""
    if not GPU.is_fake:
        return
    for kind in ("allreduce", "allgather"):
        stream, may_go_on = GPU.stream(), threading.Event()
        GPU.fake_wait(stream, may_go_on)
        x = Array(GPU, np.full(1000, R + 1, np.int32), stream)
        op = Op(GPU, kind, x, "int32", stream=stream)
        op.wait_on()
        assert not GPU.fake_soon(op.poll), "it has ended before its input was made"
        may_go_on.set()
        got = op.result()
        expected = (
            [N * (N + 1) // 2] * 1000 if kind == "allreduce" else list(np.repeat(np.arange(N) + 1, 1000))
        )
        assert got.tolist() == expected, f"{kind}: {got[:3]}"


@check
def another_stream_may_wait():
    if not GPU.is_fake:
        return
    first, second, may_go_on = GPU.stream(), GPU.stream(), threading.Event()
    GPU.fake_wait(first, may_go_on)
    op = Op(GPU, "allreduce", Array(GPU, np.full(100, 1, np.int32), first), "int32", stream=first)
    op.wait_on(second)
    may_go_on.set()
    assert (op.result(second) == N).all()


@check
def threads_and_streams_of_their_own():
    """Each thread its stream, in any order: names make operations, not order."""

    def work(k):
        GPU_K = Gpu(GPU.ordinal)
        for i in range(10):
            x = np.full(50 * k + 7, R + k, np.int64)
            got = Op(GPU_K, "allreduce", x, name=f"thread.{k}.{i}").wait()
            assert (got == N * k + N * (N - 1) // 2).all(), f"thread {k}: {got[:3]}"

    in_threads(3, work)


@check
def host_and_gpu_in_one_job():
    """Each where it is, in any order, never in one batch."""
    for _ in range(3):
        ops = [
            (i, Op(GPU, "allreduce", np.full(i + 1, R, np.float32), name=f"mixed.{i}", is_on=bool(i % 2)))
            for i in range(20)
        ]
        for i, o in reversed(ops):
            assert o.wait().tolist() == [N * (N - 1) / 2] * (i + 1), i
    for is_on in (True, False):
        for kind in ("allgather", "alltoall", "reducescatter", "broadcast"):
            got = run(GPU, kind, np.full(N, R, np.int32), is_on=is_on)
            assert got.size == {"allgather": N * N, "reducescatter": 1}.get(kind, N), kind


# --- what is refused ---------------------------------------------------------------------------------


@check
def cpu_on_one_rank_and_gpu_on_another():
    if N == 1:
        return
    op = Op(GPU, "allreduce", np.ones(4, np.float32), name="places", is_on=R != 0)
    words = ["Mismatched CPU/GPU", "places", "rank 0", "CPU", "GPU"]
    expect_error(HorovodInternalError, words, _native.wait, op.handle)
    op.forget()
    assert run(GPU, "allreduce", np.ones(3, np.float32)).tolist() == [N] * 3


@check
def another_gpu_is_refused():
    other = 0 if GPU.ordinal else 1
    tensor = ("other", 4096, 4096, DTYPES.index("float32"), (1,), None, 0, False, other, 0)
    words = [f"GPU {other}", f"GPU {GPU.ordinal}", "a rank uses one GPU"]
    expect_error(ValueError, words, _native.allreduce, PENDING, None, tensor, SUM, 1.0, 1.0, 0)
    assert not PENDING


@check
def a_stream_that_is_captured_is_refused():
    stream = GPU.stream()
    x = Array(GPU, np.ones(4, np.float32))
    capi_ = capi.c
    GPU.call("cuStreamBeginCapture_v2", capi_.c_void_p(stream), capi_.c_int(2))  # relaxed
    try:
        words = ["captured", "CUDA graph"]
        expect_error(ValueError, words, Op, GPU, "allreduce", x, "float32", stream=stream, name="captured")
    finally:
        graph = capi_.c_void_p()
        GPU.call("cuStreamEndCapture", capi_.c_void_p(stream), capi_.byref(graph))
    assert not PENDING
    assert run(GPU, "allreduce", np.ones(3, np.float32)).tolist() == [N] * 3


@check
def results_outlive_the_world():
    op = Op(GPU, "allgather", np.full(3, R, np.int32))
    op.wait_on()
    _native.shutdown()
    assert op.result().tolist() == [r for r in EVERYONE for _ in range(3)]
    _native.start(0, ((),))
    _native.join()
    assert run(GPU, "allreduce", np.ones(3, np.float32)).tolist() == [N] * 3


main(R)
