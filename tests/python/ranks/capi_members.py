# SPDX-License-Identifier: Apache-2.0
"""Who takes part, by the C API: groups, join, disagreements, refused arguments."""

import itertools

import capi
import numpy as np
from capi import AVERAGE, SUM, Op, refused, run, set_add, set_ranks, set_remove, the_world_still_works
from checks import check, check_if, main
from exact import reduced, same, values

capi.init()
R, N = capi.rank(), capi.size()
EVERYONE = list(range(N))


# --- groups ---


def group_parts(name):
    x = values((50, 3), "float32", R)
    yield Op, ("allreduce", x), {"name": f"{name}.a"}
    yield Op, ("allreduce", np.full(9, R, np.int32)), {"name": f"{name}.b", "op": capi.MAX}
    yield Op, ("allgather", np.full(R + 1, R, np.int8)), {"name": f"{name}.c"}
    yield Op, ("reducescatter", np.full(2 * N, R, np.int64)), {"name": f"{name}.d"}
    yield Op, ("allreduce", x.astype(np.float64)), {"name": f"{name}.e"}


def verify_group(results):
    a, b, c, d, e = results
    every = [values((50, 3), "float32", r) for r in EVERYONE]
    same(a, *reduced(every, "float32", SUM), "float32", "group")
    assert b.tolist() == [N - 1] * 9
    assert c.tolist() == [r for r in EVERYONE for _ in range(r + 1)]
    assert d.tolist() == [sum(EVERYONE)] * 2
    same(e, *reduced([x.astype(np.float64) for x in every], "float64", SUM), "float64", "group")


@check
def a_group_travels_all_or_none():
    for late, step in itertools.product({0, N - 1}, range(4)):  # again and again: also once it is known
        parts = list(group_parts("all"))
        kept = (step + late) % len(parts)
        ops = {}
        for i, (make, args, options) in enumerate(parts):
            if late != R or i != kept:
                ops[i] = make(*args, **options, group="all or none", group_size=len(parts))
        for _ in range(3):
            run("barrier")  # everyone has submitted what there is, and had time to do it
        ended = [i for i, op in ops.items() if op.poll() != capi.IN_PROGRESS]
        assert not ended, f"step {step}: {ended} of the group ended before {kept} was submitted"
        run("barrier")
        if late == R:
            make, args, options = parts[kept]
            ops[kept] = make(*args, **options, group="all or none", group_size=len(parts))
        verify_group([ops[i].wait() for i in range(len(parts))])


@check_if(N > 2)
def a_group_of_a_set_is_the_sets_own():
    ids = [set_add([0, 1]), set_add([1, 2])]
    ops = []
    for id_ in ids if R % 2 else ids[::-1]:
        if R in set_ranks(id_):
            for letter in "ab":
                x = np.full(4, R, np.float32)
                name = f"{id_}.{letter}"
                ops.append((id_, Op("allreduce", x, name=name, process_set=id_, group="g", group_size=2)))
    for id_, op in ops:
        assert op.wait().tolist() == [sum(set_ranks(id_))] * 4
    for id_ in ids:
        set_remove(id_)


@check_if(N > 1)
def ranks_that_disagree_about_a_group_are_named():
    x = np.ones(3)
    a = Op("allreduce", x, name="disagree.a", group="g", group_size=2 if R == 0 else 3)
    b = Op("allreduce", x, name="disagree.b", group="g", group_size=2 if R == 0 else 3)
    c = Op("allreduce", x, name="disagree.c", group="g", group_size=3) if R != 0 else None
    del c  # rank 0 never has it: it fails with its group
    for op in (a, b):
        refused(["group", "rank 0"], op.wait)
    if R == 0:
        the_rest = Op("allreduce", x, name="disagree.c")
        refused(["rank 0"], the_rest.wait)
    the_world_still_works()


# --- join ---


def joined_sum(step, steps, dtype="float32"):
    """The sum of the ranks with data at this step; the other ranks contribute zeros."""
    every = [values((100,), dtype, r, SUM, step) for r in EVERYONE]
    return [x if steps[r] > step else np.zeros_like(x) for r, x in enumerate(every)]


@check
def joined_ranks_take_part_with_zeros():
    for round_ in range(3):
        steps = [3 * r + (r == N - 1) + round_ for r in EVERYONE]
        for step in range(steps[R]):
            for dtype, op in (("float32", SUM), ("float64", AVERAGE), ("int32", SUM)):
                x = values((100,), dtype, R, SUM, step)
                got = run("allreduce", x, name=f"uneven.{dtype}.{op}", op=op)
                out, bound = reduced(joined_sum(step, steps, dtype), dtype, op)
                same(got, out, bound, dtype, f"round {round_} step {step}")
        last = run("join", name="join")
        assert last == N - 1, f"round {round_}: the last to join was {N - 1}, not {last}"
        the_world_still_works()


@check
def fused_and_grouped_tensors_work_with_joined_ranks():
    steps = [4 * (r + 1) for r in EVERYONE]
    for step in range(steps[R]):
        ops = []
        for i in range(6):
            x = values((100,), "float32", R, SUM, step)
            group = {"group": "joined", "group_size": 3} if i < 3 else {}
            ops.append(Op("allreduce", x, name=f"many.{i}", **group))
        out, bound = reduced(joined_sum(step, steps), "float32", SUM)
        for op in ops:
            same(op.wait(), out, bound, "float32", f"step {step}")
    assert run("join", name="join") == N - 1


@check_if(N > 1)
def other_collectives_fail_while_a_rank_has_joined():
    if R > 0:
        assert (
            run("allreduce", np.ones(2), name="with.joined").tolist() == [N - 1] * 2
        )  # rank 0 has joined by now
        x = np.ones((2, 2))
        for kind in ("allgather", "broadcast", "reducescatter", "alltoall", "gather"):
            options = {"splits": [2] + [0] * (N - 1)} if kind == "alltoall" else {}
            words = [f"{kind.capitalize()} is not supported with Join at this time"]
            refused(words, run, kind, x, name=f"joined.{kind}", root=1, **options)
        assert run("allreduce", np.ones(2), name="with.joined").tolist() == [N - 1] * 2
    join = Op("join", name="join")
    last = join.wait()
    assert 0 < last < N, last
    x = np.full(2, R, np.int32)
    assert run("allgather", x).tolist() == [r for r in EVERYONE for _ in range(2)]


@check_if(N > 2)
def sets_work_during_a_join():
    id_ = set_add([1, 2])
    if R == 0:
        last = run("join", name="join")
    else:
        for _ in range(10):
            if R in (1, 2):
                assert run("allgather", np.full(1, R), name="in.set", process_set=id_).tolist() == [1, 2]
        last = run("join", name="join")
    assert 0 <= last < N
    set_remove(id_)


# --- arguments ---


@check
def bad_arguments_are_refused_at_once():
    x = np.ones((N, 2), np.float32)
    scalar = np.ones((), np.float32)
    for kind in ("allgather", "gather", "alltoall", "reducescatter"):
        refused(["rank-zero tensor", kind.upper()], run, kind, scalar)
    if N > 1:
        odd = np.ones(N + 1, np.float32)
        refused(["splits not provided", f"({N + 1})", f"({N})"], run, "alltoall", odd)
    refused([f"entries in splits ({N + 1})", f"({N})"], run, "alltoall", x, splits=[0] * (N + 1))
    refused(
        [f"sum of splits entries ({N + 3})", f"({N})"], run, "alltoall", x, splits=[N + 3] + [0] * (N - 1)
    )
    refused(["splits[0] is -1", ">= 0"], run, "alltoall", x, splits=[-1] + [0] * (N - 1))
    large = [2**63 - 1] * N
    refused(["sum of splits entries"], run, "alltoall", x, splits=large)
    flags = np.ones(3, bool)
    for kind in ("allreduce", "reduce", "reducescatter"):
        refused(["bool", "AVERAGE", "not supported"], run, kind, flags, op=AVERAGE)
        refused(["int32", "ADASUM", "not supported"], run, kind, np.ones(3, np.int32), op=capi.ADASUM)
        refused(["op 6 is not in 0 to 5"], run, kind, x, op=6)
    refused(["ADASUM", "not supported"], run, "reducescatter", x, op=capi.ADASUM)
    refused(["names that start with hvd://"], run, "allreduce", x, name="hvd://process_set")
    refused(["must have 1 to 511 bytes"], run, "allreduce", x, name="n" * 512)
    assert run("allreduce", x, name="n" * 511)[0, 0] == N
    refused(["group_size 0"], run, "allreduce", x, group="g")
    refused(["group", "1 to 511 bytes"], run, "allreduce", x, group="", group_size=1)
    refused(["process set -1 does not exist"], run, "allreduce", x, process_set=-1)
    refused(["process set 4711 does not exist"], run, "barrier", process_set=4711)
    the_world_still_works()


@check
def only_ended_operations_return_splits():
    t = Op("allreduce", np.ones(1, np.float32))
    splits = (capi.c.c_int64 * 8)()
    refused(["is no ALLTOALL"], lambda: capi.must(capi.lib.hvd_received_splits(t.handle, splits, 8)))
    refused(["is no JOIN"], lambda: capi.must(capi.lib.hvd_joined_last(t.handle)))
    t.wait()
    if N > 1:
        late = None
        if R == 0:
            late = Op("alltoall", np.ones(N, np.float32), name="late")
            refused(
                ["is not complete yet"],
                lambda: capi.must(capi.lib.hvd_received_splits(late.handle, splits, 8)),
            )
        run("barrier")
        (late or Op("alltoall", np.ones(N, np.float32), name="late")).wait()


@check
def older_callers_are_served():
    """A tensor of the version without groups, and a config without sets."""
    t = capi.Tensor(size_bytes=capi.Tensor.group.offset, name=b"old", device=-1)
    x = np.ones(3)
    shape = (capi.c.c_int64 * 1)(3)
    t.data = t.output = x.ctypes.data
    t.dtype, t.ndim, t.shape = capi.DTYPES.index("float64"), 1, shape
    t.group, t.group_size = 1, -5  # beyond its size: never looked at
    h = capi.c.c_int64()
    capi.must(capi.lib.hvd_allreduce_async(capi.c.byref(t), SUM, 1.0, 1.0, 0, capi.c.byref(h)))
    capi.must(capi.lib.hvd_wait(h, capi.WAIT_MS))
    capi.must(capi.lib.hvd_release(h))
    assert x.tolist() == [N] * 3
    t.size_bytes -= 8
    call = capi.lib.hvd_allreduce_async
    refused(["size_bytes"], lambda: capi.must(call(capi.c.byref(t), SUM, 1.0, 1.0, 0, capi.c.byref(h))))
    capi.shutdown()
    config = capi.Config(size_bytes=capi.Config.n_sets.offset, n_sets=-1)
    capi.must(capi.lib.hvd_init(capi.c.byref(config)))
    capi.shutdown()
    config.size_bytes = capi.c.sizeof(config)
    refused(["n_sets: -1"], lambda: capi.must(capi.lib.hvd_init(capi.c.byref(config))))
    capi.init()
    the_world_still_works()


main(R)
