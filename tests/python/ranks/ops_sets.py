# SPDX-License-Identifier: Apache-2.0
"""Process sets of horovod.torch: created by init(), added and removed, and every collective in them."""

import copy
import os
import pickle

import horovod.torch as hvd
import torch
from checks import check, check_if, expect_error, interrupted, main

hvd.shutdown()  # there may be a world of another script
before = hvd.ProcessSet([0])
size_before = before.size(), before.rank(), before.included(), hvd.global_process_set.ranks
hvd.init()
R, N = hvd.rank(), hvd.size()
hvd.shutdown()
FIRST, REST = hvd.ProcessSet([0]), hvd.ProcessSet(reversed(range(1, N)))
hvd.init(process_sets=[FIRST, REST])
torch.set_num_threads(1)
MINE = FIRST if R == 0 else REST
RANKS = MINE.ranks


@check
def sets_that_are_not_registered_know_nothing():
    assert size_before == (None, None, None, [])
    expect_error(
        ValueError,
        ["has not been registered", "hvd.add_process_set"],
        hvd.allreduce,
        torch.ones(1),
        process_set=before,
    )
    for wrong in (3, "01", ["a"], [True], [0.5], None):
        expect_error(ValueError, ["list of process ranks"], hvd.ProcessSet, wrong)


@check
def init_makes_the_sets_it_was_given():
    from horovod.torch import mpi_ops

    assert (FIRST.process_set_id, REST.process_set_id) == (1, 2)
    assert (FIRST.ranks, REST.ranks) == ([0], list(range(1, N)))
    assert (FIRST.size(), REST.size()) == (1, N - 1)
    assert (FIRST.included(), REST.included()) == (R == 0, R > 0)
    assert MINE.rank() == RANKS.index(R)
    other = REST if R == 0 else FIRST
    expect_error(ValueError, ["Process is not part of provided process set", f"rank {R}"], other.rank)
    everyone = {0: list(range(N)), 1: [0], 2: list(range(1, N))}
    assert mpi_ops._basics._get_process_set_ids_and_ranks() == everyone
    assert hvd.global_process_set.process_set_id == 0
    assert hvd.global_process_set.ranks == list(range(N))
    assert (hvd.global_process_set.size(), hvd.global_process_set.rank()) == (N, R)
    assert "ranks=[0]" in str(FIRST)


@check
def init_again_finds_them_and_adds_none():
    same = hvd.ProcessSet([0])
    hvd.init(process_sets=[same])
    assert same.process_set_id == 1
    words = ["called before", "hvd.add_process_set()"]
    if N > 2:
        expect_error(ValueError, words, hvd.init, process_sets=[hvd.ProcessSet([0, 1])])


@check
def init_refuses_what_are_no_sets():
    words = ["process_sets entry number 1 is a duplicate"]
    twice = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 0])]
    expect_error(ValueError, words, hvd.init, process_sets=twice)
    expect_error(ValueError, words, hvd.init, process_sets=[FIRST, hvd.global_process_set])
    expect_error(ValueError, ["entry number 0", "list"], hvd.init, process_sets=[[0]])
    expect_error(ValueError, ["dynamic", "static"], hvd.init, process_sets="static")
    hvd.init(process_sets="dynamic")
    assert os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] == "1"


@check
def every_collective_stays_in_its_set():
    n, total = len(RANKS), sum(r + 1 for r in RANKS)
    p = {"process_set": MINE}
    x = torch.full((2,), float(R + 1))
    assert hvd.allreduce(x, op=hvd.Sum, **p).tolist() == [total] * 2
    assert hvd.allreduce_(x.clone(), op=hvd.Max, **p).tolist() == [max(RANKS) + 1] * 2
    assert hvd.allreduce(torch.ones(2), op=hvd.Adasum, **p).tolist() == [1.0, 1.0]
    assert [t.tolist() for t in hvd.grouped_allreduce([x, x], op=hvd.Sum, **p)] == [[total] * 2] * 2
    assert hvd.allgather(x, **p).tolist() == [r + 1 for r in RANKS for _ in range(2)]
    assert hvd.grouped_allgather([x], **p)[0].numel() == 2 * n
    assert hvd.broadcast(x, RANKS[-1], **p).tolist() == [RANKS[-1] + 1] * 2
    assert hvd.broadcast_(x.clone(), RANKS[0], **p).tolist() == [RANKS[0] + 1] * 2
    y, splits = hvd.alltoall(torch.full((n,), float(R)), torch.ones(n, dtype=torch.int32), **p)
    assert (y.tolist(), splits.tolist()) == (RANKS, [1] * n)
    assert hvd.reducescatter(torch.ones(n) * R, op=hvd.Sum, **p).tolist() == [sum(RANKS)]
    assert hvd.grouped_reducescatter([torch.ones(n)], **p)[0].tolist() == [1]
    reduced = hvd.reduce(x, RANKS[0], op=hvd.Sum, **p)
    assert reduced.tolist() == ([total] * 2 if RANKS[0] == R else [])
    assert hvd.gather(x, RANKS[0], **p).numel() == (2 * n if RANKS[0] == R else 0)
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (2,))
    assert hvd.sparse_allreduce_async(sparse, "s", hvd.Average, **p)().to_dense().tolist() == [1.0, 0.0]
    hvd.barrier(MINE)
    assert hvd.broadcast_object({"rank": R}, RANKS[-1], **p) == {"rank": RANKS[-1]}
    assert hvd.allgather_object(R, **p) == RANKS
    state = {"w": torch.full((2,), float(R))}
    hvd.broadcast_parameters(state, RANKS[-1], **p)
    assert state["w"].tolist() == [RANKS[-1]] * 2


@check
def a_rank_outside_gets_an_error_and_nothing_hangs():
    other = REST if R == 0 else FIRST
    words = ["this rank is not in process set"]
    calls = (
        lambda: hvd.allreduce(torch.ones(1), process_set=other),
        lambda: hvd.allgather(torch.ones(1), process_set=other),
        lambda: hvd.broadcast(torch.ones(1), 0, process_set=other),
        lambda: hvd.grouped_allreduce([torch.ones(1)], process_set=other),
        lambda: hvd.barrier(other),
    )
    for call in calls:
        expect_error(ValueError, words, call)
    outside = 0 if R else 1  # a root that is not in my set
    if outside not in RANKS:
        expect_error(
            (ValueError, hvd.HorovodInternalError),
            [],
            lambda: hvd.broadcast(torch.ones(1), outside, process_set=MINE),
        )
    expect_error(TypeError, ["hvd.ProcessSet", "int"], hvd.allreduce, torch.ones(1), process_set=1)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == N


@check_if(N > 2)
def a_reused_number_has_nothing_of_its_old_set():
    """Neither cached or planned tensors, nor counted names, nor users of the old set."""
    had, stale = {}, None
    for i in range(6):
        ends = hvd.add_process_set([0, 1 + i * i % (N - 1)])
        had.setdefault(ends.process_set_id, set()).add(ends.ranks[1])
        if stale and had[stale[0]] != {1}:
            loss = stale[1](torch.ones(1, 1))
            expect_error((ValueError, hvd.HorovodInternalError), ["process set"], loss.backward)
            stale = None
        for step in range(12 if ends.included() else 0):
            one = torch.tensor([float(R), step])
            total = hvd.allreduce(one, op=hvd.Sum, name="in turns", process_set=ends)
            assert total.tolist() == [sum(ends.ranks), 2 * step]
            rows = hvd.allgather(one[: 1 + R % 2], name="rows", process_set=ends)
            assert len(rows) == sum(1 + rank % 2 for rank in ends.ranks)
        if ends.included():
            assert hvd.allreduce(torch.tensor(float(R)), op=hvd.Sum, process_set=ends) == sum(ends.ranks)
        if i == 0 and ends.included():
            model = torch.nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
            stale = (ends.process_set_id, model, hvd.DistributedOptimizer(optimizer, process_set=ends))
        hvd.remove_process_set(ends)
    assert any(len(partners) > 1 for partners in had.values()), had


@check
def the_switch_of_horovods_refuses_when_it_is_off():
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "0"
    words = ["Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow", "process sets after Horovod initialization"]
    expect_error(ValueError, [*words, "adding"], hvd.add_process_set, [0])
    expect_error(ValueError, [*words, "removing"], hvd.remove_process_set, FIRST)
    del os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"]  # unset, they may come and go


@check
def copies_mean_the_same_set():
    for other in (copy.deepcopy(MINE), pickle.loads(pickle.dumps(MINE))):
        assert other.process_set_id == MINE.process_set_id
        assert hvd.allgather_object(R, process_set=other) == RANKS
    assert copy.deepcopy(hvd.global_process_set) is hvd.global_process_set


@check_if(N > 2)
def a_signal_ends_the_wait_for_a_set():
    """The operation stays submitted: the other ranks must be able to complete it."""
    if R == 0:
        interrupted(hvd.add_process_set, [0, 1])
    hvd.allreduce(torch.ones(1), name="rank 0 was interrupted")
    if R > 0:
        hvd.add_process_set([0, 1])
    hvd.barrier()


@check
def a_new_world_knows_no_old_sets():
    hvd.barrier()  # another rank may be at work in a set without this one
    hvd.shutdown()
    hvd.init()
    assert FIRST.process_set_id is None and REST.process_set_id is None
    words = ["has not been registered"]
    expect_error(ValueError, words, hvd.allreduce, torch.ones(1), process_set=MINE)
    hvd.add_process_set(FIRST)
    assert FIRST.process_set_id is not None


main(R)
