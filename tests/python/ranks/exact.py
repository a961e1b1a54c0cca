# SPDX-License-Identifier: Apache-2.0
"""The expected result of a collective, by numpy, and the tolerance of floating point.

Integers and bool are exact. A float result is compared with the one computed in float64: the runtime
folds n members in the type itself (16-bit ones in float32) and rounds each of n - 1 steps, the scale
factor and, for 16-bit types, the end once. With eps the unit roundoff, a sum may be off by
(n + 1) eps sum|x|, a product by (n + 1) eps |product|; a 16-bit result besides by its own eps |result|
and the smallest subnormal, and with several hosts by another one: each host's part is rounded, too. A
prescaled input is rounded once more.
"""

from __future__ import annotations

import os
import zlib

import capi
import numpy as np

EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
TINY = {"float16": 2.0**-25, "bfloat16": 2.0**-134, "float32": 2.0**-150, "float64": 0.0}
FLOATS = list(EPS)
SHORT = ["float16", "bfloat16"]
HOSTS = int(os.environ["CHECKS_HOSTS"])


def bf16_of(x):
    """The nearest bfloat16's bits, ties to even; no NaN among x."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide(x, dtype):
    """Exactly the same numbers in float64 (floats), or the array itself."""
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(x).astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64).reshape(x.shape)
    return x.astype(np.float64) if dtype in EPS else x


_pool = {}


def _numbers(dtype, kind):
    """2^20 + 2^16 numbers of one kind, made once."""
    key = dtype, kind
    if key not in _pool:
        rng = np.random.default_rng(zlib.crc32(repr(key).encode()))
        n = 2**20 + 2**16
        if dtype in EPS:
            x = rng.uniform(0.5, 1.5, n) if kind == "product" else rng.normal(0, 1, n)
            x = bf16_of(x) if dtype == "bfloat16" else x.astype(dtype)
        elif dtype == "bool":
            x = rng.integers(0, 2, n).astype(bool)
        else:
            info = np.iinfo(dtype)
            low, high = (info.min // 8, info.max // 8) if kind == "average" else (info.min, info.max)
            x = rng.integers(low, high, n, dtype=dtype, endpoint=True)
        _pool[key] = x
    return _pool[key]


def values(shape, dtype, rank, op=capi.SUM, salt=0):
    """This rank's input: anything of the type; its own on each rank. A copy."""
    kind = {capi.PRODUCT: "product", capi.AVERAGE: "average"}.get(op, "any")
    count = int(np.prod(shape, dtype=np.int64))
    start = (rank * 4001 + salt * 97) % 2**16
    return _numbers(dtype, kind)[start : start + count].reshape(shape).copy()


def _fold(arrays, op):
    f = {
        capi.SUM: np.add,
        capi.AVERAGE: np.add,
        capi.MIN: np.minimum,
        capi.MAX: np.maximum,
        capi.PRODUCT: np.multiply,
    }[op]
    out = arrays[0]
    for a in arrays[1:]:
        out = f(out, a)
    return out


def can_reduce(dtype, op):
    if op == capi.ADASUM:
        return dtype in EPS
    return op != capi.AVERAGE or dtype != "bool"


def reduced(inputs, dtype, op, prescale=1.0, postscale=1.0):
    """The result of all ranks' inputs and how far off it may be (0: exact)."""
    n = len(inputs)
    if dtype == "bool":
        return _fold(inputs, {capi.SUM: capi.MAX, capi.PRODUCT: capi.MIN}.get(op, op)), 0
    if dtype not in EPS:
        with np.errstate(over="ignore"):
            out = _fold([x.astype(dtype) for x in inputs], op)
        if op == capi.AVERAGE:
            out = (np.sign(out) * (np.abs(out) // n)).astype(dtype)
        return out, 0
    exact = [wide(x, dtype) * prescale for x in inputs]
    out = _fold(exact, op) * postscale / (n if op == capi.AVERAGE else 1)
    if op in (capi.MIN, capi.MAX) and prescale == postscale == 1.0:
        return out, 0 * out
    size = np.abs(out)
    if op in (capi.SUM, capi.AVERAGE):
        size = sum(np.abs(x) for x in exact) * abs(postscale) / (n if op == capi.AVERAGE else 1)
    steps = n + 1 if dtype != "float64" else 2 * (n + 1)  # the expected value is float64's too
    bound = steps * EPS["float32" if dtype in SHORT else dtype] * size + TINY[dtype]
    if prescale != 1.0:
        bound = bound + EPS[dtype] * size * (n if op == capi.PRODUCT else 1)
    if dtype in SHORT:  # at the end, and each host's part: those add up in a product only
        parts = 0 if HOSTS == 1 else HOSTS if op == capi.PRODUCT else 1
        bound = bound + EPS[dtype] * size * (1 + parts)
    return out, bound


def outcome(kind, inputs, dtype, me, op=capi.SUM, root=0, splits=None, scales=(1.0, 1.0)):
    """What a member gets of its process set's inputs, and how far off it may be (None: the bits are those).

    root: a member; splits: each member's.
    """
    if kind == "broadcast":
        return inputs[root], None
    if kind in ("allgather", "gather"):
        return np.concatenate(inputs)[: None if kind == "allgather" or me == root else 0], None
    if kind == "alltoall":
        starts = [sum(s[:me]) for s in splits]
        return np.concatenate([x[at : at + s[me]] for x, at, s in zip(inputs, starts, splits)]), None
    if kind == "reduce" and me != root:
        return np.full_like(inputs[me], 77), None  # as capi.Op has made it
    out, bound = reduced(inputs, dtype, op, *scales)
    if kind == "reducescatter":
        begin, end = share(len(out), len(inputs), me)
        out, bound = out[begin:end], bound[begin:end] if np.ndim(bound) else bound
    return out, bound


def same(got, expected, bound, dtype, what):
    """got (as numpy holds dtype) is expected (float64, or the integers) within bound; None: bit by bit."""
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, not {expected.shape}"
    is_exact = bound is None or dtype not in EPS
    is_near = got == expected if is_exact else np.abs(wide(got, dtype) - expected) <= bound
    wrong = ~np.asarray(is_near)
    if np.any(wrong):
        at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
        pick = (lambda a: np.broadcast_to(a, got.shape)[at]) if got.ndim else (lambda a: a)
        raise AssertionError(
            f"{what}: {int(np.sum(wrong))} of {got.size} wrong, first at {at}: {pick(wide(got, dtype))}, "
            f"not {pick(expected)} within {pick(bound)}"
        )


def in_flight(cases, start, finish, window=24):
    """start(case) -> Op for several at a time, finish(case, op) in the same order."""
    cases = list(cases)
    for at in range(0, len(cases), window):
        some = cases[at : at + window]
        for case, op in [(case, start(case)) for case in some]:
            finish(case, op)


def share(rows, n, member):
    """The rows (start, end) that a member gets of a reducescatter."""
    start = member * (rows // n) + min(member, rows % n)
    return start, start + rows // n + (member < rows % n)
