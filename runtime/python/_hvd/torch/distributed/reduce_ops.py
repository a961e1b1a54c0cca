# SPDX-License-Identifier: Apache-2.0
"""torch's reductions as the runtime's: (operation, factor before the sum), or a function of our own."""

import functools

import torch
from torch._C._distributed_c10d import ReduceOp

from _hvd import basics

_OPS = [
    (ReduceOp.SUM, basics.Sum),
    (ReduceOp.AVG, basics.Average),
    (ReduceOp.PRODUCT, basics.Product),
    (ReduceOp.MIN, basics.Min),
    (ReduceOp.MAX, basics.Max),
]
_BITS = [
    (ReduceOp.BAND, torch.bitwise_and),
    (ReduceOp.BOR, torch.bitwise_or),
    (ReduceOp.BXOR, torch.bitwise_xor),
]


def runtime_op(op, what):
    """(enum hvd_op, prescale); for bitwise operations the runtime has no counterpart: RuntimeError."""
    for theirs, ours in _OPS:
        if op == theirs:
            return ours, 1.0
    if op == ReduceOp.PREMUL_SUM:
        state = op.__getstate__() if hasattr(op, "__getstate__") else None
        if state is None:
            raise RuntimeError(f"{what}: this version of torch does not expose the factor of PREMUL_SUM")
        factor = state[1]
        if isinstance(factor, torch.Tensor):
            if factor.numel() != 1:
                raise RuntimeError(f"{what}: PREMUL_SUM takes one factor, not a tensor of {factor.numel()}")
            factor = factor.item()
        return basics.Sum, float(factor)
    raise RuntimeError(f"{what}: {op} is not supported; all_reduce has it")


def bitwise(op):
    """torch's function of two tensors, or None for another operation."""
    for theirs, function in _BITS:
        if op == theirs:
            return function
    return None


def fold(function, parts):
    return functools.reduce(function, parts)
