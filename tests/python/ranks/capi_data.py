# SPDX-License-Identifier: Apache-2.0
"""Every collective of the C API against numpy: dtypes, operations, sizes, shapes, scales."""

import itertools
import random

import capi
import numpy as np
from capi import ADASUM, AVERAGE, DTYPES, MAX, MIN, OP_NAMES, PRODUCT, SUM, Op
from checks import check, check_if, main
from exact import EPS, HOSTS, SHORT, bf16_of, can_reduce, in_flight, outcome, reduced, same, values, wide

capi.init()
R, N = capi.rank(), capi.size()
LARGE = 2**20 + 3
SIZES = [(), (0,), (1,), (7,), (4099,)]
OPS = [SUM, AVERAGE, MIN, MAX, PRODUCT]
EVERYONE = range(N)


def reductions():
    """(dtype, op, shape) for all of them, the large size for some."""
    for dtype, op in itertools.product(DTYPES, OPS):
        if can_reduce(dtype, op):
            for shape in SIZES:
                yield dtype, op, shape
    for dtype in DTYPES:
        yield dtype, MAX if dtype == "bool" else SUM, (LARGE,)
    for op in (AVERAGE, MIN, PRODUCT):
        yield "float32", op, (LARGE,)


def gives(shape, dtype, op=SUM, salt=0):
    return lambda rank: values(shape, dtype, rank, op, salt)


def compare(cases):
    """Cases of kind, dtype, each rank's input as a function, and options; splits are such a function, too."""

    def start(case):
        kind, dtype, give, options = case
        x, options = give(R), dict(options)
        if options.pop("in_place", False):
            options["output"] = x
        if kind == "alltoall":
            splits = options["splits"](R)
            options["splits"] = None if len(set(splits)) == 1 else splits
        return Op(kind, x, dtype, **options)

    def finish(case, o):
        kind, dtype, give, options = case
        op, root = options.get("op", SUM), options.get("root", 0)
        splits = [options["splits"](r) for r in EVERYONE] if kind == "alltoall" else None
        scales = options.get("prescale", 1.0), options.get("postscale", 1.0)
        inputs = [give(r) for r in EVERYONE]
        what = f"{kind} of {dtype} {list(inputs[R].shape)} by {OP_NAMES[op]}, {options}"
        same(o.wait(), *outcome(kind, inputs, dtype, R, op, root, splits, scales), dtype, what)
        assert kind != "alltoall" or o.received == [s[R] for s in splits], f"{what}: received {o.received}"
        assert o.output is o.array or np.array_equal(o.array, inputs[R]), f"{what}: the input has changed"

    in_flight(cases, start, finish)


@check
def allreduce_equals_numpy():
    def case(dtype, op, shape, in_place):
        return "allreduce", dtype, gives(shape, dtype, op), {"op": op, "in_place": in_place}

    compare(case(*which, False) for which in reductions())
    compare(case(*which, True) for which in reductions() if which[2] in ((7,), (4099,)))
    compare(case(dtype, SUM, (LARGE,), True) for dtype in ("float32", "bfloat16", "int8"))


@check
def scales_apply_before_and_after():
    compare(
        ("allreduce", dtype, gives((4099,), dtype, op), {"op": op, "prescale": pre, "postscale": post})
        for dtype in EPS
        for op in OPS
        for pre, post in [(0.5, 1.0), (1.0, 3.0), (1.7, 0.3), (-2.0, 1.5), (0.0, 1.0)]
    )


@check
def scales_of_integers_truncate_toward_zero():
    x = np.array([-7, -1, 0, 1, 7, 100], np.int32)
    got = capi.run("allreduce", x, postscale=0.5)
    same(got, np.trunc(x * N * 0.5).astype(np.int32), 0, "int32", "postscale of integers")
    big = np.array([2**31 - 1, -(2**31)], np.int32)
    got = capi.run("allreduce", big, op=MAX, postscale=2.0)
    same(got, big, 0, "int32", "postscale beyond the type saturates")


@check_if(N > 2 and HOSTS == 1)
def sixteen_bit_sums_are_rounded_once():
    """1 + 2^-11 + 2^-11 is lost step by step in float16, not in float32."""
    for dtype, step in (("float16", 2.0**-11), ("bfloat16", 2.0**-8)):
        value = np.full(9, 1.0 if R == 0 else step if R < 3 else 0.0)
        x = capi_bits(value, dtype)
        got = wide(capi.run("allreduce", x, dtype), dtype)
        assert (got == 1.0 + 2 * step).all(), f"{dtype}: {got}"


def capi_bits(x, dtype):
    return bf16_of(x) if dtype == "bfloat16" else x.astype(dtype)


@check
def minimum_and_maximum_keep_nan():
    for dtype in ("float16", "float32", "float64"):
        for op in (MIN, MAX):
            x = np.full(5, float(R), dtype)
            x[R % 5] = np.nan
            got = capi.run("allreduce", x, op=op)
            expected = [i in {r % 5 for r in EVERYONE} for i in range(5)]
            assert np.isnan(got).tolist() == expected, f"{dtype} {OP_NAMES[op]}: {got}"


@check
def bools_that_are_no_0_or_1_are_true():
    raw = np.array([0, 1, 2, 255, 0, 128], np.uint8) if R == 0 else np.zeros(6, np.uint8)
    got = capi.run("allreduce", raw.view(bool), op=SUM).view(np.uint8)
    assert got.tolist() == [0, 1, 1, 1, 0, 1], got


@check
def another_world_gives_the_same_bits():
    """In any order, fused with any other tensors, and in several worlds."""

    def bits(seed):
        order = [
            (d, n, op) for d in EPS for n in (1, 77, 4099, 70001) for op in (SUM, AVERAGE, PRODUCT, ADASUM)
        ]
        random.Random(seed + R).shuffle(order)
        ops = {
            case: Op(
                "allreduce", values((case[1],), case[0], R, SUM, 9), case[0], op=case[2], name=f"{case}"
            )
            for case in order
        }
        return {case: op.wait().tobytes() for case, op in ops.items()}

    before = bits(1)
    capi.shutdown()
    capi.init()
    for seed in (2, 3):
        differ = [case for case, b in bits(seed).items() if b != before[case]]
        assert not differ, differ


@check
def reduce_writes_the_root_only():
    compare(
        ("reduce", dtype, gives(shape, dtype, op), {"op": op, "root": root})
        for root in sorted({0, N - 1})
        for dtype, op, shape in reductions()
        if shape != (LARGE,)
    )
    compare([("reduce", "float32", gives((LARGE,), "float32"), {"root": N // 2})])


@check
def reduce_needs_no_output_off_the_root():
    x = values((100,), "float32", R)
    o = Op("reduce", x, root=0, output=np.empty_like(x) if R == 0 else np.empty(0))
    o.wait()
    if R == 0:
        inputs = [values((100,), "float32", r) for r in EVERYONE]
        same(o.output, *reduced(inputs, "float32", SUM), "float32", "reduce")


@check
def broadcast_equals_the_root():
    cases = [(d, s, r, False) for d in DTYPES for s in SIZES for r in sorted({0, N - 1})]
    cases += [("uint8", (LARGE,), N // 2, False), ("float64", (LARGE,), 0, False)]
    cases += [("int16", (3, 0, 5), 0, False), ("int8", (2, 3, 5), 0, False)]
    cases += [("int64", (999,), root, True) for root in EVERYONE]
    compare(
        ("broadcast", dtype, gives(shape, dtype), {"root": root, "in_place": in_place})
        for dtype, shape, root, in_place in cases
    )


ROWS = {
    "equal": lambda r, n: n,
    "uneven": lambda r, n: n + r,
    "one has all": lambda r, n: n if r == N - 1 else 0,
    "none": lambda r, n: 0,
}


def row_cases():
    for dtype in DTYPES:
        yield dtype, "uneven", 7, ()
        yield dtype, "one has all", 5, (3,)
    for rows, n, tail in itertools.product(ROWS, (1, 4099), ((), (2, 3), (0,), (1, 1, 1, 1, 1, 1, 2))):
        yield "int32", rows, n, tail
    yield "float32", "uneven", LARGE, ()


@check
def rows_are_concatenated_in_rank_order():
    """On all ranks by allgather, on the root only by gather."""

    def case(kind, options, dtype, rows, n, tail):
        return kind, dtype, lambda r: values((ROWS[rows](r, n), *tail), dtype, r), options

    for root in (None, *sorted({0, N - 1})):
        which = ("allgather", {}) if root is None else ("gather", {"root": root})
        compare(case(*which, *rows) for rows in row_cases())


def give(memory, seen):
    """An alloc that gives parts of memory and notes what was asked for."""

    def alloc(_, ndim, shape, size_bytes):
        seen.append((list(shape[:ndim]), size_bytes))
        return memory.ctypes.data if memory is not None else None

    return capi.ALLOC(alloc)


@check
def results_come_in_the_callers_memory():
    for kind in ("allgather", "gather", "alltoall", "reducescatter"):
        memory, seen = np.zeros((max(N * (N + 1) // 2, 4), 3), np.float32), []
        inputs = [values((r + 1 if kind != "reducescatter" else 4, 3), "float32", r) for r in EVERYONE]
        splits = [[r + 1] + [0] * (N - 1) for r in EVERYONE]  # all to rank 0
        options = {"splits": splits[R]} if kind == "alltoall" else {}
        capi.run(kind, inputs[R], alloc=give(memory, seen), **options)
        if kind == "gather" and R != 0:
            assert seen == [], seen
            continue
        expected, bound = outcome(kind, inputs, "float32", R, splits=splits)
        assert seen == [(list(expected.shape), expected.size * 4)], f"{kind}: {seen}"
        same(memory[: len(expected)], expected, bound, "float32", kind)


@check
def a_rank_without_memory_fails_alone():
    def refuse(kind, data, **options):
        alloc = give(None, []) if R == 0 else None
        try:
            got = capi.run(kind, data, alloc=alloc, **options)
        except capi.Failed as e:
            assert R == 0 and e.status == capi.NO_MEMORY and "no memory" in str(e), str(e)
            return None
        assert R != 0
        return got

    got = refuse("allgather", np.full(2, R, np.int32))
    if R != 0:
        assert got.tolist() == [r for r in EVERYONE for _ in range(2)]
    got = refuse("reducescatter", np.arange(2 * N, dtype=np.int32))
    if R != 0:
        assert got.tolist() == [2 * R * N, (2 * R + 1) * N]
    got = refuse("alltoall", np.full(N, R, np.int32))
    if R != 0:
        assert got.tolist() == list(EVERYONE)
    assert capi.run("allreduce", np.ones(3, np.float32)).tolist() == [N] * 3


SPLITS = {  # rows from rank a to rank b
    "even": lambda a, b: 3,
    "uneven": lambda a, b: (a + 2 * b) % 5,
    "all to one": lambda a, b: 4 if b == N - 1 else 0,
    "one to all": lambda a, b: b + 1 if a == 0 else 0,
    "nothing": lambda a, b: 0,
    "only to myself": lambda a, b: 9 if a == b else 0,
    "many": lambda a, b: 1000 * a + 10 * b + 1,
    "large": lambda a, b: (a + 2 * b) % 5 * 70001,
}


@check
def alltoall_sends_rows_to_each():
    cases = [(d, s, ()) for d in DTYPES for s in ("even", "uneven")]
    cases += [
        (d, s, t)
        for d in ("int32", "uint8")
        for s in SPLITS
        for t in ((), (5,), (2, 0), (3, 1, 2))
        if s != "large" or (d, t) == ("int32", ())
    ]

    def case(dtype, name, tail):
        def splits(a):
            return [SPLITS[name](a, b) for b in EVERYONE]

        def give(a):
            return values((sum(splits(a)), *tail), dtype, a)

        return "alltoall", dtype, give, {"splits": splits}

    compare(case(*which) for which in cases)


@check
def reducescatter_gives_each_its_rows():
    cases = [
        (d, op, (rows,)) for d in DTYPES for op in OPS if can_reduce(d, op) for rows in (2 * N + 1, 4099)
    ]
    cases += [
        ("float32", op, (rows, *tail))
        for op in OPS
        for rows in (0, 1, N - 1, N, N + 1, 3 * N)
        for tail in ((), (5,), (2, 0))
    ]
    cases += [("float32", SUM, (LARGE,)), ("bfloat16", SUM, (1025, 1027))]

    compare(("reducescatter", d, gives(shape, d, op), {"op": op}) for d, op, shape in cases)
    got = capi.run("reducescatter", np.arange(2 * N, dtype=np.float32), prescale=0.5, postscale=4.0)
    assert got.tolist() == [2.0 * N * (2 * R), 2.0 * N * (2 * R + 1)], got


def adasum_pair(a, b):
    """Adasum's rule for two gradients, in float64."""
    dot, aa, bb = float(np.vdot(a, b)), float(np.vdot(a, a)), float(np.vdot(b, b))
    ka = 1 - dot / (2 * aa) if aa > 0 else 1.0
    kb = 1 - dot / (2 * bb) if bb > 0 else 1.0
    return ka * a + kb * b


def adasum(vectors):
    """Those beyond the greatest power of two with the first ones, then neighbours, pair by pair."""
    n = 1 << (len(vectors).bit_length() - 1)
    rest = vectors[n:]
    vectors = [adasum_pair(v, rest[i]) if i < len(rest) else v for i, v in enumerate(vectors[:n])]
    while len(vectors) > 1:
        vectors = [adasum_pair(a, b) for a, b in zip(vectors[::2], vectors[1::2])]
    return vectors[0]


@check
def adasum_follows_its_rule():
    cases = [
        (d, s, k)
        for d in EPS
        for s in [(1,), (7,), (4099,), (0,)]
        for k in ("any", "zeros", "equal", "opposite")
    ]

    def vector(case, r):
        dtype, shape, kind = case
        if kind == "zeros" and r % 2:
            return np.zeros(shape, capi.np_type(dtype))
        x = values(shape, dtype, r if kind in ("any", "zeros") else 0, SUM, 3)
        return capi_bits(-wide(x, dtype), dtype) if kind == "opposite" and r % 2 else x

    def finish(case, o):
        dtype, shape, kind = case
        vectors = [wide(vector(case, r), dtype) for r in EVERYONE]
        expected = adasum(vectors)
        most = sum(np.abs(v) for v in vectors)
        bound = (2e-13 if dtype == "float64" else 2e-5) * most + 1e-30
        if dtype in SHORT:
            bound = bound + 2 * N * EPS[dtype] * most
        same(o.wait(), expected, bound, dtype, f"adasum of {dtype} {shape}, {kind}")

    in_flight(cases, lambda case: Op("allreduce", vector(case, R), case[0], op=ADASUM), finish)


main(R)
