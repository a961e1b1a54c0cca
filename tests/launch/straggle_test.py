#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which rank the other ranks wait for, from the pages of real ranks. TAP.

usage: straggle_test.py [PART OF A NAME ...]

The ranks compute by sleeping (pace.c). A second of theirs counts as ten (straggle_watch.c), so that what takes a
minute and a half of evidence takes nine seconds. `make soak-straggle` takes an hour.
"""

import os
import re
import sys

from launched import BIN, environment, start
from tap import DEADLINE_S, Program, main, same, wait_until, write

STEP_MS, SPEED = 40, 10
NAMED = re.compile(r"^(\d+) rank (\d+) worker (\d+): (\S+) ms, (\S+) % of a step, (\d+) ranks$", re.M)


class Paced:
    """Four ranks, two of a worker, of which one may be slower, and who watches them."""

    def __init__(self, folder, rank, percent, batches=3, seconds=10 * DEADLINE_S, speed=SPEED):
        pages = os.path.join(folder, "pages")
        os.mkdir(pages)
        self.go = os.path.join(folder, "go")
        env = environment(TMPDIR=folder, HVD_STATS_DIR=pages)
        pace = [f"{BIN}/launch-pace", STEP_MS, batches, rank, percent, self.go]
        self.job = start(folder, "-np", "4", *map(str, pace), env=env)
        files = [os.path.join(pages, f"rank.{i}") for i in range(4)]
        wait_until("all ranks have pages", lambda: all(map(os.path.exists, files)))
        watch = [f"{BIN}/launch-straggle-watch", pages, 4, 2, speed, seconds]
        self.watch = Program([str(w) for w in watch], env, folder, "watch")

    def named(self):
        return NAMED.findall(self.watch.out)

    def end(self):
        write(self.go, "")
        same(self.job.end(), 0, self.job.err)


def check_slow(folder, rank, batches):
    paced = Paced(folder, rank, 30, batches)
    _, named, worker, cost_ms, share, ranks = wait_until("a rank is named", paced.named)[0]
    paced.end()
    same((int(named), int(worker), int(ranks)), (rank, rank // 2, 1), "rank, worker, ranks")
    cost = 0.3 * STEP_MS
    assert 0.7 * cost < float(cost_ms) < 1.3 * cost, f"costs {cost_ms} ms, wanted {cost}"
    # 23 % on an idle machine; a busy one has longer steps
    assert 5 <= float(share) < 30, f"{share} % of a step"


def test_a_rank_slower_by_30_percent_is_named_with_its_cost(folder):
    check_slow(folder, 2, 3)


def test_so_is_rank_0_in_a_loop_with_one_tensor(folder):
    check_slow(folder, 0, 1)


def test_equal_ranks_are_not_named(folder):
    paced = Paced(folder, -1, 0, seconds=15)
    same(paced.watch.end(), 0, paced.watch.err)
    same(paced.named(), [], "named")
    paced.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--soak"]:  # SECONDS: equal ranks at their own speed
        seconds = float(sys.argv[2])

        def test_equal_ranks_are_never_named(folder):
            paced = Paced(folder, -1, 0, seconds=seconds, speed=1)
            same(paced.watch.end(seconds + DEADLINE_S), 0, paced.watch.err)
            same(paced.named(), [], "named")
            paced.end()

        sys.argv[1:] = []
        main({"test_equal_ranks_are_never_named": test_equal_ranks_are_never_named})
    main(globals())
