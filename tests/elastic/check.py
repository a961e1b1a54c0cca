#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py DIR: no sample of an elastic training was lost or used twice, by its record (record.py).

Which steps count. A step can have been tried several times: by a world whose rank died in it, then by the
next world. Some ranks may have finished the attempt, and even saved it, and others not. What decides is
the state from which the next world started: rank 0's, sent to all. So, with the worlds in order and
base(w) the step after which world w started:

    The attempt of step s in world w is committed when s > base(w), and s <= base(v) for every later world
    v, and s <= the last step of the end line.

That is: the last writer wins, and a world that started from an older state has undone the steps since.
All ranks write their samples before the step's collective, so the record of a committed attempt is
complete also where ranks were killed in it: the samples of a rank that died after the collective are in
the model.

What must hold:
 - all ranks of a world start it from the same epoch and step, and are ranks 0 to size - 1
 - a committed attempt has the line of each rank of its world, once, all of one epoch
 - the committed steps are 1 to the last one, each in one world
 - one process at least has saved each of them in that world; else a world has carried over what no process
   had committed
 - in each epoch each sample is in exactly one committed step
 - the last world has written one end line

Exit status: 0 all of it holds, 1 it does not, 2 wrong usage.
"""

import argparse
import collections
import sys

from record import Reader

SHOWN = 20  # samples of one complaint


class Run:
    """The lines of all processes, sorted out."""

    def __init__(self, lines):
        self.worlds = {}  # world: {(size, epoch, step)}
        self.ranks = collections.defaultdict(list)  # world: ranks, as often as they said so
        self.tries = collections.defaultdict(list)  # (world, step): [(epoch, rank, samples)]
        self.saves = collections.defaultdict(set)  # step: worlds in which it was saved
        self.ends = []  # [(epochs, step, samples, digest)]
        self.problems = []
        before = {}
        for name, line in lines:
            self._take(name, line[0], line[2:], before)

    def _take(self, name, kind, values, before):
        if kind == "world":
            world, size, rank, epoch, step = values
            self.worlds.setdefault(world, set()).add((size, epoch, step))
            self.ranks[world].append(rank)
            before[name] = step
        elif kind == "try":
            world, epoch, step, rank, samples = values
            self.tries[world, step].append((epoch, rank, samples))
        elif kind == "save":
            world, step = values
            for s in range(before.get(name, 0) + 1, step + 1):
                self.saves[s].add(world)
            before[name] = step
        elif kind == "end":
            self.ends.append(tuple(values))
        elif kind != "process":
            self.problems.append(f"{name}: a line of unknown kind {kind}")


def intervals(run):
    """[(world, first step, last step)] that are committed, in order; complaints go to run.problems."""
    bases, problems = {}, run.problems
    for world in sorted(run.worlds):
        said = run.worlds[world]
        if len(said) > 1:
            problems.append(
                f"world {world}: its ranks start it with different (size, epoch, step): {sorted(said)}"
            )
        size, _, step = min(said)
        bases[world] = step
        ranks = sorted(run.ranks[world])
        if any(ranks.count(r) > 1 for r in ranks) or not set(ranks) <= set(range(size)):
            problems.append(f"world {world} of {size} ranks: its processes are ranks {ranks}")
    if len(run.ends) != 1:
        problems.append(f"{len(run.ends)} end lines, not 1: the training has not ended, or not once")
    limit = min((end[1] for end in run.ends), default=0)
    found = []
    for world in sorted(bases, reverse=True):
        if bases[world] < limit:
            found.append((world, bases[world] + 1, limit))
        limit = min(limit, bases[world])
    if limit > 0:
        problems.append(f"no world started from the beginning: steps 1 to {limit} are in no world")
    return found[::-1]


def samples_of(run, world, step):
    """(epoch, samples) of a committed step."""
    size = min(run.worlds[world])[0]
    lines = sorted(run.tries.get((world, step), ()))
    ranks, epochs = [rank for _, rank, _ in lines], {epoch for epoch, _, _ in lines}
    if sorted(ranks) != list(range(size)):
        run.problems.append(f"step {step} of world {world}: lines of ranks {ranks}, of {size} ranks")
    if len(epochs) > 1:
        run.problems.append(f"step {step} of world {world}: its ranks are in epochs {sorted(epochs)}")
    if world not in run.saves.get(step, ()):
        run.problems.append(
            f"step {step} of world {world} is in the model, but no process has committed it"
        )
    return min(epochs, default=None), [x for _, _, samples in lines for x in samples]


def few(samples):
    text = ", ".join(map(str, samples[:SHOWN]))
    return text + (f" and {len(samples) - SHOWN} more" if len(samples) > SHOWN else "")


def check_epoch(epoch, used, n_samples):
    """used: {sample: [step]}. Yields what is wrong."""
    lost = [x for x in range(n_samples) if x not in used]
    if lost:
        yield f"epoch {epoch}: {len(lost)} of {n_samples} samples are lost: {few(lost)}"
    twice = [
        f"{x} (steps {', '.join(map(str, steps))})" for x, steps in sorted(used.items()) if len(steps) > 1
    ]
    if twice:
        yield f"epoch {epoch}: {len(twice)} samples are used more than once: {few(twice)}"
    strange = sorted(x for x in used if not 0 <= x < n_samples)
    if strange:
        yield f"epoch {epoch}: not samples of the data set: {few(strange)}"


def check(lines):
    """[what is wrong] with the record, empty when nothing is. lines: [(file name, line)]"""
    run = Run(lines)
    committed = intervals(run)
    used = collections.defaultdict(lambda: collections.defaultdict(list))
    for world, first, last in committed:
        for step in range(first, last + 1):
            epoch, samples = samples_of(run, world, step)
            for x in samples:
                used[epoch][x].append(step)
    for epochs, _, n_samples, _ in run.ends[:1]:
        run.problems += [
            f"epoch {e}: beyond the last one, {epochs - 1}" for e in used if e not in range(epochs)
        ]
        for epoch in range(epochs):
            run.problems += check_epoch(epoch, used[epoch], n_samples)
    return run.problems


def summary(lines):
    """{worlds, sizes, processes, tried, epochs, steps, undone, digest} of a record, for reports."""
    run = Run(lines)
    end = run.ends[0] if run.ends else (0, 0, 0, "")
    return {
        "worlds": len(run.worlds),
        "sizes": [min(run.worlds[w])[0] for w in sorted(run.worlds)],
        "processes": len({name for name, _ in lines}),
        "tried": len(run.tries),
        "epochs": end[0],
        "steps": end[1],
        "undone": undone(run),
        "digest": end[3],
    }


def undone(run):
    """[(world, steps that some process had committed and that the world did not start from)], none of 0."""
    saved = collections.defaultdict(int)  # world: its last step
    for step, worlds in run.saves.items():
        for world in worlds:
            saved[world] = max(saved[world], step)
    found, last = [], 0
    for world in sorted(run.worlds):
        base = min(run.worlds[world])[2]
        if base < last:
            found.append((world, last - base))
        last = max(base, saved[world])
    return found


def main():
    parser = argparse.ArgumentParser(description="Checks the record of an elastic training (record.py).")
    parser.add_argument("records", metavar="DIR")
    folder = parser.parse_args().records
    lines = Reader(folder).lines()
    if not lines:
        sys.exit(f"check.py: {folder} has no records")
    problems = check(lines)
    for text in problems:
        print(f"check.py: {text}")
    of = summary(lines)
    print(
        f"check.py: {of['epochs']} epochs, {of['steps']} steps of {of['tried']} tried, "
        f"{of['worlds']} worlds, {of['processes']} processes, {len(problems)} problems"
    )
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
