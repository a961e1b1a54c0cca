# SPDX-License-Identifier: Apache-2.0
"""allreduce in all its forms, and reducescatter."""

import numpy as np
from harness import hvd, symbol, torch

FLOATS = [torch.float16, torch.float32, torch.float64]
INTEGERS = [torch.int32, torch.int64]
MOVED = [torch.uint8, torch.int8, torch.int16]  # by the original broadcast and gathered, not reduced


def mine(dtype=torch.float32, shape=(5,), rank=None, factor=1):
    """Small numbers, other ones on each rank, whose sums and products are exact in every dtype."""
    rank = hvd.rank() if rank is None else rank
    numbers = (np.arange(int(np.prod(shape))) * 3 + 2 * rank + 1) % 7 * factor
    return torch.from_numpy(numbers.reshape(shape)).to(dtype)


def every(function, dtype=torch.float64, shape=(5,)):
    return function(np.stack([mine(dtype, shape, r).to(torch.float64).numpy() for r in range(hvd.size())]))


@symbol("allreduce")
def allreduce_dtypes_and_ops(t):
    for dtype in FLOATS + INTEGERS:
        x = mine(dtype)
        for op, right in ((hvd.Sum, np.sum), (hvd.Min, np.min), (hvd.Max, np.max), (hvd.Product, np.prod)):
            got = hvd.allreduce(x, op=op)
            assert got.dtype is dtype and got.data_ptr() != x.data_ptr()
            t.equal(got, every(lambda a, right=right: right(a, axis=0)))
        t.equal(x, mine(torch.float64))  # the input is untouched
        t.same(f"average of {dtype}", hvd.allreduce(x))
    assert torch.equal(hvd.allreduce(mine(), op=hvd.Average), hvd.allreduce(mine()))


@symbol("allreduce")
def allreduce_shapes(t):
    for shape in ((), (0,), (1,), (3, 0), (2, 3), (2, 1, 3), (1000,)):
        got = hvd.allreduce(mine(shape=shape), op=hvd.Sum)
        t.equal(got, every(lambda a: a.sum(axis=0), shape=shape))
    t.same("returns", type(hvd.allreduce(mine())).__name__)


@symbol("allreduce")
def allreduce_average_of_integers(t):
    """The original divides after the sum, and rounds towards zero."""
    for numbers in ([7, 8, -7, 1], [4, 2, 0, -2], [-5, 3, 9, -8]):
        x = torch.tensor(numbers, dtype=torch.int32) + hvd.rank()
        t.same(f"{numbers}", hvd.allreduce(x, op=hvd.Average))


@symbol("allreduce")
def allreduce_scales(t):
    for dtype in FLOATS + [torch.int32]:
        for pre, post in ((0.5, 1.0), (1.0, 3.0), (0.5, 0.5), (1.5, 2.0)):
            got = hvd.allreduce(mine(dtype), op=hvd.Sum, prescale_factor=pre, postscale_factor=post)
            t.same(f"{dtype} {pre} {post}", got)
        t.same(f"{dtype} average", hvd.allreduce(mine(dtype), prescale_factor=0.5, postscale_factor=4.0))


@symbol("allreduce")
def allreduce_average_argument(t):
    t.same("true", t.warns("warning", hvd.allreduce, mine(), average=True))
    t.same("false", t.warns("warning of false", hvd.allreduce, mine(), average=False))
    t.same("by position", hvd.allreduce(mine(), False, "by.position"))
    words = ["The op parameter supersedes average. Please provide only one of them."]
    t.fails("both", words, hvd.allreduce, mine(), average=True, op=hvd.Sum)


@symbol("allreduce")
def allreduce_compression(t):
    x = mine() / 3
    t.same("none", hvd.allreduce(x, compression=hvd.Compression.none))
    half = hvd.allreduce(x, compression=hvd.Compression.fp16)
    assert half.dtype is torch.float32
    t.same("fp16", half)
    t.same("integers stay", hvd.allreduce(mine(torch.int32), compression=hvd.Compression.fp16, op=hvd.Sum))

    class Mine(hvd.compression.Compressor):
        @staticmethod
        def compress(tensor):
            return tensor * 2, "context"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "context"
            return tensor / 2

    t.same("of the user", hvd.allreduce(x, compression=Mine, op=hvd.Sum))


@symbol("allreduce_")
def allreduce_in_place(t):
    for dtype in FLOATS + INTEGERS:
        x = mine(dtype)
        assert hvd.allreduce_(x, op=hvd.Sum) is x
        t.equal(x, every(lambda a: a.sum(axis=0)))
    x = mine()
    t.same("average", hvd.allreduce_(x))
    t.same("scaled", hvd.allreduce_(mine(), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25))
    t.same("old average", t.warns("warning", hvd.allreduce_, mine(), average=False))
    p = torch.nn.Parameter(mine())
    assert hvd.allreduce_(p, op=hvd.Sum) is p
    t.equal(p.data, every(lambda a: a.sum(axis=0)))


@symbol("allreduce_async", "poll", "synchronize")
def allreduce_async(t):
    x = mine()
    handle = hvd.allreduce_async(x, op=hvd.Sum)
    t.same("handle", type(handle).__name__)
    got = hvd.synchronize(handle)
    assert got is not x
    t.equal(got, every(lambda a: a.sum(axis=0)))
    t.same("again", hvd.synchronize(handle))
    handles = [hvd.allreduce_async(mine(factor=i), name=f"async.{i}") for i in range(20)]
    for handle in reversed(handles):
        hvd.synchronize(handle)
    handle = hvd.allreduce_async(x, op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    t.same("poll", type(hvd.poll(handle)).__name__)
    t.equal(hvd.synchronize(handle), every(lambda a: a.sum(axis=0)))


@symbol("allreduce_async_", "synchronize")
def allreduce_async_in_place(t):
    x = mine()
    handle = hvd.allreduce_async_(x, average=None, name="in.place", op=hvd.Average)
    assert hvd.synchronize(handle) is x
    t.same("average", x)


@symbol("synchronize")
def handles(t):
    t.same("unknown", hvd.synchronize(10**9))


@symbol("grouped_allreduce")
def grouped_allreduce(t):
    tensors = [mine(), mine(shape=(2, 3)), mine(shape=())]
    got = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    t.same("returns", type(got).__name__)
    for x, full in zip(got, ((5,), (2, 3), ())):
        t.equal(x, every(lambda a: a.sum(axis=0), shape=full))
    t.same("average", list(hvd.grouped_allreduce(tensors)))
    t.same("integers", list(hvd.grouped_allreduce([mine(torch.int64), mine(torch.int64)], op=hvd.Average)))
    scaled = hvd.grouped_allreduce(tensors, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    t.same("scaled", list(scaled))
    t.same("fp16", list(hvd.grouped_allreduce(tensors, compression=hvd.Compression.fp16)))
    t.same("min", list(hvd.grouped_allreduce(tensors, op=hvd.Min)))
    old = t.warns("warning", hvd.grouped_allreduce, tensors, average=False)
    t.same("old average", list(old))


@symbol("grouped_allreduce_")
def grouped_allreduce_in_place(t):
    tensors = [mine(), mine(shape=(2, 3))]
    got = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    assert all(a is b for a, b in zip(got, tensors))
    t.same("returns", type(got).__name__)
    t.same("sum", tensors)


@symbol("grouped_allreduce_async", "grouped_allreduce_async_", "synchronize")
def grouped_allreduce_async(t):
    tensors = [mine(), mine(shape=(2, 3))]
    handle = hvd.grouped_allreduce_async(tensors, name="group")
    t.same("handle", type(handle).__name__)
    got = hvd.synchronize(handle)
    t.same("returns", type(got).__name__)
    t.same("average", list(got))
    t.same("untouched", tensors)
    got = hvd.synchronize(hvd.grouped_allreduce_async_(tensors, name="group_", op=hvd.Sum))
    assert all(a is b for a, b in zip(got, tensors))
    t.same("in place", tensors)


@symbol("sparse_allreduce_async")
def sparse_allreduce(t):
    i = torch.tensor([[0, 2 + hvd.rank()], [1, 0]])
    x = torch.sparse_coo_tensor(i, torch.tensor([1.0, 2.0 + hvd.rank()]), (4, 2))
    for name, op in (("sum", hvd.Sum), ("average", hvd.Average)):
        handle = hvd.sparse_allreduce_async(x, name=f"sparse.{name}", op=op)
        assert callable(handle)
        got = handle()
        assert got.is_sparse
        t.same(name, got.coalesce())
    handle = hvd.sparse_allreduce_async(
        torch.sparse_coo_tensor(size=(4, 2)), name="sparse.empty", op=hvd.Sum
    )
    t.same("empty", handle())


@symbol("reducescatter")
def reducescatter(t):
    for dtype in FLOATS + INTEGERS:
        for rows in (0, 1, 2, 5):
            x = mine(dtype, (rows, 3))
            whole = every(lambda a: a.sum(axis=0), shape=(rows, 3))
            cut = (rows + 1) // 2  # the first ranks have the row more
            right = whole[:cut] if hvd.rank() == 0 else whole[cut:]
            got = hvd.reducescatter(x, op=hvd.Sum)
            assert got.dtype is dtype
            t.equal(got, right)
        t.same(f"average of {dtype}", hvd.reducescatter(mine(dtype)))
    t.same("fp16", hvd.reducescatter(mine() / 3, compression=hvd.Compression.fp16, op=hvd.Sum))
    t.same("by position", hvd.reducescatter(mine(), "rs", hvd.Compression.none, hvd.Sum))
    t.same("scaled", hvd.reducescatter(mine(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0))
    for name, op in (("min", "minimum"), ("max", "maximum"), ("product", "multiply")):
        right = getattr(np, op)(mine(rank=0).numpy(), mine(rank=1).numpy())
        right = torch.from_numpy(right[:3] if hvd.rank() == 0 else right[3:])
        kind = {"min": hvd.Min, "max": hvd.Max, "product": hvd.Product}[name]
        work = lambda kind=kind: hvd.reducescatter(mine(), op=kind)  # noqa: E731
        t.fixed(name, "the original does Sum and Average only", work, right)


@symbol("grouped_reducescatter")
def grouped_reducescatter(t):
    got = hvd.grouped_reducescatter([mine(), mine(shape=(4, 2))], op=hvd.Sum)
    t.same("returns", type(got).__name__)
    t.same("sum", list(got))
    t.same("average", list(hvd.grouped_reducescatter([mine(), mine(shape=(3, 2))])))
    half = hvd.grouped_reducescatter([mine(), mine()], compression=hvd.Compression.fp16)
    t.same("fp16", list(half))
    t.same("scaled", list(hvd.grouped_reducescatter([mine()], op=hvd.Sum, postscale_factor=0.5)))
