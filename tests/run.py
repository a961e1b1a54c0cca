#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of tests/suites, lanes side by side, and adds them up.

Each line of tests/suites is `name budget_seconds lane command`. Rows of one lane run one after
another, in the order of the file; lanes run side by side, but for two:

    setup   runs before all others; its rows prepare (build, download) and count as no test, but
            a row that fails ends the run
    alone   runs after all others, one row at a time: what measures

A row's output is kept in build/logs/NAME.log; what is printed of a row is printed at its end and in
one piece: one line, and the whole output when it failed. A row over its budget is killed with
everything in its session and counts as one failure. Output is TAP, prove's summary (with --directives,
or nobody hears of skips), or a line `N passed, N failed, N skipped`. The last line adds everything up:
`N passed, N failed, N skipped`. A skip that no line of tests/skips allows is a failure: what the setup
rows bring must not be missing unseen.

One thread waits for the ends of all rows (a pidfd each), so Ctrl-C and SIGTERM have one place to end
what runs. Seconds of processors are those of a row's processes that were waited for: daemons that leave
their parents are not in it.

usage: tests/run.py [--full] [NAME ...]     rows whose name starts with full- run only with --full
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / os.environ.get("BUILD", "build") / "logs"
PROGRESS_S = 20
STOP_S = 20.0  # that a row has between SIGTERM and SIGKILL, to take down what it set up
SHOWN_LINES = 2000  # of a failed row
NAMED_FAILURES = 20  # of a failed row, once more at the end
WHY_LINES = 10  # that say why, after the first of them
WHY_WIDTH = 200

TAP = re.compile(r"^\s*(not )?ok\b(?:\s+\d+)?(.*)$")
SKIP = re.compile(r"#\s*skip\b[:\s]*(.*)", re.IGNORECASE)
PLAIN = re.compile(r"^(?:\w+:\s*)?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$")
PROVE = re.compile(r"^Files=\d+, Tests=(\d+),")
PROVE_FAILED = re.compile(r"\bFailed (\d+)/\d+ subtests")
PROVE_SKIPPED = re.compile(r"\.\. skipped: (.*)$")
PROVE_BAD = re.compile(r"(Non-zero exit status|No plan found|Bad plan|Parse errors)")
FAILURE = re.compile(
    r"^\s*not ok\b(?!.*#\s*skip)|^(FAIL|ERROR): |\(Wstat: |^\s+Failed tests?: ", re.IGNORECASE
)


class Count:
    """What one suite reported; reasons holds the text behind each `# SKIP`."""

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0
        self.reasons: list[str] = []

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.reasons += other.reasons


def count(text: str) -> Count:
    """Counts a suite's output: a plain closing line wins over prove's summary, that over TAP lines."""
    tap, plain, prove = Count(), None, None
    prove_failed = prove_bad = prove_skips = 0
    for line in text.splitlines():
        if m := PLAIN.match(line):
            plain = Count()
            plain.passed, plain.failed = int(m[1]), int(m[2])
            plain.skipped = int(m[3] or 0)
        elif m := PROVE.match(line):
            prove = (prove or 0) + int(m[1])
        elif m := PROVE_FAILED.search(line):
            prove_failed += int(m[1])
        elif m := PROVE_SKIPPED.search(line):
            tap.skipped += 1
            tap.reasons.append(m[1].strip())
        elif m := TAP.match(line):
            skip = SKIP.search(m[2])
            if skip:
                tap.skipped += 1
                prove_skips += 1
                name = m[2][: skip.start()].strip(" -")
                tap.reasons.append(skip[1].strip() or f"{name or 'a test'}, no reason given")
            elif m[1]:
                tap.failed += 1
            else:
                tap.passed += 1
        if PROVE_BAD.search(line):
            prove_bad += 1
    if plain:
        plain.reasons = tap.reasons
        return plain
    if prove is not None:
        total = Count()
        total.skipped, total.reasons = tap.skipped, tap.reasons
        total.failed = max(prove_failed, 1 if prove_bad else 0)
        total.passed = max(prove - prove_failed - prove_skips, 0)
        return total
    return tap


def session_lives(sid: int) -> list[int]:
    """Processes of this session that are more than zombies (PID 1 may reap late)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(session) == sid and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def stop_session(sid: int) -> None:
    for sig, wait_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, 5.0)):
        for pid in session_lives(sid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        end = time.monotonic() + wait_s
        while session_lives(sid):
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        else:
            return


def may_skip(said: str) -> bool:
    """Whether a line of tests/skips, a regular expression, is found in `ROW: REASON`."""
    file = ROOT / "tests" / "skips"
    if not file.exists():
        return True
    lines = file.read_text().splitlines()
    return any(re.search(line, said) for line in lines if line and not line.startswith("#"))


class Row:
    """A line of tests/suites, and what came of it: `count`, `why` it failed or "", seconds."""

    def __init__(self, name: str, budget_s: int, lane: str, command: str) -> None:
        self.name, self.budget_s, self.lane, self.command = name, budget_s, lane, command
        self.log = LOGS / f"{name}.log"
        self.count, self.why = Count(), "not run"
        self.wall_s = self.cpu_s = 0.0

    def start(self) -> None:
        self.began = time.monotonic()
        with self.log.open("wb") as out:
            self.child = subprocess.Popen(
                ["bash", "-c", self.command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pidfd = os.pidfd_open(self.child.pid)

    def used_s(self) -> float:
        return time.monotonic() - self.began

    def end(self, why: str = "") -> None:
        """After the child's end, or to make one, for which `why` is given."""
        if why:
            stop_session(self.child.pid)
        os.close(self.pidfd)
        _, status, usage = os.wait4(self.child.pid, 0)
        self.child.returncode = rc = os.waitstatus_to_exitcode(status)
        stop_session(self.child.pid)
        self.wall_s, self.cpu_s = self.used_s(), usage.ru_utime + usage.ru_stime
        self.judge(why or (f"exit code {rc}" if rc else ""))

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
        self.told = time.monotonic()

    def start(self, rows: list[Row]) -> None:
        if rows:
            row, *rest = rows
            say(f"== {row.name} (budget {row.budget_s} s): {row.command}")
            row.start()
            self.running[row.pidfd] = row, rest
            self.ends.register(row.pidfd, selectors.EVENT_READ)

    def finish(self, fd: int, why: str = "") -> list[Row]:
        row, rest = self.running.pop(fd)
        self.ends.unregister(fd)
        row.end(why)
        return rest

    def wait_s(self) -> float:
        """To the next budget's end or the next word of progress."""
        over = min(row.budget_s - row.used_s() for row, _ in self.running.values())
        return max(0.0, min(over, self.told + PROGRESS_S - time.monotonic()))

    def progress(self) -> None:
        if time.monotonic() - self.told >= PROGRESS_S:
            self.told = time.monotonic()
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
                    for fd in list(self.running):
                        self.finish(fd, "interrupted")
                    raise Interrupted
                for fd, (row, _) in list(self.running.items()):
                    if fd in ready:
                        self.start(self.finish(fd))
                    elif row.used_s() >= row.budget_s:
                        self.start(self.finish(fd, f"exceeded its budget of {row.budget_s} s"))
                self.progress()


def read_rows() -> list[Row]:
    rows = []
    for line in (ROOT / "tests" / "suites").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, budget, lane, command = line.split(None, 3)
            rows.append(Row(name, int(budget), lane, command))
    return rows


def run_all(rows: list[Row], stop_fd: int) -> None:
    """Setup rows, then the lanes, then what wants the machine for itself."""
    lanes: dict[str, list[Row]] = {"setup": [], "alone": []}
    for row in rows:
        lanes.setdefault(row.lane, []).append(row)
    setup, alone = lanes.pop("setup"), lanes.pop("alone")
    run = Lanes(stop_fd).run
    for row in setup:
        run([row])
        if row.why:
            return
    run(*lanes.values())
    run(alone)


def report(rows: list[Row], wall_s: float) -> Count:
    total = Count()
    print("\nsuite              lane    passed failed skipped   seconds  processor  budget")
    for row in rows:
        got = row.count
        total.add(got)
        print(
            f"{row.name:<18} {row.lane:<7} {got.passed:>6} {got.failed:>6} {got.skipped:>7}"
            f" {row.wall_s:>9.1f} {row.cpu_s:>10.1f} {row.budget_s:>7}  {row.why}"
        )
    for row in rows:
        for reason in row.count.reasons:
            print(f"skipped in {row.name}: {reason}")
    for row in rows:
        for failure in row.failures():
            print(failure)
    print(f"{wall_s:.0f} s in all, {sum(r.cpu_s for r in rows):.0f} s of processors")
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
    try:
        run_all(rows, stop_fd)
    except Interrupted:
        interrupted = True
    total = report(rows, time.monotonic() - began)
    if interrupted:
        return 130
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
