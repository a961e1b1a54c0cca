# SPDX-License-Identifier: Apache-2.0
"""Reads a suite's output: how many tests passed, failed and were skipped, and which programs failed."""

from __future__ import annotations

import re

TAP = re.compile(r"^\s*(not )?ok\b(?:\s+\d+)?(.*)$")
SKIP = re.compile(r"#\s*skip\b[:\s]*(.*)", re.IGNORECASE)
PLAIN = re.compile(r"^(?:\w+:\s*)?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$")
PROVE = re.compile(r"^Files=\d+, Tests=(\d+),")
PROVE_FAILED = re.compile(r"\bFailed (\d+)/\d+ subtests")
PROVE_SKIPPED = re.compile(r"\.\. skipped: (.*)$")
PROVE_BAD = re.compile(r"(Non-zero exit status|No plan found|Bad plan|Parse errors)")
PROVE_PROGRAM = re.compile(r"^(\S+)\s+\(Wstat: ", re.MULTILINE)
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
    """Counts a suite's output. A plain closing line has precedence over prove's summary, which has
    precedence over single TAP lines."""
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


def failed_programs(text: str) -> list[str]:
    """Programs that prove's summary lists as failed, in its order."""
    return list(dict.fromkeys(PROVE_PROGRAM.findall(text)))
