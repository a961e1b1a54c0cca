# SPDX-License-Identifier: Apache-2.0
"""Finds the places of a source file where one small change makes a mutant, and applies it.

A mutant is identified by what a reader sees, not by line numbers, so that the same sample can be applied
before and after a refactoring that leaves the line alone: the file, the function, the text of the line,
which of the equal lines of that function it is, the column, and what stands there before and after.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    kind: str
    line: str  # without the blanks around it
    nth: int  # of the equal lines of the function
    column: int  # in `line`
    old: str
    new: str

    def as_row(self) -> dict:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.file}: {self.function}: {self.kind}: `{self.line}` {self.old!r} -> {self.new!r}"


COMPARE = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "in": "not in",
}
C_SITES = (  # kind, what is looked for in a line without comments and strings (group 1 is replaced), by what
    ("compare", re.compile(r" (<=|>=|==|!=|<|>) "), lambda m: COMPARE[m[1]]),
    ("logic", re.compile(r"(?:^|\s)(&&|\|\|)(?=\s)"), lambda m: "||" if m[1] == "&&" else "&&"),
    ("constant", re.compile(r"(?<![\w.\"'])(\d{1,9})(?![\w.\"'])"), lambda m: str(int(m[1]) + 1)),
    ("negate", re.compile(r"^(?:} else )?if \((.+)\)(?: {)?$"), lambda m: f"!({m[1]})"),
    ("drop", re.compile(r"^([a-z]\w*(?:->\w+|\.\w+|\[\w+\])* = .+;)$"), lambda m: "(void)0;"),
    ("drop", re.compile(r"^((?:\(void\))?[a-z]\w*\(.*\);)$"), lambda m: "(void)0;"),
    ("return", re.compile(r"^return (.+);$"), lambda m: "1" if m[1] == "0" else "0"),
)
KEYWORDS = re.compile(r"^(return|if|for|while|switch|sizeof|goto|else|do|case)\b")


def blanked(text: str) -> str:
    """C without comments, strings and characters, each byte in its place."""
    pattern = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)


def c_functions(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Name, first and last line of each body, by the layout of clang-format: braces in column 0."""
    start = 0
    for i, line in enumerate(lines):
        if line == "{":
            head, start = i - 1, i + 1
            while head > 0 and lines[head - 1].strip() and not re.match(r"[}#;]", lines[head - 1]):
                head -= 1
            name = re.search(r"(\w+)\s*\(", " ".join(lines[head:i]))
            found = name[1] if name else ""
        elif line == "}" and start and found:
            yield found, start, i
            start = 0


def c_sites(lines: list[str], first: int, last: int) -> Iterator[tuple[str, int, int, str, str]]:
    """kind, line, column, old, new of one body; lines are blanked."""
    for i in range(first, last):
        line = lines[i].rstrip()
        text = line.lstrip()
        indent = len(line) - len(text)
        if not text or text.startswith("#"):
            continue
        for kind, pattern, change in C_SITES:
            if kind == "drop" and KEYWORDS.match(text):
                continue
            for m in pattern.finditer(text):
                yield kind, i, indent + m.start(1), m[1], change(m)


def python_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from python_functions(node, f"{prefix}{node.name}.")


def first_line(function: ast.AST) -> int:
    """The index of the line of the first decorator, or of `def`."""
    return min(node.lineno for node in (function, *function.decorator_list)) - 1


def python_sites(lines: list[str], function: ast.AST) -> Iterator[tuple[str, int, int, str, str]]:
    """The same kinds, of what stands on one line."""

    def of(node: ast.AST) -> str:
        return lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()

    for node in ast.walk(function):
        if getattr(node, "lineno", 0) != getattr(node, "end_lineno", 0) or not hasattr(node, "lineno"):
            continue
        at, old = node.lineno - 1, of(node)
        column = len(lines[at].encode()[: node.col_offset].decode())
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            between = len(of(node.left))
            m = re.match(r"[\s)]*(<=|>=|==|!=|<|>|is|in)(?=\s)", old[between:])
            if m and not re.match(r"[\s)]*is not\b", old[between:]):
                yield "compare", at, column + between + m.start(1), m[1], COMPARE[m[1]]
        elif isinstance(node, ast.BoolOp):
            left, right = node.values[0], node.values[1]
            word = "and" if isinstance(node.op, ast.And) else "or"
            gap = lines[at][left.end_col_offset : right.col_offset]
            if word in gap:
                place = left.end_col_offset + gap.index(word)
                yield "logic", at, place, word, "or" if word == "and" else "and"
        elif isinstance(node, ast.Constant) and type(node.value) is int and old.isdigit():
            yield "constant", at, column, old, str(node.value + 1)
        elif isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)):
            yield "drop", at, column, old, "pass"
        elif isinstance(node, ast.Return) and node.value is not None and old != "return None":
            yield "return", at, column, old, "return None"
    for node in ast.walk(function):
        if isinstance(node, ast.If) and node.test.lineno == node.test.end_lineno:
            test = of(node.test)
            column = len(lines[node.test.lineno - 1].encode()[: node.test.col_offset].decode())
            yield "negate", node.test.lineno - 1, column, test, f"not ({test})"


def places(file: str, text: str) -> Iterator[tuple[Mutant, int, int]]:
    """All mutants of a file, each with its line and column there."""
    lines = text.splitlines()
    if file.endswith(".py"):
        tree = ast.parse(text)
        bodies = [
            (name, first_line(node), node.end_lineno, list(python_sites(lines, node)))
            for name, node in python_functions(tree)
        ]
    else:
        bare = blanked(text).splitlines()
        bodies = [(name, a, b, list(c_sites(bare, a, b))) for name, a, b in c_functions(bare)]
    for name, first, last, sites in bodies:
        seen: dict[str, list[int]] = {}
        for i in range(first, last):
            seen.setdefault(lines[i].strip(), []).append(i)
        for kind, at, column, old, new in sites:
            raw = lines[at][column : column + len(old)]
            new = new.replace(old, raw) if kind == "negate" else new  # with its strings
            line = lines[at].strip()
            indent = len(lines[at]) - len(lines[at].lstrip())
            yield (
                Mutant(file, name, kind, line, seen[line].index(at), column - indent, raw, new),
                at,
                column,
            )


def mutants_of(file: str, text: str) -> list[Mutant]:
    return [mutant for mutant, _, _ in places(file, text)]


def apply(mutant: Mutant, text: str) -> str | None:
    """The file with the mutant's change, or None if it has no such place any more. If the function has
    another name there, the line must be in one place of the file alone."""
    found = [(replace(m, new=mutant.new), at, column) for m, at, column in places(mutant.file, text)]
    fitting = [place for place in found if place[0] == mutant]
    if not fitting and mutant.function not in {m.function for m, _, _ in found}:
        alike = replace(mutant, function="", nth=0)
        fitting = [place for place in found if replace(place[0], function="", nth=0) == alike]
    if len(fitting) != 1:
        return None
    _, at, column = fitting[0]
    lines = text.splitlines(keepends=True)
    lines[at] = lines[at][:column] + mutant.new + lines[at][column + len(mutant.old) :]
    return "".join(lines)
