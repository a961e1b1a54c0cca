#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cleanup.py: variables with CLEANUP(fn) or AUTOFREE that may be released before they have a value.

Such a variable has an initialiser, or statements without a branch lead to one that sets it: an assignment, or a
call of a function with "init" in its name. Otherwise a return between the two releases what was on the stack.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(os.environ.get("LINT_ROOT") or Path(__file__).resolve().parent.parent.parent)
FOLDERS = ("runtime", "operator", "spank_plugin")  # a test that fails leaves without releasing
MARK = re.compile(r"\b(?:CLEANUP\(\w+\)|AUTOFREE\b|__attribute__\(\(cleanup\(\w+\)\)\))")
NOISE = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.MULTILINE,
)
BRANCH = re.compile(r"\s*(?:if|else|for|while|do|switch|case|default|return|goto|break|continue)\b")


def blanked(text: str) -> str:
    """Without comments, texts and preprocessor lines, at the same places."""
    return NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def statement_end(code: str, start: int) -> int:
    """Of the ";", or the brace that opens or closes a block, which ends the statement at start."""
    depth = 0
    for i in range(start, len(code)):
        c = code[i]
        if c in "([" or (c == "{" and (depth or "=" in code[start:i])):
            depth += 1
        elif depth and c in ")]}":
            depth -= 1
        elif not depth and c in ";{}":
            return i
    return len(code)


def declarators(declaration: str) -> Iterator[str]:
    depth, start = 0, 0
    for i, c in enumerate(declaration + ","):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            yield declaration[start:i]
            start = i + 1


def is_set_next(code: str, start: int, name: str) -> bool:
    sets = re.compile(rf"\b\w*init\w*\([^;]*&{name}\b|\b{name}(?:\[\w+\])? = ")
    while start < len(code):
        end = statement_end(code, start)
        statement = code[start:end]
        if BRANCH.match(statement) or code[end : end + 1] != ";":
            return False
        if sets.search(statement):
            return True
        start = end + 1
    return False


def findings(file: str) -> Iterator[str]:
    code = blanked((ROOT / file).read_text(errors="replace"))
    for mark in MARK.finditer(code):
        end = statement_end(code, mark.end())
        for declarator in declarators(code[mark.end() : end]):
            name = re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", declarator)
            if "=" not in declarator and name and not is_set_next(code, end + 1, name[1]):
                line = code.count("\n", 0, mark.start()) + 1
                yield f"{file}:{line}: {name[1]} is released on each return, but has no value yet: initialise it"


def main() -> int:
    patterns = [f"{folder}/*.{kind}" for folder in FOLDERS for kind in ("c", "h", "cu")]
    out = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--", *patterns], check=True, capture_output=True, text=True
    ).stdout
    found = [
        line for file in filter(None, out.split("\0")) if (ROOT / file).is_file() for line in findings(file)
    ]
    print("".join(f"{line}\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
