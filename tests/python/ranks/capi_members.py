# SPDX-License-Identifier: Apache-2.0
"""Who takes part, by the C API: groups, process sets, join, disagreements, refused arguments."""

import itertools
import random

import capi
import numpy as np
from capi import (
    ADASUM,
    AVERAGE,
    INVALID_ARGUMENT,
    MAX,
    SUM,
    Failed,
    Op,
    check,
    run,
    set_add,
    set_ids,
    set_ranks,
    set_remove,
)
from checks import main
from exact import reduced, same, share, values

capi.init()
R, N = capi.rank(), capi.size()
EVERYONE = list(range(N))


def refused(words, function, *args, status=INVALID_ARGUMENT, **options):
    """function must fail with this status and all words in its sentence; returns the sentence."""
    try:
        function(*args, **options)
    except Failed as e:
        missing = [w for w in words if w not in str(e)]
        assert not missing, f"lacks {missing}: {e}"
        assert e.status == status, f"status {e.status}: {e}"
        return str(e)
    raise AssertionError(f"nothing was refused; expected {words}")


def barrier(process_set=0):
    run("barrier", process_set=process_set)


def the_world_goes_on():
    assert run("allreduce", np.full(3, R + 1.0)).tolist() == [N * (N + 1) / 2] * 3


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
    the_world_goes_on()
    capi.shutdown()
    refused(["hvd_config, set 1", "rank 99 is not in the world"], capi.init, sets=[[99]])
    capi.shutdown()
    capi.init()
    assert set_ids() == [0]
    the_world_goes_on()


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


@check
def ids_are_not_used_again():
    if N == 1:
        return
    first = set_add([0])
    set_remove(first)
    second = set_add([0])
    assert second == first + 1, (first, second)
    refused([f"process set {first} does not exist"], set_remove, first)
    refused([f"process set {first} does not exist"], run, "allreduce", np.ones(1), process_set=first)
    refused(
        [f"process set {first} does not exist"], lambda: capi.must(capi.lib.hvd_process_set_size(first))
    )
    refused([f"process set {first} does not exist"], set_ranks, first)
    set_remove(second)


@check
def bad_sets_are_refused():
    refused(["0 ranks"], set_add, [])
    refused([f"rank {N} is not in the world of {N}"], set_add, [N])
    refused(["rank -1 is not in the world"], set_add, [-1])
    if N > 1:
        refused(["rank 0 is in it twice"], set_add, [0, 0])
    refused(["process set 0 is the world"], set_remove, 0)
    refused(["process set -3 does not exist"], set_remove, -3)
    refused(["process set 12345 does not exist"], set_remove, 12345)
    the_world_goes_on()


def set_ops(ranks, id_, round_):
    """One operation of each kind in a set: (start, check) pairs for its members."""
    n, me = len(ranks), ranks.index(R)
    root = ranks[round_ % n]
    shape = (4 * n + round_ % 3, 2)
    every = [values(shape, "float32", r, SUM, id_ + round_) for r in ranks]
    x = every[me]
    total, bound = reduced(every, "float32", SUM)
    mean, mean_bound = reduced(every, "float32", AVERAGE)
    rows = [[(a + 2 * b + round_) % 4 for b in range(n)] for a in range(n)]
    sent = [values((sum(rows[a]), 3), "int64", ranks[a]) for a in range(n)]
    received = np.concatenate([sent[a][sum(rows[a][:me]) : sum(rows[a][: me + 1])] for a in range(n)])
    begin, end = share(shape[0], n, me)
    options = {"process_set": id_}

    def equals(expected):
        def verify(got):
            assert np.array_equal(got, expected), f"set {ranks}: {got} is not {expected}"

        return verify

    def near(expected, off):
        return lambda got: same(got, expected, off, "float32", f"set {ranks}")

    everything = np.concatenate(every)
    table = {
        "allreduce": (x, {}, near(total, bound)),
        "allreduce.average": (x, {"op": AVERAGE}, near(mean, mean_bound)),
        "broadcast": (x, {"root": root}, equals(every[ranks.index(root)])),
        "allgather": (x, {}, equals(everything)),
        "gather": (x, {"root": root}, equals(everything if root == R else everything[:0])),
        "reduce": (
            x,
            {"root": root},
            near(total, bound) if root == R else equals(np.full(shape, 77, np.float32)),
        ),
        "reducescatter": (x, {}, near(total[begin:end], bound[begin:end])),
        "alltoall": (sent[me], {"splits": rows[me]}, equals(received)),
        "barrier": (None, {}, lambda _: None),
    }
    for kind, (array, more, verify) in table.items():

        def start(kind=kind, array=array, more=more):
            return Op(kind.split(".")[0], array, name=f"{id_}.{round_}.{kind}", **options, **more)

        yield start, verify


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
    the_world_goes_on()


@check
def a_rank_outside_is_refused():
    if N == 1:
        return
    id_ = set_add([0])
    x = np.ones((2, 2), np.float32)
    for kind in (
        "allreduce",
        "allgather",
        "broadcast",
        "reduce",
        "gather",
        "reducescatter",
        "alltoall",
        "barrier",
    ):
        if R == 0:
            run(kind, None if kind == "barrier" else x, process_set=id_)
        else:
            refused([f"this rank is not in process set {id_}"], run, kind, x, process_set=id_)
    set_remove(id_)


@check
def equal_names_in_different_sets_do_not_meet():
    if N == 1:
        return
    low, high = set_add([0]), set_add([N - 1])
    mine = low if R == 0 else high
    if R in (0, N - 1):
        for i in range(20):
            x = np.full(3 if R == 0 else 5, R + i, np.float32 if R == 0 else np.int32)
            assert np.array_equal(run("allreduce", x, name="x", process_set=mine), x)
    set_remove(high)
    set_remove(low)


@check
def roots_are_global_ranks_and_must_be_members():
    if N < 3:
        return
    id_ = set_add([1, 2])
    if R in (1, 2):
        x = np.full(3, R, np.int32)
        assert run("broadcast", x, root=2, process_set=id_).tolist() == [2] * 3
        for kind in ("broadcast", "reduce", "gather"):
            refused(["root", "0", f"{id_}"], run, kind, x, root=0, name=f"bad.{kind}", process_set=id_)
        assert run("broadcast", x, root=1, process_set=id_).tolist() == [1] * 3
    set_remove(id_)
    for kind in ("broadcast", "reduce", "gather"):
        refused(["root", f"{N}"], run, kind, np.ones(2), root=N, name=f"far.{kind}")
    refused(["root_rank -1"], run, "broadcast", np.ones(2), root=-1)


@check
def a_removal_waits_for_what_is_pending():
    if N < 2:
        return
    id_ = set_add([0, 1]) if N > 2 else None
    options = {} if id_ is None else {"process_set": id_}
    op = None
    if R == 0:
        op = Op("allreduce", np.ones(5), name="last words", **options)
    barrier()
    if R == 1:
        op = Op("allreduce", np.ones(5), name="last words", **options)
    if id_ is not None:
        set_remove(id_)
        assert id_ not in set_ids()
    if op:
        assert op.wait().tolist() == [2.0] * 5


@check
def ranks_that_disagree_about_a_set_are_named():
    if N == 1:
        return
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
    assert other == id_ + 1
    refused(["Mismatched", "rank 0"], set_remove, id_ if R == 0 else other)
    set_remove(other)
    set_remove(id_)
    assert set_ids() == before


@check
def sets_come_and_go_many_times():
    if N == 1:
        return
    for i in range(25):
        id_ = set_add([i % N, (i + 1) % N] if N > 2 else [i % N])
        ranks = set_ranks(id_)
        if R in ranks:
            total = run("allreduce", np.full(10, R), name="cycle", process_set=id_)
            assert total.tolist() == [sum(ranks)] * 10
        set_remove(id_)
    the_world_goes_on()


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
    assert unknown == INVALID_ARGUMENT
    if N > 1:
        assert status == INVALID_ARGUMENT and b"inside a callback" in text, text


def run_with_callback(function):
    t = capi.Tensor(size_bytes=capi.c.sizeof(capi.Tensor), name=b"with.callback", device=-1)
    t.done = capi.DONE(function)
    h = capi.c.c_int64()
    capi.must(capi.lib.hvd_barrier_async(capi.c.byref(t), 0, capi.c.byref(h)))
    capi.must(capi.lib.hvd_wait(h, capi.WAIT_MS))
    capi.must(capi.lib.hvd_release(h))


# --- groups ---


def group_parts(name):
    x = values((50, 3), "float32", R)
    yield Op, ("allreduce", x), {"name": f"{name}.a"}
    yield Op, ("allreduce", np.full(9, R, np.int32)), {"name": f"{name}.b", "op": MAX}
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
            barrier()  # everyone has submitted what there is, and had time to do it
        ended = [i for i, op in ops.items() if op.poll() != capi.IN_PROGRESS]
        assert not ended, f"step {step}: {ended} of the group ended before {kept} was submitted"
        barrier()
        if late == R:
            make, args, options = parts[kept]
            ops[kept] = make(*args, **options, group="all or none", group_size=len(parts))
        verify_group([ops[i].wait() for i in range(len(parts))])


@check
def groups_travel_beside_each_other_in_any_order():
    mine = random.Random(R + 100)
    for _ in range(5):
        todo = [(g, *part) for g in range(4) for part in group_parts(f"beside.{g}")]
        mine.shuffle(todo)
        ops = {}
        for g, make, args, options in todo:
            ops[options["name"]] = make(*args, **options, group=f"group {g}", group_size=5)
        for g in range(4):
            verify_group([ops[f"beside.{g}.{letter}"].wait() for letter in "abcde"])


@check
def a_group_of_a_set_is_the_sets_own():
    if N < 3:
        return
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


@check
def ranks_that_disagree_about_a_group_are_named():
    if N == 1:
        return
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
    the_world_goes_on()


# --- join ---


def joined_sum(step, steps, dtype="float32"):
    """What the ranks that have data at this step give together; the others give zeros."""
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
        the_world_goes_on()


@check
def fused_and_grouped_tensors_go_on_with_joined_ranks():
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


@check
def other_collectives_fail_while_a_rank_has_joined():
    if N == 1:
        return
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


@check
def sets_go_on_beside_a_join():
    if N < 3:
        return
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


# --- disagreements ---


def disagreements():
    """(name, rank 0's call, the others' call, words): calls are (kind, array, options)."""
    x = np.ones((4, 3), np.float32)
    yield "dtype", ("allreduce", x), ("allreduce", x.astype(np.int64)), ["float32", "int64"]
    yield "shape", ("allreduce", x), ("allreduce", np.ones((4, 2), np.float32)), ["[4, 3]", "[4, 2]"]
    yield (
        "dimensions",
        ("allreduce", x),
        ("allreduce", x.ravel()),
        ["[4, 3]", "[12]", "the number of dimensions differs"],
    )
    yield "op", ("allreduce", x, {"op": MAX}), ("allreduce", x), ["MAX", "SUM"]
    yield "scales", ("allreduce", x, {"prescale": 2.0}), ("allreduce", x), ["prescale", "2", "1"]
    yield "kind", ("allreduce", x), ("allgather", x), ["ALLREDUCE", "ALLGATHER"]
    yield "kind2", ("reduce", x), ("allreduce", x), ["REDUCE", "ALLREDUCE"]
    yield (
        "root",
        ("broadcast", x, {"root": 0}),
        ("broadcast", x, {"root": 1}),
        ["root rank 0", "root rank 1"],
    )
    yield "root2", ("reduce", x, {"root": 1}), ("reduce", x), ["root rank 1", "root rank 0"]
    yield "root3", ("gather", x, {"root": 1}), ("gather", x), ["root rank 1", "root rank 0"]
    yield "reduce.op", ("reduce", x, {"op": MAX}), ("reduce", x), ["MAX", "SUM"]
    yield "gathered", ("allgather", x), ("allgather", np.ones((2, 5), np.float32)), ["[4, 3]", "[2, 5]"]
    yield "gathered2", ("gather", x), ("gather", np.ones((2, 5), np.float32)), ["[4, 3]", "[2, 5]"]
    yield "gathered.dtype", ("allgather", x), ("allgather", x.astype(bool)), ["float32", "bool"]
    sent = np.ones((2 * N, 3), np.float32)
    yield (
        "exchanged",
        ("alltoall", sent),
        ("alltoall", sent[:, :2].copy()),
        [f"[{2 * N}, 3]", f"[{2 * N}, 2]"],
    )
    yield "exchanged.dtype", ("alltoall", sent), ("alltoall", sent.astype(np.uint8)), ["float32", "uint8"]
    yield "scattered", ("reducescatter", x), ("reducescatter", x[:3].copy()), ["[4, 3]", "[3, 3]"]
    yield "scattered.op", ("reducescatter", x), ("reducescatter", x, {"op": AVERAGE}), ["SUM", "AVERAGE"]
    yield "scattered.dtype", ("reducescatter", x), ("reducescatter", x.astype(np.int8)), ["float32", "int8"]


@check
def a_disagreement_fails_on_all_ranks_naming_both():
    if N == 1:
        return
    for name, first, others, words in disagreements():
        kind, array, *options = first if R == 0 else others
        text = refused(
            ["Mismatched", f'"bad.{name}"', "rank 0 has", *words],
            run,
            kind,
            array,
            name=f"bad.{name}",
            **(options[0] if options else {}),
        )
        assert any(f"rank {r} has" in text for r in range(1, N)), text
        the_world_goes_on()


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
        refused(["int32", "ADASUM", "not supported"], run, kind, np.ones(3, np.int32), op=ADASUM)
        refused(["op 6 is not in 0 to 5"], run, kind, x, op=6)
    refused(["ADASUM", "not supported"], run, "reducescatter", x, op=ADASUM)
    refused(["names that begin with hvd://"], run, "allreduce", x, name="hvd://process_set")
    refused(["must have 1 to 511 bytes"], run, "allreduce", x, name="n" * 512)
    assert run("allreduce", x, name="n" * 511)[0, 0] == N
    refused(["group_size 0"], run, "allreduce", x, group="g")
    refused(["group", "1 to 511 bytes"], run, "allreduce", x, group="", group_size=1)
    refused(["process set -1 does not exist"], run, "allreduce", x, process_set=-1)
    refused(["process set 4711 does not exist"], run, "barrier", process_set=4711)
    the_world_goes_on()


@check
def only_what_has_ended_tells_its_splits():
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
                ["has not ended"], lambda: capi.must(capi.lib.hvd_received_splits(late.handle, splits, 8))
            )
        barrier()
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
    the_world_goes_on()


main(R)
