#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whom disturb.py spares, and when it changes the size, on a platform that is made here."""

import argparse
import io
import sys
import time
import unittest

from disturb import Driver, Killer, Scaler, Victim

NS = 1_000_000_000


class FakeJob:
    """What watch.Followed knows of a job. The pid of a process is its name."""

    def __init__(self):
        self.members, self.sizes, self.alive, self.last_save_ns = {}, {}, [], 0

    def form(self, world, names):
        self.members[world] = dict(enumerate(names))
        self.sizes[world] = len(names)
        self.alive = sorted({*self.alive, *names})
        self.last_save_ns = time.monotonic_ns() + 5 * NS

    def writers(self):
        return dict(zip(self.alive, self.alive))

    def last_world(self):
        return max(self.sizes, default=0)

    def has_saved(self, world, n_steps):
        return world in self.sizes

    def first_step_ns(self, world):
        return time.monotonic_ns()


class FakePlatform(Driver):
    """Each process has the number of its host at the end of its name; a size keeps the first hosts."""

    weights = {"rank": 1, "launcher": 1}

    def __init__(self, args):
        super().__init__(args, "")
        self.job, self.size, self.struck, self.returns = FakeJob(), None, [], False

    def victims(self, kind):
        if kind == "launcher":
            return [Victim(kind, frozenset(), lambda: self.struck.append(kind))]
        return [
            Victim(name, frozenset([name]), lambda name=name: self.struck.append(name), self.returns)
            for name in self.job.alive
        ]

    def scale(self, n):
        self.size = n

    def stays(self, name, n):
        return int(name[-1]) < n


class Disturbed(unittest.TestCase):
    def setUp(self):
        self.args = argparse.Namespace(seed=1, every=1e-9, scale=[], hold=0, settle=1, patience=0)

    def begin(self, *names):
        self.platform = FakePlatform(self.args)
        self.job = self.platform.job
        self.scaler = Scaler(self.platform, self.args)
        self.killer = Killer(self.platform, self.scaler, self.args, io.StringIO())
        self.job.form(1, names)

    def strikes(self, n=50):
        """What n strikes hit, each of them with a commit after it."""
        self.platform.struck = []
        for _ in range(n):
            self.killer.unanswered = []
            self.killer.step()
        return set(self.platform.struck)

    def test_the_last_process_with_the_state_is_spared(self):
        self.begin("a0", "b1")
        self.job.alive.append("new2")
        struck = self.strikes()
        self.assertEqual(len(struck & {"a0", "b1"}), 1)
        self.assertEqual(struck - {"a0", "b1"}, {"new2", "launcher"})

    def test_a_process_of_a_victim_has_no_state_even_while_it_lives(self):
        self.begin("a0", "b1")
        self.killer.strike("rank", self.platform.victims("rank")[0])
        self.assertEqual(self.killer.holders(), {"b1"})
        self.job.form(2, ["a0", "b1"])
        self.assertEqual(self.killer.holders(), {"b1"})

    def test_a_process_that_returns_has_it_in_a_later_world(self):
        self.begin("a0", "b1")
        self.platform.returns = True
        self.killer.strike("cut", self.platform.victims("rank")[0])
        self.assertEqual(self.killer.holders(), {"b1"})
        self.job.form(2, ["a0", "b1"])
        self.assertEqual(self.killer.holders(), {"a0", "b1"})

    def test_without_commits_there_are_two_strikes_on_ranks(self):
        self.begin("a0", "b1", "c2", "d3")
        self.platform.weights = {"rank": 1}
        self.job.last_save_ns = 0
        for _ in range(50):
            self.killer.step()
        self.assertEqual(len(self.platform.struck), 2)

    def test_a_process_that_a_smaller_job_does_not_keep_has_no_state(self):
        self.args.scale, self.args.patience = [2, 1], 1e9
        self.begin("a0", "b1")
        self.scaler.step(self.killer.holders)
        self.assertEqual((self.platform.size, self.killer.holders()), (1, {"a0"}))
        self.assertEqual(self.strikes() - {"launcher"}, {"b1"})

    def test_the_job_does_not_shrink_to_new_processes(self):
        self.args.scale = [2, 1]
        self.begin("b1", "c2")
        self.scaler.step(self.killer.holders)
        self.assertIsNone(self.platform.size)
        self.job.form(2, ["a0", "b1"])
        self.scaler.step(self.killer.holders)
        self.assertEqual(self.platform.size, 1)

    def test_strikes_pause_while_a_new_size_is_late(self):
        self.args.scale = [2, 3]
        self.begin("a0", "b1")
        self.scaler.step(self.killer.holders)
        self.assertEqual((self.platform.size, self.strikes()), (3, set()))
        self.job.form(2, ["a0", "b1", "c2"])
        self.scaler.step(self.killer.holders)
        self.assertEqual([n for n, _ in self.scaler.took], [3])

    def test_a_size_is_held(self):
        self.args.scale, self.args.hold = [2, 3], 1e9
        self.begin("a0", "b1")
        self.scaler.step(self.killer.holders)
        self.assertIsNone(self.platform.size)

    def test_the_same_seed_chooses_the_same(self):
        struck = []
        for _ in range(2):
            self.begin("a0", "b1", "c2", "d3")
            self.strikes(20)
            struck.append(self.platform.struck)
        self.assertEqual(*struck)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, 0 skipped")
    sys.exit(1 if bad else 0)
