# SPDX-License-Identifier: Apache-2.0
"""allgather, broadcast, alltoall, barrier, join, their gradients; what ranks must agree on."""

import numpy as np
from harness import hvd, symbol, torch
from reduce import FLOATS, INTEGERS, MOVED, gradient, mine


def parts(shapes, dtype=torch.float64):
    return [mine(dtype, shape, rank).to(torch.float64).numpy() for rank, shape in enumerate(shapes)]


@symbol("allgather")
def allgather(t):
    for dtype in FLOATS + INTEGERS + MOVED:
        x = mine(dtype, (hvd.rank() + 1, 2))
        got = hvd.allgather(x)
        assert got.dtype is dtype
        t.equal(got, np.concatenate(parts([(1, 2), (2, 2)], dtype)))
    t.equal(hvd.allgather(mine(shape=(2 * hvd.rank(),))), np.concatenate(parts([(0,), (2,)])))
    t.same("empty", hvd.allgather(torch.empty(0, 3)))
    t.same("named", hvd.allgather(mine(), "gather"))
    t.same("returns", type(hvd.allgather(mine())).__name__)


@symbol("allgather")
def allgather_of_more_dtypes(t):
    for dtype in (torch.bfloat16, torch.bool):
        right = torch.cat([mine(dtype, rank=r) for r in range(2)])
        work = lambda dtype=dtype: hvd.allgather(mine(dtype))  # noqa: E731
        t.fixed(str(dtype), "the original does not know it", work, right)


@symbol("allgather_async", "synchronize")
def allgather_async(t):
    handle = hvd.allgather_async(mine(), name="gather.async")
    t.same("handle", type(handle).__name__)
    t.same("result", hvd.synchronize(handle))


@symbol("grouped_allgather")
def grouped_allgather(t):
    got = hvd.grouped_allgather([mine(), mine(shape=(hvd.rank() + 1, 2))])
    t.same("returns", type(got).__name__)
    t.same("result", list(got))


@symbol("grouped_allgather_async", "synchronize")
def grouped_allgather_async(t):
    handle = hvd.grouped_allgather_async([mine(), mine(shape=(hvd.rank() + 1, 2))], name="gathers")
    t.same("handle", type(handle).__name__)
    got = hvd.synchronize(handle)
    t.same("returns", type(got).__name__)
    t.same("result", list(got))


@symbol("broadcast")
def broadcast(t):
    for dtype in FLOATS + INTEGERS + MOVED:
        for root in (0, 1):
            x = mine(dtype, (2, 3))
            got = hvd.broadcast(x, root)
            assert got.dtype is dtype and got.data_ptr() != x.data_ptr()
            t.equal(got, mine(dtype, (2, 3), root).to(torch.float64).numpy())
            t.equal(x, mine(dtype, (2, 3)).to(torch.float64).numpy())
    t.same("of no dimension", hvd.broadcast(mine(shape=()), root_rank=1, name="scalar"))
    t.same("empty", hvd.broadcast(torch.empty(0), 0))


@symbol("broadcast_")
def broadcast_in_place(t):
    x = mine()
    assert hvd.broadcast_(x, root_rank=1) is x
    t.equal(x, mine(rank=1))
    p = torch.nn.Parameter(mine())
    assert hvd.broadcast_(p, 0) is p
    t.equal(p.data, mine(rank=0))


@symbol("broadcast_async", "broadcast_async_", "synchronize")
def broadcast_async(t):
    x = mine()
    handle = hvd.broadcast_async(x, 1)
    t.same("handle", type(handle).__name__)
    t.equal(hvd.synchronize(handle), mine(rank=1))
    t.equal(x, mine())
    assert hvd.synchronize(hvd.broadcast_async_(x, 0, name="in.place")) is x
    t.equal(x, mine(rank=0))


@symbol("alltoall")
def alltoall(t):
    for dtype in FLOATS + INTEGERS:
        got = hvd.alltoall(mine(dtype, (4, 2)))
        assert got.dtype is dtype
        rows = slice(2 * hvd.rank(), 2 * hvd.rank() + 2)
        t.equal(got, np.concatenate([p[rows] for p in parts([(4, 2)] * 2)]))
    t.same("returns", type(hvd.alltoall(mine(shape=(2,)))).__name__)
    splits = [1, 2] if hvd.rank() == 0 else [0, 3]
    for name, s in (("list", splits), ("int32", torch.tensor(splits, dtype=torch.int32))):
        got = hvd.alltoall(mine(shape=(3,)), splits=s, name=f"splits.{name}")
        t.same(f"returns for {name}", type(got).__name__)
        t.same(name, list(got))
    t.same("nothing", list(hvd.alltoall(torch.empty(0, 2), splits=[0, 0])))
    t.fails("not divisible", ["first dimension of tensor", "multiple of"], hvd.alltoall, mine(shape=(3,)))
    t.fails("splits too long", ["split"], hvd.alltoall, mine(shape=(3,)), splits=[1, 1, 1])
    t.fails("splits too large", ["split"], hvd.alltoall, mine(shape=(3,)), splits=[3, 3])


@symbol("alltoall_async", "synchronize")
def alltoall_async(t):
    handle = hvd.alltoall_async(mine(shape=(4,)), name="all.async")
    t.same("handle", type(handle).__name__)
    got = hvd.synchronize(handle)
    t.same("returns", type(got).__name__)
    t.same("result", list(got))
    handle = hvd.alltoall_async(mine(shape=(4,)), splits=torch.tensor([1, 3], dtype=torch.int32))
    t.same("splits", list(hvd.synchronize(handle)))


@symbol("gather", "gather_async", "reduce", "reduce_async", ours=True)
def for_one_rank_alone(t):
    """What allgather and allreduce do, for one rank."""
    for root in (0, 1):
        is_root = hvd.rank() == root
        x = mine(shape=(hvd.rank() + 1, 2))
        right = np.concatenate(parts([(1, 2), (2, 2)])) if is_root else np.zeros((0, 2))
        t.equal(hvd.gather(x, root), right)
        t.equal(hvd.synchronize(hvd.gather_async(x, root_rank=root, name="gather")), right)
        both = sum(parts([(5,), (5,)]))
        t.equal(hvd.reduce(mine(), root, op=hvd.Sum), both if is_root else [])
        t.equal(hvd.synchronize(hvd.reduce_async(mine(), root)), both / 2 if is_root else [])


@symbol("send", "send_async", "recv", "recv_", "recv_async", "recv_async_", ours=True)
def from_one_rank_to_another(t):
    for name, send, recv in (
        ("waiting", hvd.send, hvd.recv),
        ("in place", hvd.send, hvd.recv_),
        (
            "begun",
            lambda *a: hvd.synchronize(hvd.send_async(*a)),
            lambda *a: hvd.synchronize(hvd.recv_async(*a)),
        ),
        ("begun in place", hvd.send, lambda *a: hvd.synchronize(hvd.recv_async_(*a))),
    ):
        for sender in (0, 1):
            if hvd.rank() == sender:
                send(mine(rank=7), 1 - sender, name)
            else:
                into = torch.zeros(5)
                got = recv(into, sender, name)
                t.equal(got, mine(rank=7))
                t.equal(into, mine(rank=7) if "place" in name else np.zeros(5))


@symbol("barrier")
def barrier(t):
    t.same("returns", hvd.barrier())
    t.same("named", hvd.barrier(process_set=hvd.global_process_set))


# --- gradients -----------------------------------------------------------------------------------


@symbol("allgather", "horovod.torch.mpi_ops.HorovodAllgather")
def gradient_of_allgather(t):
    t.same("uneven", gradient(hvd.allgather, mine(shape=(hvd.rank() + 1, 2))))


@symbol("grouped_allgather", "horovod.torch.mpi_ops.HorovodGroupedAllgather")
def gradient_of_grouped_allgather(t):
    got = gradient(lambda *x: hvd.grouped_allgather(list(x)), mine(), mine(shape=(hvd.rank() + 1, 2)))
    t.same("uneven", got)


@symbol("broadcast", "horovod.torch.mpi_ops.HorovodBroadcast")
def gradient_of_broadcast(t):
    for root in (0, 1):
        t.same(f"from {root}", gradient(lambda x, root=root: hvd.broadcast(x, root), mine()))


@symbol("alltoall", "horovod.torch.mpi_ops.HorovodAlltoall")
def gradient_of_alltoall(t):
    t.same("even", gradient(hvd.alltoall, mine(shape=(4, 2))))
    splits = [1, 2] if hvd.rank() == 0 else [0, 3]
    t.same("splits", gradient(lambda x: hvd.alltoall(x, splits=splits), mine(shape=(3, 2))))


# --- what is wrong ---------------------------------------------------------------------------------


@symbol("allreduce", "allgather", "broadcast", "HorovodInternalError")
def disagreements(t):
    """One sentence of the original's words; the job lives on after each."""
    r = hvd.rank()
    t.fails("shape", ["Mismatched allreduce tensor shapes"], hvd.allreduce, torch.ones(2 + r))
    t.fails("dimensions", ["Mismatched allreduce tensor shapes"], hvd.allreduce, torch.ones([2] * (r + 1)))
    kind = torch.float32 if r else torch.int32
    t.fails("dtype", ["Mismatched data types"], hvd.allreduce, torch.ones(2, dtype=kind), name="dtype")
    op = hvd.Sum if r else hvd.Min
    t.fails("op", ["Mismatched reduction operation"], hvd.allreduce, torch.ones(2), name="op", op=op)
    words = ["Mismatched prescale and/or postscale factors"]
    t.fails("prescale", words, hvd.allreduce, torch.ones(2), name="pre", prescale_factor=1.0 + r)
    t.fails("postscale", words, hvd.allreduce, torch.ones(2), name="post", postscale_factor=1.0 + r)
    t.fails("gather dtype", ["Mismatched data types"], hvd.allgather, torch.ones(2, dtype=kind), name="gd")
    t.fails("gather shape", ["Mismatched allgather tensor shapes"], hvd.allgather, torch.ones(2, 2 + r))
    gather = lambda: hvd.synchronize(hvd.allgather_async(torch.tensor(1.0)))  # noqa: E731
    t.fails("gather rank", ["tried to allgather a rank-zero tensor"], gather, instead=ValueError)
    t.fails("root", ["Mismatched broadcast root ranks"], hvd.broadcast, torch.ones(2), r, name="root")
    t.fails("broadcast shape", ["Mismatched broadcast tensor shapes"], hvd.broadcast, torch.ones(2 + r), 0)
    t.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), [2, 2])


@symbol("allreduce_async")
def name_in_flight(t):
    words = ["Requested to allreduce, allgather, or broadcast a tensor with the same name"]
    first = hvd.allreduce_async(torch.ones(1000), name="twice") if hvd.rank() == 0 else None
    if hvd.rank() == 0:
        t.fails(
            "twice", words, lambda: hvd.synchronize(hvd.allreduce_async(torch.ones(1000), name="twice"))
        )
    hvd.barrier()
    first = first if first is not None else hvd.allreduce_async(torch.ones(1000), name="twice")
    t.equal(hvd.synchronize(first)[:2], [1, 1])
    t.level()


@symbol("allreduce", "allreduce_async_")
def what_is_no_tensor_for_us(t):
    t.fails("complex", ["not supported"], hvd.allreduce, torch.ones(2, dtype=torch.complex64))
    t.fails("sparse", [], hvd.allreduce, torch.ones(2).to_sparse(), instead=NotImplementedError)
    right = torch.full((3, 2), 2.0)
    t.fixed(
        "not contiguous",
        "tensors need not be contiguous",
        lambda: hvd.synchronize(hvd.allreduce_async_(torch.ones(2, 3).t(), op=hvd.Sum)),
        right,
    )


@symbol("join")
def join(t):
    """Rank 1 has one batch less; what it misses counts as zeros, and an average divides by all."""
    hvd.allreduce(torch.ones(2), name="batch")
    if hvd.rank() == 0:
        t.equal(hvd.allreduce(torch.ones(2) * 6, name="batch"), [3, 3])
        t.equal(hvd.allreduce(torch.ones(2) * 6, op=hvd.Sum, name="sum"), [6, 6])
        t.fails("allgather", ["not supported with Join"], hvd.allgather, torch.ones(2))
        t.fails("broadcast", ["not supported with Join"], hvd.broadcast, torch.ones(2), 0)
    t.same("last", hvd.join())
    t.same("returns", type(hvd.join()).__name__)
    t.level()
    t.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), [2, 2])
