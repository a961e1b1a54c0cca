#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of tests/suites, lanes side by side, and adds them up.

Each line of tests/suites is `name budget_seconds lane command`. Rows of one lane run one after
another, in the order of the file; lanes run side by side, but for two:

    setup   runs before all others; its rows prepare (build, download) and count as no test, but
            a row that fails ends the run
    alone   runs after all others, one row at a time: what measures

A row's output is kept in build/logs/NAME.log; what is printed of a row is printed when it finishes and in
one piece: one line, and the whole output when it failed. Output is TAP, prove's summary (with --directives,
or skips are not seen, and with --failures --comments, or the reasons of failures are not), or a line
`N passed, N failed, N skipped`. The last line adds everything up in the same form. A skip that no line of tests/skips allows is a failure: what the setup
rows install must not be missing unseen.

Flaky tests. After all rows, what failed runs once more, alone: each failed program of a row, or the whole row
where programs are not known (it was killed, or its suite cannot run a part of itself). What passes then
counts as passed and is listed before the last line as `flaky: ROW PROGRAM`, and in build/logs/flaky.
What fails twice has failed. All second runs together have RERUN_S seconds; what does not fit has failed.
The interface of a row's command: it writes the names of its failed programs to the file $RM_FAILED, one a
line (`*`: only the whole row can be repeated), and runs only the program $RM_ONLY when that is set.
Programs that prove lists as failed need not be written.

Processes. Each row runs below a runner/supervise.py, which ends everything that the row has started, in
whatever session, when the row's command exits, when it is over its budget, and when run.py is interrupted
or killed. Processor seconds are those of all these processes. Budgets: runner/processes.py.

usage: tests/run.py [--full] [NAME ...]     rows whose name starts with full- run only with --full
"""

from __future__ import annotations

import os
import re
import select
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from runner.processes import Clock
from runner.tally import FAILURE, TAP, Count, count, failed_programs

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / os.environ.get("BUILD", "build") / "logs"
PROGRESS_S = 20
STOP_S = 20.0  # that a row has between SIGTERM and SIGKILL, to take down what it set up
RERUN_S = 900.0  # for all second runs together
SHOWN_LINES = 2000  # of a failed row
NAMED_FAILURES = 20  # of a failed row, once more at the end
WHY_LINES = 10  # that say why, after the first of them
WHY_WIDTH = 200


def may_skip(said: str) -> bool:
    """Whether a line of tests/skips, a regular expression, is found in `ROW: REASON`."""
    file = ROOT / "tests" / "skips"
    if not file.exists():
        return True
    lines = file.read_text().splitlines()
    return any(re.search(line, said) for line in lines if line and not line.startswith("#"))


class Row:
    """A line of tests/suites, and what came of it: `count`, `why` it failed or "", seconds."""

    def __init__(self, name: str, budget_s: float, lane: str, command: str) -> None:
        self.name, self.budget_s, self.lane, self.command = name, budget_s, lane, command
        self.only, self.tag = "", ""  # of a second run: its program, and a suffix of its file names
        self.count, self.why = Count(), "not run"
        self.first_failures: list[str] = []  # of a row that has passed in its second run
        self.wall_s = self.cpu_s = self.counted_s = 0.0
        self.may_rerun = lane != "setup"

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}{self.tag}.log"

    @property
    def failed_file(self) -> Path:
        return LOGS / f"{self.name}{self.tag}.failed"

    def start(self, clock: Clock) -> None:
        self.began, self.clock, self.clock_began = time.monotonic(), clock, clock.now_s()
        self.failed_file.unlink(missing_ok=True)
        env = {**os.environ, "RM_FAILED": str(self.failed_file)}
        env.pop("RM_ONLY", None)
        if self.only:
            env["RM_ONLY"] = self.only
        supervisor = [sys.executable, "-S", ROOT / "tests/runner/supervise.py"]
        with self.log.open("wb") as out:
            self.child = subprocess.Popen(
                [*supervisor, str(os.getpid()), str(STOP_S), self.command],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pidfd = os.pidfd_open(self.child.pid)

    def used_s(self) -> float:
        """Of its budget."""
        return self.clock.now_s() - self.clock_began

    def stop(self) -> None:
        """Does not wait, and unlike Popen's methods does not reap."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)

    def end(self, why: str = "") -> None:
        """After the child's exit; with `why`, stops it first."""
        if why:
            self.stop()
            if not select.select([self.pidfd], [], [], 2 * STOP_S + 20)[0]:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)
        _, status, usage = os.wait4(self.child.pid, 0)
        self.child.returncode = rc = os.waitstatus_to_exitcode(status)
        self.wall_s, self.cpu_s = time.monotonic() - self.began, usage.ru_utime + usage.ru_stime
        self.counted_s = self.used_s()
        self.judge(why or (f"exit code {rc}" if rc else ""))

    def programs_to_rerun(self) -> list[str]:
        """The names to put into RM_ONLY, one after another; [""]: the whole row."""
        if self.why.startswith("exceeded"):
            return [""]
        said = self.failed_file.read_text().splitlines() if self.failed_file.exists() else []
        names = list(dict.fromkeys(said)) or failed_programs(self.log.read_text(errors="replace"))
        return names if names and "*" not in names else [""]

    def failures(self) -> list[str]:
        """Lines that name what failed, so that the end of a run's output says it, and why the first
        did: what the log says after it, or its last words."""
        if not self.why or not self.log.exists():
            return []
        lines = self.log.read_text(errors="replace").splitlines()
        at = [i for i, line in enumerate(lines) if FAILURE.search(line)]
        named = [f"failed in {self.name}: {lines[i].strip()}" for i in at[:NAMED_FAILURES]]
        after = lines[at[0] + 1 :][:WHY_LINES] if at else lines[-WHY_LINES:]
        end = next((k for k, line in enumerate(after) if at and TAP.match(line)), len(after))
        why = [f"    | {line.rstrip()[:WHY_WIDTH]}" for line in after[:end]]
        return [*(named[:1] or [f"failed in {self.name}: {self.why}"]), *why, *named[1:]]

    def judge(self, why: str) -> None:
        text = self.log.read_text(errors="replace")
        got = count(text)
        if self.lane == "setup":
            got = Count()
            got.failed = 1 if why else 0
        elif why and got.failed == 0:
            got.failed = 1
        elif got.failed and not why:
            why = "tests failed"
        elif not why and got.passed + got.skipped == 0:
            got.failed, why = 1, "ran no test"
        unlisted = [r for r in got.reasons if not may_skip(f"{self.name}: {r}")]
        if unlisted and not why:
            got.failed, why = len(unlisted), f"tests/skips has no line for: {unlisted[0]}"
            self.may_rerun = False
        self.count, self.why = got, why
        lines = text.splitlines()
        if why:
            cut = len(lines) - SHOWN_LINES
            shown = [f"{cut} lines are left out"] * (cut > 0) + lines[-SHOWN_LINES:]
            say("\n".join([f"== {self.name} failed: {why}", *("    | " + line for line in shown)]))
        said = f"{got.passed} passed, {got.failed} failed, {got.skipped} skipped"
        said = (
            f"failed: {why}; {self.log.relative_to(ROOT)}"
            if why
            else said
            if self.lane != "setup"
            else "done"
        )
        say(f"-- {self.name}: {said} ({self.wall_s:.1f} s)")


def say(text: str) -> None:
    print(text, flush=True)


class Interrupted(Exception):
    """Ctrl-C, SIGTERM or SIGHUP came, and nothing runs any more."""


class Lanes:
    """Runs lanes side by side, the rows of each in order. `stop_fd` is readable once a signal came."""

    def __init__(self, stop_fd: int) -> None:
        self.stop_fd = stop_fd
        self.running: dict[int, tuple[Row, list[Row]]] = {}  # by pidfd; the rows that come after it
        self.shown = time.monotonic()
        self.clock = Clock()

    def start(self, rows: list[Row]) -> None:
        if rows:
            row, *rest = rows
            only = f" (only {row.only})" if row.only else ""
            say(f"== {row.name} (budget {row.budget_s:.0f} s): {row.command}{only}")
            row.start(self.clock)
            self.running[row.pidfd] = row, rest
            self.ends.register(row.pidfd, selectors.EVENT_READ)

    def finish(self, fd: int, why: str = "") -> list[Row]:
        row, rest = self.running.pop(fd)
        self.ends.unregister(fd)
        row.end(why)
        return rest

    def wait_s(self) -> float:
        """To the next budget's end or the next line of progress."""
        over = min(row.budget_s - row.used_s() for row, _ in self.running.values())
        return max(0.0, min(over, self.shown + PROGRESS_S - time.monotonic()))

    def progress(self) -> None:
        if time.monotonic() - self.shown >= PROGRESS_S:
            self.shown = time.monotonic()
            rows = (row for row, _ in self.running.values())
            say(f"    ... {', '.join(f'{r.name} {r.used_s():.0f} s of {r.budget_s} s' for r in rows)}")

    def run(self, *lanes: list[Row]) -> None:
        with selectors.DefaultSelector() as self.ends:
            self.ends.register(self.stop_fd, selectors.EVENT_READ)
            for rows in lanes:
                self.start(rows)
            while self.running:
                ready = {key.fd for key, _ in self.ends.select(self.wait_s())}
                if self.stop_fd in ready:
                    for row, _ in self.running.values():
                        row.stop()
                    for fd in list(self.running):
                        self.finish(fd, "interrupted")
                    raise Interrupted
                for fd, (row, _) in list(self.running.items()):
                    if fd in ready:
                        self.start(self.finish(fd))
                    elif row.used_s() >= row.budget_s:
                        self.start(self.finish(fd, f"exceeded its budget of {row.budget_s:.0f} s"))
                self.progress()


def read_rows() -> list[Row]:
    rows = []
    for line in (ROOT / "tests" / "suites").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, budget, lane, command = line.split(None, 3)
            rows.append(Row(name, int(budget), lane, command))
    return rows


def run_all(rows: list[Row], run) -> None:
    """Setup rows, then the lanes, then what needs the machine for itself."""
    lanes: dict[str, list[Row]] = {"setup": [], "alone": []}
    for row in rows:
        lanes.setdefault(row.lane, []).append(row)
    setup, alone = lanes.pop("setup"), lanes.pop("alone")
    for row in setup:
        run([row])
        if row.why:
            return
    run(*lanes.values())
    run(alone)


def run_failed_again(rows: list[Row], run) -> list[str]:
    """Runs what failed once more, one program at a time. Rows all of whose programs pass now have passed.
    Returns the lines of build/logs/flaky."""
    flaky = []
    end = time.monotonic() + RERUN_S
    for row in rows:
        if not row.why or row.why == "not run" or not row.may_rerun:
            continue
        still = []  # failures of those that fail again
        first = row.failures()
        for number, name in enumerate(row.programs_to_rerun(), 1):
            left_s = end - time.monotonic()
            what = f"{row.name} {name}".strip()
            if left_s < 1:
                say(f"-- {what}: not run again: all second runs together may take {RERUN_S:.0f} s")
                still.append(1)
                continue
            again = Row(row.name, min(row.budget_s, left_s), row.lane, row.command)
            again.only, again.tag = name, f"-again{number}"
            run([again])
            if again.why:
                still.append(again.count.failed)
            else:
                flaky.append(what)
        failed = min(sum(still), row.count.failed)
        row.count.passed += row.count.failed - failed
        row.count.failed = failed
        if not still:
            row.why = ""
            row.first_failures = [f.replace("failed in", "failed at first in", 1) for f in first]
    return flaky


def report(rows: list[Row], wall_s: float, flaky: list[str]) -> Count:
    total = Count()
    print("\nsuite              lane    passed failed skipped   seconds  processor  counted  budget")
    for row in rows:
        got = row.count
        total.add(got)
        print(
            f"{row.name:<18} {row.lane:<7} {got.passed:>6} {got.failed:>6} {got.skipped:>7}"
            f" {row.wall_s:>9.1f} {row.cpu_s:>10.1f} {row.counted_s:>8.1f} {row.budget_s:>7}  {row.why}"
        )
    for row in rows:
        for reason in row.count.reasons:
            print(f"skipped in {row.name}: {reason}")
    for row in rows:
        for failure in row.failures() or row.first_failures:
            print(failure)
    print(f"{wall_s:.0f} s in all, {sum(r.cpu_s for r in rows):.0f} s of processors")
    for line in flaky:
        print(f"flaky: {line}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return total


def main(argv: list[str]) -> int:
    full = "--full" in argv
    wanted = [a for a in argv if a != "--full"]
    rows = read_rows()
    unknown = set(wanted) - {r.name for r in rows}
    if unknown:
        names = " ".join(r.name for r in rows)
        print(f"run.py: no suite {min(unknown)!r} in tests/suites; there are: {names}")
        return 2
    if wanted:
        rows = [r for r in rows if r.name in wanted]
    elif not full:
        rows = [r for r in rows if not r.name.startswith("full-")]
    LOGS.mkdir(parents=True, exist_ok=True)

    # Signals only wake the loop: nothing is interrupted between the start of a row and its record.
    stop_fd, wake_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_fd)
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda *_: None)
    began = time.monotonic()
    interrupted = False
    flaky: list[str] = []
    try:
        run = Lanes(stop_fd).run
        run_all(rows, run)
        flaky = run_failed_again(rows, run)
    except Interrupted:
        interrupted = True
    (LOGS / "flaky").write_text("".join(f"{line}\n" for line in flaky))
    total = report(rows, time.monotonic() - began, flaky)
    if interrupted:
        return 130
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
