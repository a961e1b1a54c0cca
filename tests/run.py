#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of tests/suites one after another and adds them up.

Each line of tests/suites is `name budget_seconds command`. A suite over its budget is killed
with everything it started and counts as one failure; rows named `setup-*` prepare (build, download)
and count as no test, but fail the run. A suite's output is TAP, prove's summary, or a line
`N passed, N failed, N skipped`; it is kept in build/logs/NAME.log and its tail is shown when it
fails. The last line adds everything up: `N passed, N failed, N skipped`.

usage: tests/run.py [--full] [NAME ...]     rows whose name starts with full- run only with --full
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / os.environ.get("BUILD", "build") / "logs"

TAP = re.compile(r"^\s*(not )?ok\b(?:\s+\d+)?(.*)$")
SKIP = re.compile(r"#\s*skip\b[:\s]*(.*)", re.IGNORECASE)
PLAIN = re.compile(r"^(?:\w+:\s*)?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$")
PROVE = re.compile(r"^Files=\d+, Tests=(\d+),")
PROVE_FAILED = re.compile(r"\bFailed (\d+)/\d+ subtests")
PROVE_SKIPPED = re.compile(r"\.\. skipped: (.*)$")
PROVE_BAD = re.compile(r"(Non-zero exit status|No plan found|Bad plan|Parse errors)")


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
    prove_failed = prove_bad = 0
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
                tap.reasons.append(skip[1].strip() or "no reason given")
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
        total.passed = max(prove - prove_failed, 0)
        return total
    return tap


def group_lives(pgid: int) -> bool:
    """Whether a process of this group is more than a zombie (PID 1 may reap late)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(pgrp) == pgid and state not in "ZX":
            return True
    return False


def stop_group(pgid: int) -> None:
    for sig, wait_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        if not group_lives(pgid):
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pgid, sig)
        end = time.monotonic() + wait_s
        while group_lives(pgid) and time.monotonic() < end:
            time.sleep(0.05)


def run_suite(name: str, budget_s: int, command: str) -> tuple[Count, float, str]:
    """Runs one row; returns its count, its wall seconds and '' or why it failed."""
    log = LOGS / f"{name}.log"
    began = time.monotonic()
    with log.open("wb") as out:
        child = subprocess.Popen(
            ["bash", "-c", command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        why = ""
        try:
            while True:
                try:
                    rc = child.wait(timeout=min(20, max(1, budget_s)))
                    break
                except subprocess.TimeoutExpired:
                    used = time.monotonic() - began
                    if used > budget_s:
                        why = f"exceeded its budget of {budget_s} s"
                        stop_group(child.pid)
                        rc = child.wait()
                        break
                    print(f"    ... {name}: {used:.0f} s of {budget_s} s", flush=True)
        except BaseException:
            stop_group(child.pid)
            raise
    stop_group(child.pid)
    text = log.read_text(errors="replace")
    result = count(text)
    if not why and rc != 0:
        why = f"exit code {rc}"
    if name.startswith("setup-"):
        result = Count()
        result.failed = 1 if why else 0
    elif why and result.failed == 0:
        result.failed = 1
    elif result.failed and not why:
        why = "tests failed"
    elif not why and result.passed + result.skipped == 0:
        result.failed, why = 1, "ran no test"
    if why:
        tail = "\n".join("    | " + line for line in text.splitlines()[-60:])
        print(f"{tail}\n    {name}: {why}; whole output in {log.relative_to(ROOT)}", flush=True)
    return result, time.monotonic() - began, why


def main(argv: list[str]) -> int:
    full = "--full" in argv
    wanted = [a for a in argv if a != "--full"]
    rows = []
    for line in (ROOT / "tests" / "suites").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, budget, command = line.split(None, 2)
            rows.append((name, int(budget), command))
    unknown = set(wanted) - {r[0] for r in rows}
    if unknown:
        names = " ".join(r[0] for r in rows)
        print(f"run.py: no suite {min(unknown)!r} in tests/suites; there are: {names}")
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    total, table, began = Count(), [], time.monotonic()
    for name, budget_s, command in rows:
        if wanted and name not in wanted:
            continue
        if not wanted and name.startswith("full-") and not full:
            continue
        print(f"== {name} (budget {budget_s} s): {command}", flush=True)
        got, wall_s, why = run_suite(name, budget_s, command)
        total.add(got)
        table.append((name, got, wall_s, budget_s, why))
        if why and name.startswith("setup-"):
            break
    print("\nsuite              passed failed skipped   seconds  budget")
    for name, got, wall_s, budget_s, why in table:
        print(
            f"{name:<18} {got.passed:>6} {got.failed:>6} {got.skipped:>7}"
            f" {wall_s:>9.1f} {budget_s:>7}  {why}"
        )
    for name, got, *_ in table:
        for reason in got.reasons:
            print(f"skipped in {name}: {reason}")
    print(f"{time.monotonic() - began:.0f} s in all")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
