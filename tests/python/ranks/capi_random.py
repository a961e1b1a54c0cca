# SPDX-License-Identifier: Apache-2.0
"""A random training job: steps that repeat, and whatever disturbs them, all of it checked by numpy.

All ranks draw the same script from one seed; what differs (order of submission, order of waiting, when a
rank is late) each draws for itself. The seed is in every message: CAPI_SEED=N runs it again. CAPI_SECONDS=S
(tests/soak) runs it for so long instead of CAPI_STEPS steps; then the memory of no rank may grow.
"""

import itertools
import os
import random
import time

import capi
import numpy as np
from capi import AVERAGE, SUM, Failed, Op, set_add, set_remove, the_world_still_works
from checks import check, main, resident
from exact import outcome, reduced, same, values

STEPS = int(os.environ.get("CAPI_STEPS", "150"))
SEED = int(os.environ.get("CAPI_SEED", "1"))
SECONDS = float(os.environ.get("CAPI_SECONDS", "0"))
GROWTH_MAX = 4 << 20  # from the middle of the time to its end

capi.init()
R, N = capi.rank(), capi.size()
EVERYONE = tuple(range(N))
KINDS = ["allreduce"] * 5 + [*capi.KINDS, "transfer"]
DTYPES = ["float32"] * 3 + ["float16", "bfloat16", "float64", "int32", "uint8"]


class Job:
    """What all ranks know: the tensors of a step, the sets there are."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.sets = {0: EVERYONE}
        self.n = 0
        self.tensors = [self.tensor() for _ in range(12)]

    def tensor(self):
        """A tensor as (name, kind, dtype, rows, columns, set, group); a transfer's set is (from, to)."""
        draw = self.draw
        self.n += 1
        set_ = draw.choice(list(self.sets)) if draw.random() < 0.4 else 0
        rows = draw.choice([0, 1, 3, N, 40, 3000])
        kind = draw.choice(KINDS[: None if N > 1 else -1])
        if kind == "transfer":
            set_ = tuple(draw.sample(EVERYONE, 2))
        return (f"t{self.n}", kind, draw.choice(DTYPES), rows, draw.choice([1, 5]), set_, None)

    def group(self):
        """A few allreduces that go together."""
        size = self.draw.choice([1, 2, 3])
        parts = [list(self.tensor()) for _ in range(size)]
        for part in parts:
            part[1], part[5], part[6] = "allreduce", 0, (f"g{self.n}", size)
        return [tuple(p) for p in parts]

    def disturb(self):
        """Something changes, the same on all ranks."""
        what = self.draw.choice(["new", "gone", "shape", "group", "set", "unset", "nothing", "nothing"])
        if what == "new":
            self.tensors.append(self.tensor())
        elif what == "gone" and len(self.tensors) > 4:
            del self.tensors[self.draw.randrange(len(self.tensors))]
            self.drop_broken_groups()
        elif what == "shape":
            i = self.draw.randrange(len(self.tensors))
            t = list(self.tensors[i])
            t[3] = self.draw.choice([0, 2, 7, 1000])
            self.tensors[i] = tuple(t)
        elif what == "group":
            self.tensors += self.group()
        elif what == "set" and N > 2 and len(self.sets) < 5:
            ranks = tuple(sorted(self.draw.sample(EVERYONE, self.draw.randrange(1, N))))
            if ranks not in self.sets.values():
                self.sets[set_add(ranks)] = ranks
        elif what == "unset" and len(self.sets) > 1:
            id_ = self.draw.choice([i for i in self.sets if i])
            set_remove(id_)
            del self.sets[id_]
            self.tensors = [t for t in self.tensors if t[5] != id_]
        if len(self.tensors) > 30:
            self.tensors = self.tensors[15:]
            self.drop_broken_groups()

    def members(self, tensor):
        """Its ranks; of a transfer who sends first."""
        return tensor[5] if tensor[1] == "transfer" else self.sets[tensor[5]]

    def drop_broken_groups(self):
        there = [t[6] for t in self.tensors if t[6]]
        self.tensors = [t for t in self.tensors if not t[6] or there.count(t[6]) == t[6][1]]


def rows_of(kind, rows, ranks, member, step):
    if kind in ("allgather", "gather"):
        return rows + (member + step // 10) % 3
    if kind == "alltoall":
        return sum(splits(rows, ranks, member))
    return rows


def splits(rows, ranks, member):
    return [(rows + 2 * member + 3 * j) % 4 for j in range(len(ranks))]


def submit(tensor, step, ranks):
    name, kind, dtype, rows, columns, set_, group = tensor
    me = ranks.index(R)
    if kind == "transfer":
        x = values((rows, columns), dtype, ranks[0], AVERAGE, step)
        return Op("recv" if me else "send", x, dtype, name=name, peer=ranks[1 - me])
    if kind == "barrier":
        return Op(kind, name=name, process_set=set_)
    options = {"name": name, "process_set": set_, "root": ranks[step % len(ranks)]}
    if kind == "alltoall":
        options["splits"] = splits(rows, ranks, me)
    if group:
        options["group"], options["group_size"] = group
    shape = (rows_of(kind, rows, ranks, me, step), columns)
    return Op(kind, values(shape, dtype, R, AVERAGE, step), dtype, **options)


def verify(tensor, step, ranks, got):
    _, kind, dtype, rows, columns, *_ = tensor
    if kind == "barrier" or (kind == "transfer" and ranks[0] == R):
        return
    what = f"seed {SEED} step {step} {tensor}"
    me, members = ranks.index(R), range(len(ranks))
    every = [
        values((rows_of(kind, rows, ranks, m, step), columns), dtype, ranks[m], AVERAGE, step)
        for m in members
    ]
    cut = [splits(rows, ranks, m) for m in members]
    kind, root = ("broadcast", 0) if kind == "transfer" else (kind, step % len(ranks))
    same(got, *outcome(kind, every, dtype, me, SUM, root, cut), dtype, what)


def mismatch(step):
    """One tensor on which a rank differs fails everywhere, in the middle of other work."""
    odd = step % N
    x = np.ones(4 if odd == R else 3, np.float32)
    try:
        Op("allreduce", x, name="odd").wait()
    except Failed as e:
        assert "Mismatched" in str(e) and f"rank {odd} has" in str(e), str(e)
        return
    raise AssertionError(f"seed {SEED} step {step}: a mismatch went through")


def joined(job, step):
    """Each rank has its own number of allreduces left, then joins."""
    left = [job.draw.randrange(4) for _ in EVERYONE]
    for i in range(left[R]):
        name = f"left.{i}"
        x = values((50,), "float32", R, SUM, step)
        inputs = [values((50,), "float32", r, SUM, step) * (left[r] > i) for r in EVERYONE]
        got = Op("allreduce", x, name=name).wait()
        same(got, *reduced(inputs, "float32", SUM), "float32", f"seed {SEED} step {step} join {left}")
    last = Op("join", name="join").wait()
    assert left[last] == max(left), f"seed {SEED} step {step}: {last} of {left}"


def compressed(job, step):
    """Small whole numbers, whose sum a codec keeps but for its precision."""
    codec = job.draw.choice(["fp16", "bf16", "int8:feedback=0"])
    every = [((np.arange(997) * 7 + r * 31) * (step | 1) % 17).astype(np.float32) for r in EVERYONE]
    got = Op("allreduce", every[R], name="compressed", compression=codec).wait()
    off = np.abs(got - sum(every)).max()
    assert off <= 0.15 * N, f"seed {SEED} step {step}: {codec} is off by {off}"


def steps():
    """STEPS of them, or as many as SECONDS have by the clock of rank 0."""
    if not SECONDS:
        yield from range(STEPS)
        return
    for dtype in set(DTYPES):
        values((1,), dtype, R, AVERAGE)  # makes its numbers
    began, middle = time.monotonic(), 0
    for step in itertools.count():
        took = time.monotonic() - began
        if not middle and took > SECONDS / 2:
            middle = resident()
        if step % 10 == 0 and Op("broadcast", np.array([took >= SECONDS]), name="over").wait()[0]:
            break
        yield step
    grown = resident() - (middle or resident())
    if R == 0:
        print(f"soak: {took:.0f} s, {step} steps, {grown >> 10} KiB more memory", flush=True)
    assert grown < GROWTH_MAX, f"seed {SEED}: {grown >> 10} KiB more memory on rank {R}"


@check
def a_disturbed_job_stays_right():
    job, mine = Job(SEED), random.Random(SEED * 100 + R)
    for step in steps():
        if step % 7 == 6:
            job.disturb()
        todo = [(t, job.members(t)) for t in job.tensors if R in job.members(t)]
        if mine.random() < 0.3:
            mine.shuffle(todo)
        if mine.random() < 0.1:
            time.sleep(mine.random() * 0.005)  # a late rank
        ops = [(submit(t, step, ranks), t, ranks) for t, ranks in todo]
        if mine.random() < 0.3:
            mine.shuffle(ops)
        for op, t, ranks in ops:
            verify(t, step, ranks, op.wait())
        if N > 1 and step % 31 == 30:
            mismatch(step)
        if step % 43 == 42:
            joined(job, step)
        if step % 13 == 12:
            compressed(job, step)
    the_world_still_works()


main(R)
