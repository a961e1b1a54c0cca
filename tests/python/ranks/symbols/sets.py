# SPDX-License-Identifier: Apache-2.0
"""Process sets, added and removed while the job runs (HOROVOD_DYNAMIC_PROCESS_SETS=1)."""

from harness import OURS, hvd, symbol


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
