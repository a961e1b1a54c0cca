#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runner's own tests: counting of every output form, lanes, budgets and their clock, what a failing
suite does, second runs, and that no process is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run
from runner import processes, tally

PROVE = "Files=2, Tests=10,  0 wallclock secs\n"
NO_GPU = "no GPU here"
# What a suite prints; numbers of passed, failed and skipped tests; reasons of skips
OUTPUTS = (
    (f"1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP {NO_GPU}\n", (1, 1, 1), [NO_GPU]),
    (f"a.t .. ok\nAll tests successful.\n{PROVE}Result: PASS\n", (10, 0, 0), []),
    (f"b.t .. \nFailed 2/5 subtests\n{PROVE}Result: FAIL\n", (8, 2, 0), []),
    (f"a.t .. skipped: {NO_GPU}\nb.t .. ok\n{PROVE}", (10, 0, 1), [NO_GPU]),
    # prove --directives
    (f"ok 2 - b # SKIP {NO_GPU}\nok 3 # SKIP\nok\n{PROVE}", (8, 0, 2), [NO_GPU, "a test, no reason given"]),
    # prove --failures --comments
    (f"# ok - tests\nnot ok 2 - b\nFailed 1/3 subtests\nb.t (Wstat: 256 Tests: 3)\n{PROVE}", (9, 1, 0), []),
    # a program crashed
    (f"b.t .. ok\n  Non-zero exit status: 134\n  Parse errors: No plan found\n{PROVE}", (10, 1, 0), []),
    # a plain line wins
    ("ok 1 - noise\npytest: 7 passed, 1 failed, 2 skipped\n", (7, 1, 2), []),
    # prose
    ("okay then\nnothing is ok here\n", (0, 0, 0), []),
)


class CountTest(unittest.TestCase):
    def test_all_forms_of_output_are_counted(self) -> None:
        for text, numbers, reasons in OUTPUTS:
            with self.subTest(text):
                got = tally.count(text)
                self.assertEqual((got.passed, got.failed, got.skipped), numbers)
                self.assertEqual(got.reasons, reasons)

    def test_programs_that_prove_lists_as_failed(self) -> None:
        text = (
            "Test Summary Report\n-------------------\n"
            "build/plain/unit/a_test (Wstat: 256 Tests: 3 Failed: 1)\n  Failed test:  2\n"
            "tests/launch/b_test.py  (Wstat: 11 (Signal: SEGV) Tests: 0 Failed: 0)\n"
            "  Parse errors: No plan found in TAP output\nFiles=3, Tests=9,  1 wallclock secs\n"
        )
        self.assertEqual(tally.failed_programs(text), ["build/plain/unit/a_test", "tests/launch/b_test.py"])
        self.assertEqual(tally.failed_programs("a .. ok\nnot ok 1 - (Wstat: \n"), [])


class ClockTest(unittest.TestCase):
    def test_seconds_that_count(self) -> None:
        rows = [  # wall, busy, own, processors -> counted
            (10, 0, 0, 2, 10.0),  # an idle machine: a row that waits, or hangs
            (10, 20, 20, 2, 10.0),  # the run's own rows do not slow the clock
            (10, 10, 0, 2, 5.0),  # half of the machine is used by others
            (10, 20, 10, 2, 5.0),
            (10, 20, 5, 2, 2.5),
            (10, 20, 0, 2, 2.5),  # never less than a quarter
            (10, 200, 0, 2, 2.5),
            (10, 15, 16, 2, 10.0),  # the counters are not read at one moment
            (10, 32, 0, 64, 9.5),
            (0, 0, 0, 2, 0.0),
        ]
        for wall, busy, own, n, expected in rows:
            with self.subTest(wall=wall, busy=busy, own=own, n=n):
                self.assertAlmostEqual(processes.counted_s(wall, busy, own, n), expected)

    def test_busy_seconds_are_those_of_our_processors(self) -> None:
        ticks = processes.TICKS
        stat = (
            f"cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 {ticks} {ticks} {ticks} 77 77 {ticks} {ticks} {ticks} 5 5\n"
            f"cpu1 {ticks} 0 0 77 77 0 0 0 0 0\ncpu10 {3 * ticks} 0 0 77 77 0 0 0 0 0\nintr 5 5\n"
        )
        for cpus, expected in (({0}, 6.0), ({1}, 1.0), ({0, 10}, 9.0), ({2}, 0.0)):
            self.assertEqual(processes.busy_s(stat, cpus), expected)

    def test_a_process_with_any_name(self) -> None:
        fields = "S 4 5 6 7 8 9 10 11 12 13 100 200 300 400 0"
        got = processes.parse_stat(f"17 (a) R (b c) {fields}\n")
        self.assertEqual((got.pid, got.state, got.parent, got.session), (17, "S", 4, 6))
        self.assertAlmostEqual(got.cpu_s, 1000 / processes.TICKS)

    def test_the_clock_never_runs_faster_than_time(self) -> None:
        began, clock = time.monotonic(), processes.Clock()
        first = clock.now_s()
        self.assertLessEqual(clock.now_s() - first, time.monotonic() - began)
        self.assertGreaterEqual(clock.now_s(), first)


class RunTest(unittest.TestCase):
    """A tree of its own with run.py and rows of the test, run as `make test` does."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        (self.root / "tests").mkdir()
        here = Path(run.__file__).parent
        shutil.copytree(here / "runner", self.root / "tests/runner")
        self.configure((here / "run.py").read_text(), "STOP_S = 20.0", "STOP_S = 8.0")
        self.env = {k: v for k, v in os.environ.items() if k != "BUILD"}

    def configure(self, text: str, old: str, new: str) -> None:
        """Writes the tree's run.py, with another constant."""
        self.assertEqual(text.count(old), 1)
        (self.root / "tests/run.py").write_text(text.replace(old, new))

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
            self.out, _ = child.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            child.kill()
            self.fail(f"run.py hangs:\n{child.communicate()[0]}")
        self.code, self.last = child.returncode, self.out.splitlines()[-1]

    def run_rows(self, rows: str, *args: str) -> None:
        self.finish(self.start(rows, *args))

    def expect(self, passed: int, failed: int, skipped: int, rows: str) -> None:
        """Runs the rows; the last line has these numbers, and the exit code fits them."""
        self.run_rows(rows)
        last = f"{passed} passed, {failed} failed, {skipped} skipped"
        self.assertEqual((self.code, self.last), (1 if failed else 0, last), self.out)

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
        rows = "a 30 x echo ok 1 - one; echo 'ok 2 # SKIP no GPU'\nb 30 y echo 3 passed, 0 failed\n"
        self.expect(4, 0, 1, "setup-a 30 setup true\n" + rows)
        self.assertIn("skipped in a: no GPU\n", self.out)
        self.assertIn("-- a: 1 passed, 0 failed, 1 skipped (", self.out)

    def test_a_skip_that_is_not_listed_is_a_failure(self) -> None:
        (self.root / "tests/skips").write_text("# why\n\n: no GPU$\n^b: no network\n")
        self.expect(1, 0, 1, "a 30 x echo ok 1 - one; echo 'ok 2 # SKIP no GPU'\n")
        rows = "a 30 x echo ok 1 - one; echo 'ok 2 # SKIP no network'; echo 'ok 3 - c # SKIP'\n"
        self.expect(1, 2, 3, rows + "b 30 y echo 'ok 1 # SKIP no network'\n")
        self.assertTrue(self.row("a").endswith("tests/skips has no line for: no network"), self.out)
        self.assertIn("skipped in a: c, no reason given\n", self.out)

    def test_a_failed_row_shows_all_of_its_output_and_the_other_row_runs(self) -> None:
        many = "for i in $(seq 200); do echo line $i; done; echo not ok 1 - c; exit 1"
        self.expect(1, 1, 0, f"a 30 x {many}\nb 30 x echo ok 1\n")
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

    def test_a_row_that_does_not_end_well_is_a_failure(self) -> None:
        for command, passed, why in (
            ("echo ok 1 - fine; exit 3", 1, "exit code 3"),
            ("true", 0, "ran no test"),
            ("echo ok 1; kill -SEGV $$", 1, "exit code 139"),
        ):
            self.expect(passed, 1, 0, f"s 30 x {command}\n")
            self.assertTrue(self.row("s").endswith(why), self.out)

    def test_lanes_run_side_by_side_and_rows_of_a_lane_in_order(self) -> None:
        """b waits for a, which waits for c of the other lane."""
        until = "until [ -e {0} ]; do read -t 0.02 <> <(:); done; echo ok 1"
        rows = f"a 40 x {until.format('c')}; touch a\nb 40 x [ -e a ] && echo ok 1\nc 40 y touch c; echo ok 1\n"
        self.expect(3, 0, 0, rows)
        self.assert_order("== a", "== c", "-- a", "== b", "-- b")

    def test_setup_comes_first_and_what_is_alone_last(self) -> None:
        log = "echo {0} begins >>log; echo ok 1; echo {0} ends >>log\n"
        rows = "".join(
            f"{n} 30 {lane} {log.format(n)}"
            for n, lane in (("z", "alone"), ("a", "x"), ("s", "setup"), ("y", "alone"), ("t", "setup"))
        )
        self.expect(3, 0, 0, rows)
        order = "".join(f"{n} begins\n{n} ends\n" for n in "stazy")
        self.assertEqual((self.root / "log").read_text(), order)

    def test_a_failed_setup_ends_the_run(self) -> None:
        self.expect(0, 1, 0, "s 30 setup echo it is broken; exit 1\na 30 x echo ok 1; touch ran\n")
        self.assertIn("    | it is broken\n", self.out)
        self.assertTrue(self.row("a").endswith("not run"), self.out)
        self.assertFalse((self.root / "ran").exists())

    def test_a_hung_row_is_killed_with_all_it_started_and_its_output_is_shown(self) -> None:
        """Also what ignores SIGTERM, and what left the row's process group."""
        stubborn = "bash -c 'trap : TERM; echo here; while :; do sleep 300; done' & echo $! >pid"
        other = "bash -mc 'sleep 300 & echo $! >pid2; wait' & "
        began = time.monotonic()
        self.run_rows(f"s 2 x echo ok 1 - a; {other} {stubborn}; wait\nt 30 x echo ok 1\n")
        self.assertLess(time.monotonic() - began, 140)
        self.assertEqual((self.code, self.last), (1, "2 passed, 1 failed, 0 skipped"), self.out)
        self.assertTrue(self.row("s").endswith("exceeded its budget of 2 s"), self.out)
        self.assert_order("== s failed: exceeded its budget", "    | ok 1 - a\n", "    | here\n", "== t")
        self.assert_ended(self.wait_for("pid"), self.wait_for("pid2"))

    def test_what_a_row_leaves_behind_is_ended(self) -> None:
        self.expect(1, 0, 0, "s 30 x sleep 300 & echo $! >pid; echo ok 1\n")
        self.assert_ended(self.wait_for("pid"))

    def test_temporary_files_of_a_row_are_removed_however_it_ends(self) -> None:
        for how in ("echo ok 1", "exit 3", "sleep 300", "kill -9 $$"):
            self.run_rows(f"s 2 x mktemp -d >folder; touch $(cat folder)/file; {how}\n")
            folder = Path(self.wait_for("folder").strip())
            self.assertTrue(folder.parent.name.startswith("rm-"), folder)
            self.assertFalse(folder.parent.exists(), self.out)
            (self.root / "folder").unlink()

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

    DAEMON = "import os,sys,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n" + (
        "open(sys.argv[1],'w').write(f'{os.getpid()}\\n')\ntime.sleep(300)\n"
    )

    def daemon(self, name: str) -> str:
        """A command that leaves a process with a session of its own, whose parent has exited."""
        (self.root / "daemon.py").write_text(self.DAEMON)
        return f"{sys.executable} daemon.py {name}.pid"

    def test_daemons_of_a_row_are_ended_with_it(self) -> None:
        for how in ("echo ok 1", "exit 3", "sleep 300"):
            wait = "until [ -s d.pid ]; do read -t 0.02 <> <(:); done"
            self.run_rows(f"s 2 x {self.daemon('d')}; {wait}; {how}\n")
            self.assert_ended(self.wait_for("d.pid"))
            (self.root / "d.pid").unlink()

    def test_no_process_outlives_a_run_that_is_ended_by_any_signal(self) -> None:
        """Only run.py gets the signal; of SIGKILL it sees nothing."""
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            plain = "sleep 300 & echo $! >plain.pid; wait"
            child = self.start(
                f"a 90 x {self.daemon('a')}; {plain}\nb 90 y {self.daemon('b')}; sleep 300\n"
            )
            names = ("a.pid", "b.pid", "plain.pid")
            pids = [self.wait_for(name) for name in names]
            child.send_signal(sig)
            self.finish(child)
            if sig == signal.SIGKILL:
                end = time.monotonic() + 30
                while any(map(is_alive, pids)) and time.monotonic() < end:
                    time.sleep(0.02)
            self.assert_ended(*pids)
            for name in names:
                (self.root / name).unlink()

    def test_a_program_that_fails_once_is_flaky_and_has_passed(self) -> None:
        """Prove's summary names the program; the second run has RM_ONLY and comes after all rows."""
        prove = (
            '[ -n "$RM_ONLY" ] && {{ echo "$RM_ONLY" >>only; echo Files=1, Tests=3, ; exit {again}; }}; '
            "echo 'Failed 1/3 subtests'; echo 'u/a_test (Wstat: 256 Tests: 3 Failed: 1)'; "
            "echo Files=2, Tests=5, ; exit 1"
        )
        self.expect(6, 0, 0, f"a 30 x {prove.format(again=0)}\nb 30 y echo ok 1\n")
        self.assertEqual(self.out.splitlines()[-2], "flaky: a u/a_test")
        self.assertIn("failed at first in a: u/a_test (Wstat: 256", self.out)
        self.assertEqual((self.root / "build/logs/flaky").read_text(), "a u/a_test\n")
        self.assertEqual((self.root / "only").read_text(), "u/a_test\n")
        self.expect(5, 1, 0, f"a 30 x {prove.format(again=1)}\nb 30 y echo ok 1\n")
        self.assertNotIn("flaky", self.out)
        self.assertEqual((self.root / "build/logs/flaky").read_text(), "")
        self.assertTrue(self.row("a").endswith("exit code 1"), self.out)

    def test_a_row_may_name_what_failed(self) -> None:
        """Each name runs by itself; the row has passed if all do."""
        row = (
            'case "$RM_ONLY" in "") printf "one\\ntwo\\n" >"$RM_FAILED"; echo 4 passed, 2 failed; exit 1;; '
            "one) echo 1 passed, 0 failed;; two) echo 0 passed, {0} failed; exit {0};; esac"
        )
        self.expect(
            6, 0, 0, f"a 30 x {row.format(0)}\n".replace("0 passed, 0 failed", "1 passed, 0 failed")
        )
        self.assertEqual(self.out.splitlines()[-3:-1], ["flaky: a one", "flaky: a two"])
        self.expect(5, 1, 0, f"a 30 x {row.format(1)}\n")
        self.assertEqual(self.out.splitlines()[-2], "flaky: a one")

    def test_a_row_without_programs_runs_whole_once_more(self) -> None:
        """Also one that was killed for its budget, whatever it had named."""
        once = "[ -e {0} ] && {{ echo ok 1; exit; }}; touch {0}; "
        kill = once.format("k") + 'echo x >"$RM_FAILED"; echo ok 1; sleep 300'
        star = once.format("m") + 'printf "x\\n*\\n" >"$RM_FAILED"; exit 1'
        self.run_rows(f"a 30 x {once.format('a')} exit 4\nk 2 y {kill}\nm 30 z {star}\n")
        self.assertEqual(self.code, 0, self.out)
        self.assertEqual(self.out.splitlines()[-4:-1], ["flaky: a", "flaky: k", "flaky: m"])

    def test_second_runs_have_a_bound_together(self) -> None:
        text = (self.root / "tests/run.py").read_text()
        self.configure(text, "RERUN_S = 900.0", "RERUN_S = 4.0")
        row = "[ -e {0} ] && sleep 300; touch {0}; echo not ok 1\n"
        self.expect(0, 2, 0, f"a 60 x {row.format('a')}b 60 y {row.format('b')}")
        self.assertIn("-- b: not run again: all second runs together may take 4 s\n", self.out)

    def test_what_cannot_pass_is_not_run_again(self) -> None:
        (self.root / "tests/skips").write_text("")
        self.run_rows("a 30 x echo >>ran; echo ok 1; echo 'ok 2 # SKIP no GPU'\n")
        self.assertEqual((self.root / "ran").read_text(), "\n")
        self.run_rows("s 30 setup echo >>ran2; exit 1\n")
        self.assertEqual((self.root / "ran2").read_text(), "\n")

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


def is_alive(pid: str) -> bool:
    return any(p.pid == int(pid) and p.is_alive for p in processes.all_processes())


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
