#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runner's own tests: counting of every output form, lanes, budgets, what a failing suite does."""

from __future__ import annotations

import os
import signal
import subprocess
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

    def test_prove_with_directives(self) -> None:
        text = (
            "a.t .. \nok 2 - b # SKIP no GPU here\nok 3 # SKIP\nok\nFiles=1, Tests=5,  0 wallclock secs\n"
        )
        self.assertEqual(numbers(text), (3, 0, 2))
        self.assertEqual(run.count(text).reasons, ["no GPU here", "a test, no reason given"])

    def test_crashed_program_under_prove_is_a_failure(self) -> None:
        text = "b.t .. ok\n  Non-zero exit status: 134\n  Parse errors: No plan found\nFiles=1, Tests=3, \n"
        self.assertEqual(numbers(text)[1], 1)

    def test_plain_line_wins(self) -> None:
        self.assertEqual(numbers("ok 1 - noise\npytest: 7 passed, 1 failed, 2 skipped\n"), (7, 1, 2))

    def test_prose_with_numbers_is_not_counted(self) -> None:
        self.assertEqual(numbers("okay then\nnothing is ok here\n"), (0, 0, 0))


class RunTest(unittest.TestCase):
    """A tree of its own with run.py and rows of the test, run as `make test` does."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        (self.root / "tests").mkdir()
        text = Path(run.__file__).read_text()
        quick = text.replace("STOP_S = 20.0", "STOP_S = 8.0")
        self.assertNotEqual(quick, text)
        (self.root / "tests" / "run.py").write_text(quick)
        self.env = {k: v for k, v in os.environ.items() if k != "BUILD"}

    def start(self, rows: str, *args: str) -> subprocess.Popen[str]:
        (self.root / "tests" / "suites").write_text("# a comment\n\n" + rows)
        return subprocess.Popen(
            [sys.executable, self.root / "tests" / "run.py", *args],
            cwd=self.root,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, child: subprocess.Popen[str]) -> None:
        try:
            self.out, _ = child.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            child.kill()
            self.fail(f"run.py hangs:\n{child.communicate()[0]}")
        self.code, self.last = child.returncode, self.out.splitlines()[-1]

    def run_rows(self, rows: str, *args: str) -> None:
        self.finish(self.start(rows, *args))

    def row(self, name: str) -> str:
        """What the table says of a row."""
        return next(line for line in reversed(self.out.splitlines()) if line.startswith(name + " "))

    def assert_order(self, *parts: str) -> None:
        places = [self.out.find(p) for p in parts]
        self.assertNotIn(-1, places, self.out)
        self.assertEqual(places, sorted(places), self.out)

    def wait_for(self, path: str) -> str:
        """The file's content, once it has one."""
        deadline = time.monotonic() + 30
        while not ((self.root / path).exists() and (text := (self.root / path).read_text()).endswith("\n")):
            self.assertLess(time.monotonic(), deadline, f"{path} does not come")
            time.sleep(0.02)
        return text.strip()

    def assert_ended(self, *pids: str) -> None:
        for pid in pids:
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                continue  # PID 1 has reaped it, maybe since it was opened
            self.assertRegex(stat, r"\) [ZX] ", f"{pid} lives")

    def test_all_are_added_up(self) -> None:
        self.run_rows(
            "setup-a 30 setup true\na 30 x echo ok 1 - one; echo 'ok 2 # SKIP no GPU'\nb 30 y echo 3 passed, 0 failed\n"
        )
        self.assertEqual((self.code, self.last), (0, "4 passed, 0 failed, 1 skipped"), self.out)
        self.assertIn("skipped in a: no GPU\n", self.out)
        self.assertIn("-- a: 1 passed, 0 failed, 1 skipped (", self.out)

    def test_a_skip_that_is_not_listed_is_a_failure(self) -> None:
        (self.root / "tests/skips").write_text("# why\n\n: no GPU$\n^b: no network\n")
        self.run_rows("a 30 x echo ok 1 - one; echo 'ok 2 # SKIP no GPU'\n")
        self.assertEqual((self.code, self.last), (0, "1 passed, 0 failed, 1 skipped"), self.out)
        rows = "a 30 x echo ok 1 - one; echo 'ok 2 # SKIP no network'; echo 'ok 3 - c # SKIP'\n"
        self.run_rows(rows + "b 30 y echo 'ok 1 # SKIP no network'\n")
        self.assertEqual((self.code, self.last), (1, "1 passed, 2 failed, 3 skipped"), self.out)
        self.assertTrue(self.row("a").endswith("tests/skips has no line for: no network"), self.out)
        self.assertIn("skipped in a: c, no reason given\n", self.out)

    def test_a_failed_row_shows_all_of_its_output_and_the_others_run(self) -> None:
        many = "for i in $(seq 200); do echo line $i; done; echo not ok 1 - c; exit 1"
        self.run_rows(f"a 30 x {many}\nb 30 x echo ok 1\n")
        self.assertEqual((self.code, self.last), (1, "1 passed, 1 failed, 0 skipped"), self.out)
        self.assert_order(
            "== a failed: exit code 1", "    | line 1\n", "    | line 200\n", "    | not ok 1 - c", "== b"
        )
        self.assertTrue(self.row("a").endswith("exit code 1"), self.out)
        self.assert_order("\nsuite  ", "failed in a: not ok 1 - c\n", "1 passed, 1 failed, 0 skipped")

    def test_the_end_says_why_the_first_failed(self) -> None:
        said = "echo not ok 1 - c; for i in $(seq 20); do echo '#' why $i; done; echo not ok 2 - d"
        self.run_rows(f"a 30 x {said}\nb 30 x echo not ok 1 - e; echo '# one'; echo ok 2; echo '# two'\n")
        end = self.out[self.out.index("\nsuite  ") :]
        self.assertIn("failed in a: not ok 1 - c\n    | # why 1\n    | # why 2\n", end)
        self.assertIn(
            "    | # why 10\nfailed in a: not ok 2 - d\nfailed in b: not ok 1 - e\n    | # one\n", end
        )
        self.assertNotIn("two", end)

    def test_the_end_has_the_last_words_of_who_named_no_failure(self) -> None:
        self.run_rows("s 30 x for i in $(seq 20); do echo word $i; done; echo ok 1; exit 3\n")
        end = self.out[self.out.index("\nsuite  ") :]
        self.assertIn("failed in s: exit code 3\n    | word 12\n", end)
        self.assertIn("    | word 20\n    | ok 1\n", end)

    def test_exit_code_without_failed_line_is_a_failure(self) -> None:
        self.run_rows("s 30 x echo ok 1 - fine; exit 3\n")
        self.assertEqual((self.code, self.last), (1, "1 passed, 1 failed, 0 skipped"), self.out)
        self.assertTrue(self.row("s").endswith("exit code 3"), self.out)

    def test_no_test_is_a_failure(self) -> None:
        self.run_rows("s 30 x true\n")
        self.assertEqual((self.code, self.last), (1, "0 passed, 1 failed, 0 skipped"), self.out)
        self.assertTrue(self.row("s").endswith("ran no test"), self.out)

    def test_a_death_by_signal_is_a_failure(self) -> None:
        self.run_rows("s 30 x echo ok 1; kill -SEGV $$\n")
        self.assertEqual((self.code, self.last), (1, "1 passed, 1 failed, 0 skipped"), self.out)

    def test_lanes_run_side_by_side_and_rows_of_a_lane_in_order(self) -> None:
        """b waits for a, which waits for c of the other lane."""
        until = "until [ -e {0} ]; do read -t 0.02 <> <(:); done; echo ok 1"
        rows = f"a 40 x {until.format('c')}; touch a\nb 40 x [ -e a ] && echo ok 1\nc 40 y touch c; echo ok 1\n"
        self.run_rows(rows)
        self.assertEqual((self.code, self.last), (0, "3 passed, 0 failed, 0 skipped"), self.out)
        self.assert_order("== a", "== c", "-- a", "== b", "-- b")

    def test_setup_comes_first_and_what_is_alone_last(self) -> None:
        log = "echo {0} begins >>log; echo ok 1; echo {0} ends >>log\n"
        rows = "".join(
            f"{n} 30 {lane} {log.format(n)}"
            for n, lane in (("z", "alone"), ("a", "x"), ("s", "setup"), ("y", "alone"), ("t", "setup"))
        )
        self.run_rows(rows)
        self.assertEqual((self.code, self.last), (0, "3 passed, 0 failed, 0 skipped"), self.out)
        order = "".join(f"{n} begins\n{n} ends\n" for n in "stazy")
        self.assertEqual((self.root / "log").read_text(), order)

    def test_a_failed_setup_ends_the_run(self) -> None:
        self.run_rows("s 30 setup echo it is broken; exit 1\na 30 x echo ok 1; touch ran\n")
        self.assertEqual((self.code, self.last), (1, "0 passed, 1 failed, 0 skipped"), self.out)
        self.assertIn("    | it is broken\n", self.out)
        self.assertTrue(self.row("a").endswith("not run"), self.out)
        self.assertFalse((self.root / "ran").exists())

    def test_a_hung_row_is_killed_with_all_it_started_and_its_output_is_shown(self) -> None:
        """Also what ignores SIGTERM, and what left the row's process group."""
        stubborn = "bash -c 'trap : TERM; echo here; while :; do sleep 300; done' & echo $! >pid"
        other = "bash -mc 'sleep 300 & echo $! >pid2; wait' & "
        began = time.monotonic()
        self.run_rows(f"s 6 x echo ok 1 - a; {other} {stubborn}; wait\nt 30 x echo ok 1\n")
        self.assertLess(time.monotonic() - began, 59)
        self.assertEqual((self.code, self.last), (1, "2 passed, 1 failed, 0 skipped"), self.out)
        self.assertTrue(self.row("s").endswith("exceeded its budget of 6 s"), self.out)
        self.assert_order("== s failed: exceeded its budget", "    | ok 1 - a\n", "    | here\n", "== t")
        self.assert_ended(self.wait_for("pid"), self.wait_for("pid2"))

    def test_what_a_row_leaves_behind_is_ended(self) -> None:
        self.run_rows("s 30 x sleep 300 & echo $! >pid; echo ok 1\n")
        self.assertEqual((self.code, self.last), (0, "1 passed, 0 failed, 0 skipped"), self.out)
        self.assert_ended(self.wait_for("pid"))

    def test_ctrl_c_leaves_nothing_behind(self) -> None:
        """Suites have the time to take down what they set up, and the report comes."""
        for sig in (signal.SIGINT, signal.SIGTERM):
            row = "trap 'echo > {0}.down' EXIT; echo ok 1; sleep 300 & echo $! >{0}.pid; wait"
            rows = "".join(f"{n} 90 {n} {row.format(n)}\n" for n in "ab")
            child = self.start(rows + "c 90 a echo ok 1\n")
            pids = [self.wait_for(f"{n}.pid") for n in "ab"]
            child.send_signal(sig)
            self.finish(child)
            self.assertEqual(self.code, 130, self.out)
            self.assertEqual(self.last, "2 passed, 2 failed, 0 skipped", self.out)
            self.assertTrue(self.row("a").endswith("interrupted"), self.out)
            self.assertTrue(self.row("c").endswith("not run"), self.out)
            self.assert_ended(*pids)
            for n in "ab":
                self.wait_for(f"{n}.down")
                (self.root / f"{n}.down").unlink()
                (self.root / f"{n}.pid").unlink()

    def test_output_is_not_interleaved(self) -> None:
        row = "for i in $(seq 300); do echo {0}; done; echo not ok 1; exit 1"
        self.run_rows("".join(f"{n} 30 {n} {row.format(n * 3)}\n" for n in "ab"))
        for n in "ab":
            self.assertIn(f"    | {n * 3}\n" * 300, self.out)

    def test_long_rows_run_when_asked_for(self) -> None:
        rows = "a 30 x echo ok 1\nfull-b 30 x echo ok 1\n"
        for args, passed in (((), 1), (("--full",), 2), (("full-b",), 1), (("a", "full-b"), 2)):
            self.run_rows(rows, *args)
            self.assertEqual(self.last, f"{passed} passed, 0 failed, 0 skipped", args)

    def test_an_unknown_name_is_named(self) -> None:
        self.run_rows("a 30 x echo ok 1\n", "b")
        self.assertEqual((self.code, self.last), (2, "run.py: no suite 'b' in tests/suites; there are: a"))

    def test_processor_seconds_are_a_rows_own(self) -> None:
        self.run_rows("a 60 x sh -c 'ulimit -t 1; while :; do :; done'; echo ok 1\nb 30 y echo ok 1\n")
        cpu = {n: float(self.row(n).split()[6]) for n in "ab"}
        self.assertGreaterEqual(cpu["a"], 0.5)  # ticks of a busy machine are coarse
        self.assertLess(cpu["b"], cpu["a"])


class SuitesTest(unittest.TestCase):
    def test_the_lanes_are_those_that_the_file_explains(self) -> None:
        rows = run.read_rows()
        self.assertEqual({r.lane for r in rows}, {"setup", "compute", "system", "side", "alone"})
        self.assertEqual(len({r.name for r in rows}), len(rows))


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, 0 skipped")
    sys.exit(1 if bad else 0)
