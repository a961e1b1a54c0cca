# SPDX-License-Identifier: Apache-2.0
"""allgather, broadcast, alltoall, barrier, join; handles and gradients; what ranks must agree on."""

import functools

import numpy as np
from harness import hvd, symbol, torch
from reduce import FLOATS, INTEGERS, MOVED, mine


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


@symbol("grouped_allgather")
def grouped_allgather(t):
    got = hvd.grouped_allgather([mine(), mine(shape=(hvd.rank() + 1, 2))])
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


BEGUN = ("allgather", "grouped_allgather", "alltoall", "reducescatter", "grouped_reducescatter")


@symbol("synchronize", *(f"{name}_async" for name in BEGUN))
def handles_of_operations(t):
    some = [mine(), mine(shape=(hvd.rank() + 1, 2))]
    inputs = (mine(), some, mine(shape=(4,)), mine(), [mine(), mine(shape=(4, 2))])
    for name, given in zip(BEGUN, inputs):
        options = {"op": hvd.Sum} if "scatter" in name else {}
        handle = getattr(hvd, f"{name}_async")(given, name=f"{name}.async", **options)
        t.same(f"{name} handle", type(handle).__name__)
        t.same(name, hvd.synchronize(handle))
    handle = hvd.alltoall_async(mine(shape=(4,)), splits=torch.tensor([1, 3], dtype=torch.int32))
    t.same("alltoall splits", hvd.synchronize(handle))


# --- gradients -----------------------------------------------------------------------------------


def gradient(function, *inputs):
    """Gradients of the weighted sum of what function returns; the weights differ by rank."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = function(*leaves)
    outs = [out] if isinstance(out, torch.Tensor) else [o for o in out if o.is_floating_point()]
    weights = [torch.arange(1.0, o.numel() + 1).reshape(o.shape) * (hvd.rank() + 1) for o in outs]
    sum((o * w).sum() for o, w in zip(outs, weights)).backward()
    return [x.grad for x in leaves]


KINDS = ("Allgather", "GroupedAllgather", "Broadcast", "Alltoall")


@symbol("allgather", "grouped_allgather", "broadcast", "alltoall")
@symbol(*(f"horovod.torch.mpi_ops.Horovod{kind}" for kind in KINDS))
def gradients_of_what_moves(t):
    uneven, splits = mine(shape=(hvd.rank() + 1, 2)), [1, 2] if hvd.rank() == 0 else [0, 3]
    for name, function, *inputs in (
        ("allgather", hvd.allgather, uneven),
        ("grouped allgather", lambda *x: hvd.grouped_allgather(list(x)), mine(), uneven),
        ("broadcast from 0", lambda x: hvd.broadcast(x, 0), mine()),
        ("broadcast from 1", lambda x: hvd.broadcast(x, 1), mine()),
        ("alltoall", hvd.alltoall, mine(shape=(4, 2))),
        ("alltoall of splits", lambda x: hvd.alltoall(x, splits=splits), mine(shape=(3, 2))),
    ):
        t.same(name, gradient(function, *inputs))


REDUCTIONS = ("Allreduce", "GroupedAllreduce", "Reducescatter", "GroupedReducescatter")


@symbol("allreduce", "grouped_allreduce", "reducescatter", "grouped_reducescatter")
@symbol(*(f"horovod.torch.mpi_ops.Horovod{kind}" for kind in REDUCTIONS))
def gradients_of_reductions(t):
    for op in ("Sum", "Average"):
        for name, *inputs in (
            ("allreduce", mine()),
            ("grouped_allreduce", mine(), mine(shape=(2, 3))),
            ("reducescatter", mine(shape=(5, 2))),
            ("grouped_reducescatter", mine(), mine(shape=(4, 2))),
        ):
            reduce = functools.partial(getattr(hvd, name), op=getattr(hvd, op))
            grouped = lambda *x, reduce=reduce: reduce(list(x))  # noqa: E731
            t.same(f"{name} by {op}", gradient(grouped if len(inputs) > 1 else reduce, *inputs))
    scaled = lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)  # noqa: E731
    t.same("scaled", gradient(scaled, mine()))
    rest = (hvd.Sum, 1.0, 2.0, hvd.global_process_set)
    alone = lambda x: hvd.mpi_ops.HorovodAllreduce.apply(x, None, "applied.alone", *rest)  # noqa: E731
    t.same("of the class", gradient(alone, mine()))
    apply = lambda *x: hvd.mpi_ops.HorovodGroupedAllreduce.apply(None, "applied", *rest, *x)  # noqa: E731
    t.same("of the grouped class", gradient(apply, mine(), mine(shape=(2, 3))))
    t.same("of the result", hvd.allreduce(mine().requires_grad_()).requires_grad)


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
    t.fixed(
        "complex",
        "complex numbers are reduced",
        lambda: torch.view_as_real(hvd.allreduce(torch.full((2,), 2 - 1j))),
        torch.tensor([[2.0, -1.0]] * 2),
    )
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
