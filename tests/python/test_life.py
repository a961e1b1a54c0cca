# SPDX-License-Identifier: Apache-2.0
"""Deaths, exits and forks of ranks. Started by hand with torchrun's variables, so that no launcher
stops the survivors and each rank's own behaviour shows."""

import contextlib
import re
import signal
import subprocess
import time
import unittest

from job import DEBIAN_PYTHON, bare_ranks, environment, python


def at(word, ended):
    """The time in a line `WORD at=SECONDS ...` of a rank's output, and the rest of the line."""
    m = re.search(rf"^{word} at=([0-9.]+) ?(.*)$", ended.out, re.MULTILINE)
    assert m, f"no line {word} in: {ended}"
    return float(m[1]), m[2]


class Life(unittest.TestCase):
    def ranks(self, n, mode):
        return bare_ranks(n, "life.py", mode, timeout=60)

    def assert_told(self, mode, n, survivors_exit=0):
        ends = self.ranks(n, mode)
        died, _ = at("DYING", ends[1])
        for rank, ended in enumerate(ends):
            if rank == 1:
                continue
            failed, sentence = at("FAILED", ended)
            self.assertRegex(sentence, r"rank 1\b", ended)
            self.assertLess(failed - died, 1.0, f"rank {rank} was told too late: {ended}")
            self.assertEqual(ended.code, survivors_exit, ended)
        return ends

    def test_a_killed_rank_is_named_within_a_second_np2(self):
        ends = self.assert_told("killed", 2)
        self.assertEqual(ends[1].code, -9)

    def test_a_killed_rank_is_named_within_a_second_np4(self):
        self.assert_told("killed", 4)

    def test_every_pending_operation_fails(self):
        ends = self.assert_told("killed-pending", 2)
        self.assertIn("all 50 failed", ends[0].out)

    def test_a_rank_that_leaves_early_is_named(self):
        ends = self.assert_told("leaves-early", 2)
        self.assertEqual(ends[1].code, 0)

    def test_exit_codes_pass_without_shutdown(self):
        for ended in self.ranks(2, "exit-3"):
            self.assertEqual(ended.code, 3, ended)

    def test_an_exception_ends_the_process_with_its_traceback(self):
        for ended in self.ranks(2, "raise"):
            self.assertEqual(ended.code, 1, ended)
            self.assertIn("a bug of the user's", ended.out)

    def test_exit_with_a_pending_operation_does_not_hang(self):
        for ended in self.ranks(2, "exit-pending"):
            self.assertEqual(ended.code, 4, ended)

    def test_init_follows_shutdown_and_nothing_works_between(self):
        for ended in self.ranks(1, "again") + self.ranks(2, "again"):
            self.assertEqual(ended.code, 0, ended)
            self.assertIn("AGAIN", ended.out)

    def test_data_loader_workers_are_not_ranks(self):
        for ended in self.ranks(2, "data-loader"):
            self.assertEqual(ended.code, 0, ended)
            self.assertIn("LOADED", ended.out)

    def test_ctrl_c_ends_a_rank_that_waits_for_others_in_init(self):
        code = "import _hvd.basics as h; print('WAITING', flush=True); h.init()"
        place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
        env = environment(MASTER_ADDR="127.0.0.1", MASTER_PORT="9", **place)
        process = subprocess.Popen([DEBIAN_PYTHON, "-c", code], env=env, stdout=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"WAITING\n")
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < 20:
            process.send_signal(signal.SIGINT)  # again until it has come into init()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        process.stdout.close()
        self.assertIn(process.wait(30), (-signal.SIGINT, 130, 1))
        self.assertLess(time.monotonic() - began, 10)

    def test_single_process_exits(self):
        code = "import sys, horovod.torch as hvd; hvd.init(); assert hvd.size() == 1; sys.exit(3)"
        ended = python(code)
        self.assertEqual(ended.code, 3, ended)
        self.assertLess(ended.seconds, 20)
