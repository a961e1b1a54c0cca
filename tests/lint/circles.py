#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""circles.py OBJECTS: circles of more than five files, with their arrows.

File a depends on file b if a.o needs a symbol that b.o defines. Files that all depend on each other, directly or
through other files, form a circle. OBJECTS has the objects at the places of their sources; an object that is older
than its source does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(os.environ.get("LINT_ROOT") or Path(__file__).resolve().parent.parent.parent)
FOLDERS = ("runtime", "operator", "spank_plugin")
MOST_FILES = 5
MOST_SYMBOLS = 4  # printed of an arrow
SKIPPED = 77
Arrows = dict[str, dict[str, list[str]]]  # from a source to those that it depends on, with the symbols


def built(objects: Path) -> list[str]:
    """Sources with an object that is not older."""
    patterns = [f"{folder}/*.c" for folder in FOLDERS]
    out = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--", *patterns], check=True, capture_output=True, text=True
    ).stdout
    found = []
    for source in filter(None, out.split("\0")):
        o, c = (objects / source).with_suffix(".o"), ROOT / source
        if c.is_file() and o.is_file() and o.stat().st_mtime >= c.stat().st_mtime:
            found.append(source)
    return found


def arrows_of(objects: Path, sources: list[str]) -> Arrows:
    """Where several files define a symbol, the one in the same folder counts: they are of different programs."""
    by_object = {str((objects / source).with_suffix(".o")): source for source in sources}
    out = subprocess.run(["nm", "-A", "-g", *by_object], check=True, capture_output=True, text=True).stdout
    needs, defines = defaultdict(list), defaultdict(list)
    for line in out.splitlines():
        o, _, rest = line.partition(":")
        kind, name = rest.split()[-2:]
        (needs if kind in "Uwv" else defines)[name].append(by_object[o])
    arrows: Arrows = {source: {} for source in sources}
    for name, users in needs.items():
        for user in users:
            to = defines[name]
            if len(to) > 1:
                to = [d for d in to if os.path.dirname(d) == os.path.dirname(user)]
            for source in to:
                arrows[user].setdefault(source, []).append(name)
    return arrows


def reached(arrows: Arrows, start: str) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        new = [to for to in arrows[left.pop()] if to not in seen]
        seen.update(new)
        left += new
    return seen


def circles_of(arrows: Arrows) -> list[list[str]]:
    reach = {source: reached(arrows, source) for source in arrows}
    circles = {tuple(sorted(to for to in reach[source] if source in reach[to])) for source in arrows}
    return sorted(list(c) for c in circles if len(c) > MOST_FILES)


def main() -> int:
    objects = ROOT / sys.argv[1]
    sources = built(objects)
    if not sources:
        print("nothing is built: make all")
        return SKIPPED
    arrows = arrows_of(objects, sources)
    circles = circles_of(arrows)
    for circle in circles:
        print(f"a circle of {len(circle)} files, at most {MOST_FILES} may depend on each other:")
        for source in circle:
            for to in sorted(set(arrows[source]) & set(circle)):
                names = sorted(arrows[source][to])
                more = f" and {len(names) - MOST_SYMBOLS} more" if len(names) > MOST_SYMBOLS else ""
                print(f"{source} -> {to}: {', '.join(names[:MOST_SYMBOLS])}{more}")
    return 1 if circles else 0


if __name__ == "__main__":
    sys.exit(main())
