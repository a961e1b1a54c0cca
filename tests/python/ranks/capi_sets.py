# SPDX-License-Identifier: Apache-2.0
"""Process sets by the C API: static and dynamic, overlapping, removed and recreated, with ranks that
disagree."""

import itertools
import random

import capi
import numpy as np
from capi import SUM, Op, refused, run, set_add, set_ids, set_ranks, set_remove, the_world_still_works
from checks import check, check_if, main
from exact import outcome, same, values

capi.init()
R, N = capi.rank(), capi.size()
EVERYONE = list(range(N))


# --- static sets ---


@check
def sets_of_the_config_are_there_after_init():
    capi.shutdown()
    wanted = [[0], [N - 1]] if N > 1 else []
    wanted += [[N - 1, 0]] if N > 2 else []
    capi.init(sets=wanted)
    assert set_ids() == list(range(len(wanted) + 1))
    for i, ranks in enumerate(wanted):
        assert set_ranks(i + 1) == sorted(ranks)
        if R in ranks:
            assert run("allreduce", np.ones(2), process_set=i + 1).tolist() == [len(ranks)] * 2
    the_world_still_works()
    capi.shutdown()
    refused(["hvd_config, set 1", "rank 99 is not in the world"], capi.init, sets=[[99]])
    capi.shutdown()
    capi.init()
    assert set_ids() == [0]
    the_world_still_works()


# --- process sets ---


def subsets():
    """All sets of ranks but the empty one and the world."""
    for n in range(1, N):
        yield from itertools.combinations(EVERYONE, n)


@check
def a_set_knows_its_members():
    ids = {ranks: set_add(list(reversed(ranks))) for ranks in subsets()}
    assert list(ids.values()) == list(
        range(min(ids.values(), default=0), min(ids.values(), default=0) + len(ids))
    )
    assert set_ids() == [0, *ids.values()]
    for ranks, id_ in ids.items():
        assert capi.lib.hvd_process_set_size(id_) == len(ranks)
        assert capi.lib.hvd_process_set_rank(id_) == (ranks.index(R) if R in ranks else -1)
        assert set_ranks(id_) == list(ranks)
    assert set_ranks(0) == EVERYONE
    for ranks in ids:
        refused(["process set containing the same ranks already exists"], set_add, ranks)
    refused(["same ranks already exists", "process set 0"], set_add, EVERYONE)
    for id_ in ids.values():
        set_remove(id_)
    assert set_ids() == [0]


def set_ops(ranks, id_, round_):
    """One operation of each kind in a set: (start, check) pairs for its members."""
    n, me = len(ranks), ranks.index(R)
    root = ranks[round_ % n]
    rows = [values((4 * n + round_ % 3, 2), "float32", r, SUM, id_ + round_) for r in ranks]
    splits = [[(a + 2 * b + round_) % 4 for b in range(n)] for a in range(n)]
    sent = [values((sum(splits[a]), 3), "int64", ranks[a]) for a in range(n)]
    kinds = [(kind, rows, {}) for kind in ("allreduce", "allgather", "reducescatter")]
    kinds += [(kind, rows, {"root": root}) for kind in ("broadcast", "gather", "reduce")]
    kinds += [("allreduce", rows, {"op": capi.AVERAGE}), ("alltoall", sent, {"splits": splits[me]})]
    for i, (kind, inputs, options) in enumerate(kinds):

        def start(i=i, kind=kind, x=inputs[me], options=options):
            return Op(kind, x, name=f"{id_}.{round_}.{i}", process_set=id_, **options)

        def verify(got, kind=kind, inputs=inputs, options=options):
            dtype, op = inputs[me].dtype.name, options.get("op", SUM)
            expected = outcome(kind, inputs, dtype, me, op, ranks.index(root), splits)
            same(got, *expected, dtype, f"{kind} in set {ranks}")

        yield start, verify
    yield lambda: Op("barrier", name=f"{id_}.{round_}.barrier", process_set=id_), lambda _: None


@check
def overlapping_sets_work_beside_each_other_in_any_order():
    sets = [(ranks, set_add(ranks)) for ranks in subsets()]
    sets.append((tuple(EVERYONE), 0))
    mine = random.Random(R)
    for round_ in range(6):
        todo = [pair for ranks, id_ in sets if R in ranks for pair in set_ops(ranks, id_, round_)]
        mine.shuffle(todo)
        under_way = [(start(), verify) for start, verify in todo]
        mine.shuffle(under_way)
        for op, verify in under_way:
            verify(op.wait())
    for _, id_ in sets[:-1]:
        set_remove(id_)
    the_world_still_works()


@check_if(N > 1)
def a_rank_outside_is_refused():
    id_ = set_add([0])
    x = np.ones((2, 2), np.float32)
    for kind in capi.KINDS:
        if R == 0:
            run(kind, None if kind == "barrier" else x, process_set=id_)
        else:
            refused([f"this rank is not in process set {id_ % 4096}"], run, kind, x, process_set=id_)
    set_remove(id_)


@check_if(N > 1)
def equal_names_in_different_sets_do_not_meet():
    low, high = set_add([0]), set_add([N - 1])
    mine = low if R == 0 else high
    if R in (0, N - 1):
        for i in range(20):
            x = np.full(3 if R == 0 else 5, R + i, np.float32 if R == 0 else np.int32)
            assert np.array_equal(run("allreduce", x, name="x", process_set=mine), x)
    set_remove(high)
    set_remove(low)


@check_if(N > 2)
def roots_are_global_ranks_and_must_be_members():
    id_ = set_add([1, 2])
    if R in (1, 2):
        x = np.full(3, R, np.int32)
        assert run("broadcast", x, root=2, process_set=id_).tolist() == [2] * 3
        for kind in ("broadcast", "reduce", "gather"):
            refused(
                ["root", "0", f"process set {id_ % 4096}"],
                run,
                kind,
                x,
                root=0,
                name=f"bad.{kind}",
                process_set=id_,
            )
        assert run("broadcast", x, root=1, process_set=id_).tolist() == [1] * 3
    set_remove(id_)
    for kind in ("broadcast", "reduce", "gather"):
        refused(["root", f"{N}"], run, kind, np.ones(2), root=N, name=f"far.{kind}")
    refused(["root_rank -1"], run, "broadcast", np.ones(2), root=-1)


@check_if(N > 1)
def a_removal_waits_for_what_is_pending():
    id_ = set_add([0, 1]) if N > 2 else None
    options = {} if id_ is None else {"process_set": id_}
    op = None
    if R == 0:
        op = Op("allreduce", np.ones(5), name="last words", **options)
    run("barrier")
    if R == 1:
        op = Op("allreduce", np.ones(5), name="last words", **options)
    if id_ is not None:
        set_remove(id_)
        assert id_ not in set_ids()
    if op:
        assert op.wait().tolist() == [2.0] * 5


@check_if(N > 1)
def ranks_that_disagree_about_a_set_are_named():
    before = set_ids()
    ranks = [0] if R == 0 else [N - 1]
    refused(["Mismatched", "rank 0"], set_add, ranks)
    assert set_ids() == before
    id_ = set_add([0])
    if R == 0:
        refused(["Mismatched", "rank 0", "PROCESS_SET_ADD", "PROCESS_SET_REMOVE"], set_add, [N - 1])
    else:
        refused(["Mismatched", "rank 0", "PROCESS_SET_ADD", "PROCESS_SET_REMOVE"], set_remove, id_)
    other = set_add([N - 1])
    assert sorted(set_ids()) == sorted([*before, id_, other])
    refused(["Mismatched", "rank 0"], set_remove, id_ if R == 0 else other)
    set_remove(other)
    set_remove(id_)
    assert set_ids() == before


@check
def a_set_is_not_changed_inside_a_callback():
    said = []

    def done(_, status, text):
        said.append((capi.lib.hvd_process_set_remove(77), capi.lib.hvd_last_error()))
        ranks = (capi.c.c_int * 1)(N - 1)
        said.append(
            (
                capi.lib.hvd_process_set_add(ranks, 1, capi.c.byref(capi.c.c_int())),
                capi.lib.hvd_last_error(),
            )
        )

    run_with_callback(done)
    (unknown, _), (status, text) = said
    assert unknown == capi.INVALID_ARGUMENT
    if N > 1:
        assert status == capi.INVALID_ARGUMENT and b"inside a callback" in text, text


def run_with_callback(function):
    t = capi.Tensor(size_bytes=capi.c.sizeof(capi.Tensor), name=b"with.callback", device=-1)
    t.done = capi.DONE(function)
    h = capi.c.c_int64()
    capi.must(capi.lib.hvd_barrier_async(capi.c.byref(t), 0, capi.c.byref(h)))
    capi.must(capi.lib.hvd_wait(h, capi.WAIT_MS))
    capi.must(capi.lib.hvd_release(h))


main(R)
