#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runner's own tests: counting of every output form, budgets, and what a failing suite does."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run


def numbers(text: str) -> tuple[int, int, int]:
    c = run.count(text)
    return c.passed, c.failed, c.skipped


class CountTest(unittest.TestCase):
    def test_tap(self) -> None:
        text = "1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no GPU here\n"
        self.assertEqual(numbers(text), (1, 1, 1))
        self.assertEqual(run.count(text).reasons, ["no GPU here"])

    def test_prove_summary(self) -> None:
        good = "a.t .. ok\nAll tests successful.\nFiles=2, Tests=10,  0 wallclock secs\nResult: PASS\n"
        self.assertEqual(numbers(good), (10, 0, 0))
        bad = "b.t .. \nFailed 2/5 subtests\nFiles=2, Tests=10,  0 wallclock secs\nResult: FAIL\n"
        self.assertEqual(numbers(bad), (8, 2, 0))
        some = "a.t .. skipped: no GPU here\nb.t .. ok\nFiles=2, Tests=3,  0 wallclock secs\n"
        self.assertEqual(numbers(some), (3, 0, 1))
        self.assertEqual(run.count(some).reasons, ["no GPU here"])

    def test_crashed_program_under_prove_is_a_failure(self) -> None:
        text = "b.t .. ok\n  Non-zero exit status: 134\n  Parse errors: No plan found\nFiles=1, Tests=3, \n"
        self.assertEqual(numbers(text)[1], 1)

    def test_plain_line_wins(self) -> None:
        self.assertEqual(numbers("ok 1 - noise\npytest: 7 passed, 1 failed, 2 skipped\n"), (7, 1, 2))

    def test_prose_with_numbers_is_not_counted(self) -> None:
        self.assertEqual(numbers("okay then\nnothing is ok here\n"), (0, 0, 0))


class SuiteTest(unittest.TestCase):
    def setUp(self) -> None:
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        run.LOGS = run.ROOT / "build" / "logs" / f"selftest-{os.getpid()}"
        run.LOGS.mkdir(parents=True, exist_ok=True)

    def tearDown(self) -> None:
        for f in run.LOGS.iterdir():
            f.unlink()
        run.LOGS.rmdir()

    def suite(self, name: str, budget_s: int, command: str) -> tuple[run.Count, str]:
        with contextlib.redirect_stdout(io.StringIO()):
            got, _, why = run.run_suite(name, budget_s, command)
        return got, why

    def test_exit_code_without_failed_line_is_a_failure(self) -> None:
        got, why = self.suite("s", 30, "echo ok 1 - fine; exit 3")
        self.assertEqual((got.failed, why), (1, "exit code 3"))

    def test_no_test_is_a_failure(self) -> None:
        got, why = self.suite("s", 30, "true")
        self.assertEqual((got.failed, why), (1, "ran no test"))

    def test_setup_counts_no_test(self) -> None:
        got, why = self.suite("setup-x", 30, "true")
        self.assertEqual((got.passed, got.failed, why), (0, 0, ""))

    def test_budget_kills_the_whole_group(self) -> None:
        mark = Path(self.dir.name) / "pid"
        began = time.monotonic()
        got, why = self.suite("s", 0, f"echo ok 1 - a; sleep 300 & echo $! >{mark}; wait")
        self.assertIn("exceeded its budget", why)
        self.assertEqual(got.failed, 1)
        self.assertLess(time.monotonic() - began, 60)
        stat = Path(f"/proc/{mark.read_text().strip()}/stat")
        self.assertTrue(not stat.exists() or ") Z " in stat.read_text())


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, 0 skipped")
    sys.exit(1 if bad else 0)
