#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""counts.py CHECK [--list]: what is not yet as it should be, and may only become less.

Each thing is counted over the whole tree. tests/lint/ratchet has the most that each may be, `KEY COUNT`; a key
without a line may be 0. `counts.py --lower` (make lint-ratchet) writes today's counts there where they are
smaller. A finding is printed where a count is over: the new place is among those listed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(os.environ.get("LINT_ROOT") or Path(__file__).resolve().parent.parent.parent)
RATCHET = ROOT / "tests/lint/ratchet"
SHOWN = 40
MOST_ONE_WORD = 50  # one function in so many may have a name of one word
MOST_COLUMNS = 100
Finding = tuple[str, str]  # where, what

# The private dialect, and what to write. An underscore counts as a blank, for names of tests.
WORDS = {
    "whoever": "a rank that, the process that",
    "wherefore|thereof|lest|hither|thence|whence": "plain words",
    "(is|are|was|were|be|been) told": "receives, is reported",
    "tells|hears": "reports, sends, receives",
    "(made|read|formed|built|started|asked|called) anew": "recreated, read again",
    "(are|is|was|were|be|being) made again": "recreated",
    "in vain|for nothing": "without success, unused",
    "(is|are) none of": "must be one of",
    "of (its|their) own accord": "by itself",
    "is there no more|are there no more": "no longer exists",
    "goes on|go on|went on": "continues",
    "mended|mends": "fixed, repaired",
    "who (has|asks|says|waits|comes)": "the rank that, the process that",
    "the others": "the other ranks, the other pods",
}


def tracked(*patterns: str) -> list[str]:
    out = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--", *patterns], check=True, capture_output=True, text=True
    ).stdout
    return [f for f in out.split("\0") if f and (ROOT / f).is_file() and not (ROOT / f).is_symlink()]


def lines_of(file: str) -> list[str]:
    return (ROOT / file).read_text(errors="replace").splitlines()


def c_functions(file: str) -> Iterator[tuple[int, str]]:
    """Line and name, by the layout of clang-format: a body's brace is in column 0."""
    lines = lines_of(file)
    for i, line in enumerate(lines):
        head = i - 1
        if line != "{" or head < 0:
            continue
        while head > 0 and lines[head - 1].strip() and lines[head - 1][0] not in "}#/ *":
            head -= 1
        while lines[head].startswith(" ") and head > 0:  # parameters on lines of their own
            head -= 1
        if m := re.search(r"(\w+)\s*\(", re.sub(r"__attribute__\(\(.*?\)\)", "", " ".join(lines[head:i]))):
            yield head + 1, m[1]


def names() -> dict[str, list[Finding]]:
    sources = tracked("*.c", "*.h", "*.cu")
    found: dict[str, list[Finding]] = {"equal-tag": [], "null": [], "sizeof": []}
    functions = [(f"{file}:{line}", name) for file in sources for line, name in c_functions(file)]
    plain = [
        (where, f"{name}(): its name has one word")
        for where, name in functions
        if "_" not in name.strip("_") and name not in ("main", "LLVMFuzzerTestOneInput")
    ]
    found["one-word"] = plain if len(plain) * MOST_ONE_WORD > len(functions) else []
    tags: dict[str, list[str]] = defaultdict(list)
    for file in sources:
        for i, line in enumerate(lines_of(file), 1):
            if (m := re.match(r"\s*(?:static |const )*struct (\w+) \{", line)) and not file.startswith(
                "tests/"
            ):
                tags[m[1]].append(f"{file}:{i}")
            if re.search(r"== NULL\b", line):
                found["null"].append((f"{file}:{i}", "write !p"))
            if re.search(r"\bsizeof [\w*&]", line) and not re.match(r"\s*(/?\*|//)", line):
                found["sizeof"].append((f"{file}:{i}", "write sizeof(x)"))
    for tag, places in sorted(tags.items()):
        found["equal-tag"] += [(p, f"struct {tag} is also in {places[0]}") for p in places[1:]]
    return found


def prose() -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {"dialect": [], "wide": []}
    words = "|".join(WORDS).replace(" ", "[ _]")
    pattern = re.compile(rf"(?<![A-Za-z])(?:{words})(?![A-Za-z])", re.IGNORECASE)
    kinds = ("*.c", "*.h", "*.cu", "*.py", "*.sh", "*.mk", "*.md", "*.1", "*.7", "*.8", "Makefile")
    for file in tracked(*kinds):
        if re.search(r"/(testdata|corpus|golden|upstream)/", file) or file == "tests/lint/counts.py":
            continue
        for i, line in enumerate(lines_of(file), 1):
            found["dialect"] += [(f"{file}:{i}", m[0]) for m in pattern.finditer(line)]
    for file in tracked("*.md"):
        is_code = False
        for i, line in enumerate(lines_of(file), 1):
            is_code ^= line.lstrip().startswith("```")
            is_text = not is_code and not re.match(r"\s*(\||    |<!--|\[[^]]+\]:)", line)
            if is_text and len(line) > MOST_COLUMNS and " " in line[:MOST_COLUMNS].strip():
                found["wide"].append((f"{file}:{i}", f"{len(line)} columns, at most {MOST_COLUMNS}"))
    return found


CHECKS = {"names": names, "prose": prose}


def limits() -> dict[str, int]:
    if not RATCHET.exists():
        return {}
    rows = (line.split() for line in RATCHET.read_text().splitlines() if line[:1] not in ("#", ""))
    return {key: int(most) for key, most in rows}


def lower() -> None:
    most, head = limits(), ""
    if RATCHET.exists():
        head = "".join(f"{x}\n" for x in RATCHET.read_text().splitlines() if x.startswith("#"))
    counted = {key: len(places) for check in CHECKS.values() for key, places in check().items()}
    rows = {key: min(n, most.get(key, n if not most else 0)) for key, n in counted.items()}
    RATCHET.write_text(head + "".join(f"{key} {n}\n" for key, n in sorted(rows.items()) if n))


def main() -> int:
    if sys.argv[1:] == ["--lower"]:
        lower()
        return 0
    found = CHECKS[sys.argv[1]]()
    most, rc = limits(), 0
    for key, places in found.items():
        if "--list" in sys.argv:
            print("".join(f"{where}: {key}: {what}\n" for where, what in places), end="")
        elif len(places) > most.get(key, 0):
            rc = 1
            for where, what in places[:SHOWN]:
                print(f"{where}: {key}: {what}")
            print(
                f"tests/lint/ratchet: {key}: {len(places)} in the tree, at most {most.get(key, 0)};"
                f" tests/lint/counts.py {sys.argv[1]} --list has all"
            )
    return rc


if __name__ == "__main__":
    sys.exit(main())
