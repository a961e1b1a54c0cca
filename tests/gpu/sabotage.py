# SPDX-License-Identifier: Apache-2.0
"""Stage sabotage of run.py: the programs of this folder on fakes that are wrong on purpose, so that they must fail.

No GPU has confirmed the tests so far. This shows at least that each point below can fail, and by what.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import faults
from harness import Bench


class Broken(Bench):
    """A run of its own, with more in the environment of all that it starts; its points are not printed."""

    def __init__(self, bench, label, environment):
        super().__init__(bench.tree, True, bench.out / "sabotage", label)
        self.extra = environment

    def failures(self, function, limit_s):
        """The points of function(self) that failed: (name, error)."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.stage("sabotage", limit_s, function)
        return [(p["name"], p["error"]) for p in self.stages[-1]["points"] if p["error"] is not None]


def conform_nccl(bench):
    words = [bench.tree / "gpu" / "conform_nccl"]
    folder = Path(bench.tmp.name)
    processes = bench.start_ranks(2, [*words, "{rank}", 2, folder])
    for rank, end in enumerate(bench.end_ranks(words, processes, 40)):
        bench.taps(f"nccl, rank {rank} of 2", end, least=30, each=False)


def in_flight(bench):
    faults.in_flight(bench, "in_flight", "killed while kernels wait")


# what is wrong, how, what runs, the point that must fail, and with which words
SABOTAGES = (
    (
        "NCCL forgets an error",
        {"HVD_FAKE_FAULTS": "nccl_forgets_error=1"},
        conform_nccl,
        "nccl, rank 0 of 2: the error stays",
        "",
    ),
    (
        "two calls of a group use one buffer",
        {"RM_SABOTAGE": "one_buffer"},
        conform_nccl,
        "nccl, rank 0 of 2 ran",
        "fake nccl: a group overlaps",
    ),
    (
        "the kernel that spins ends at once",
        {"HVD_FAKE_FAULTS": "spin_ends_early=1"},
        in_flight,
        "killed while kernels wait: kernels waited for it",
        "its kernel has ended",
    ),
    (
        "the kernel that spins ends at once",
        {"HVD_FAKE_FAULTS": "spin_ends_early=1"},
        in_flight,
        "killed while kernels wait: they waited to the end",
        "",
    ),
)


def sabotage(bench):
    seen = {}
    for what, environment, function, point, words in SABOTAGES:
        if what not in seen:
            label = function.__name__ + str(len(seen))
            seen[what] = Broken(bench, label, environment).failures(function, bench.left(60))
        hits = [error for name, error in seen[what] if name.startswith(point) and words in error]
        others = "\n".join(f"{name}: {error}" for name, error in seen[what]) or "no point failed"
        bench.point(f"{what}: {point!r} fails", None if hits else others)
