# SPDX-License-Identifier: Apache-2.0
"""Process sets, added and removed while the job runs (HOROVOD_DYNAMIC_PROCESS_SETS=1)."""

import numpy as np
from harness import OURS, hvd, symbol, torch
from reduce import mine


@symbol("global_process_set", "ProcessSet")
def the_global_set(t):
    g = hvd.global_process_set
    t.same("size, rank", [g.size(), g.rank(), g.included(), g.process_set_id, list(g.ranks), g.mpi_comm])
    t.same("text", str(g))


@symbol("ProcessSet")
def a_set_before_it_is_added(t):
    s = hvd.ProcessSet([1, 0])
    t.same("sorted", list(s.ranks))
    t.same("size", s.size())
    t.same("rank", s.rank())
    t.same("id", s.process_set_id)
    t.same("text", str(s))
    t.fails("text as rank", ["list of process ranks"], hvd.ProcessSet, ["0"])
    t.fails("nothing", [], hvd.ProcessSet, None, instead=ValueError)


@symbol("add_process_set", "remove_process_set", "ProcessSet")
def sets_come_and_go(t):
    one = hvd.add_process_set([1])
    t.same("type", type(one).__name__)
    t.same("one", [one.size(), one.included(), list(one.ranks), one.rank() if one.included() else None])
    t.fails("duplicate", ["duplicate process set"], hvd.add_process_set, [1])
    t.fails("the same as all", ["duplicate process set"], hvd.add_process_set, [0, 1])
    zero = hvd.ProcessSet([0])
    assert hvd.add_process_set(zero) is zero
    t.same("zero", [zero.size(), zero.included()])
    assert zero.process_set_id not in (None, 0, one.process_set_id)
    t.same("removed", hvd.remove_process_set(one))
    t.same("its id", one.process_set_id)
    t.same("removed again", hvd.remove_process_set(one))
    t.same("the global set", hvd.remove_process_set(hvd.global_process_set))
    t.same("removed too", hvd.remove_process_set(zero))
    again = hvd.add_process_set([1])
    t.same("added again", [again.size(), again.included()])
    t.same("and removed", hvd.remove_process_set(again))
    if OURS:  # which ends the original: "terminate called after throwing", SIGABRT
        try:
            hvd.add_process_set([0, 5])
        except ValueError as e:
            assert "5" in str(e), e
        else:
            raise AssertionError("a rank that is not there was taken")


COLLECTIVES = (
    "allreduce", "allreduce_", "grouped_allreduce", "grouped_allreduce_", "allgather", "grouped_allgather",
    "broadcast", "broadcast_", "alltoall", "reducescatter", "grouped_reducescatter", "barrier",
    "broadcast_object", "sparse_allreduce_async",
)  # fmt: skip


@symbol("add_process_set", *COLLECTIVES)
def collectives_in_a_set(t):
    """Each rank in a set of its own: what comes out is its own tensor; and the other's are refused."""
    sets = [hvd.add_process_set([0]), hvd.add_process_set([1])]
    s, r = sets[hvd.rank()], hvd.rank()
    x = mine(shape=(4,))
    for name in ("allreduce", "allgather", "alltoall", "reducescatter"):
        t.equal(getattr(hvd, name)(x, process_set=s), x)
    for name in ("grouped_allreduce", "grouped_allgather", "grouped_reducescatter"):
        t.equal(getattr(hvd, name)([x, x], process_set=s)[1], x)
    t.equal(hvd.allreduce_(x.clone(), process_set=s), x)
    t.equal(hvd.grouped_allreduce_([x.clone()], process_set=s)[0], x)
    t.equal(hvd.broadcast(x, r, process_set=s), x)  # the root is a rank of all
    t.equal(hvd.broadcast_(x.clone(), root_rank=r, process_set=s), x)
    hvd.barrier(process_set=s)
    t.same("object", hvd.broadcast_object({"rank": r}, root_rank=r, process_set=s))
    sparse = torch.sparse_coo_tensor([[0]], [1.0 + r], (2,))
    t.same("sparse", hvd.sparse_allreduce_async(sparse, name=f"sparse.{r}", op=hvd.Sum, process_set=s)())
    t.fails("not a member", [], hvd.allreduce, x, name=f"outside.{r}", process_set=sets[1 - r])
    total = hvd.allreduce(x, op=hvd.Sum)
    t.equal(total, np.sum([mine(shape=(4,), rank=k).numpy() for k in range(2)], axis=0))
    for each in sets:
        assert hvd.remove_process_set(each)
    t.fails("removed set", [], hvd.allreduce, x, process_set=s, instead=ValueError)
