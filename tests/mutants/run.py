#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes the product in small ways, one at a time, and reports which changes no test notices.

    make mutants                          300 mutants of HEAD
    tests/mutants/run.py --sample 20 --part contract --part launch
    tests/mutants/run.py --base v0.1 --out before.jsonl
    tests/mutants/run.py --replay before.jsonl         the same mutants on HEAD

To learn in hours what a change of the tests between commits A and B lost, without the costly rows:

    tests/mutants/run.py --base B --units --out b.jsonl
    tests/mutants/run.py --base A --units --replay b.jsonl --only survived --out a.jsonl
    tests/mutants/run.py --base B --replay a.jsonl --only caught       what survives here, A alone caught

The product is taken from a commit and built in build/mutants/tree, so the working tree may be edited
meanwhile. Each mutant (sites.py) is compiled, then the unit programs that contain its object run, those
named after its file first, then the part's row below, until one fails. The outcome is one of

    caught       a test failed, or a program ran five times as long as it takes without the mutant
    uncompiled   the compiler refused it (with the warnings of the build)
    survived     everything passed: a test is missing, or the code does nothing
    gone         with --replay: this tree has no such line any more

Parts whose tests need root (spank_plugin) have their unit programs alone. A survivor is a hint: many
change what cannot be observed (a buffer's size, the text of a log). The outcomes are written to
build/mutants/results.jsonl as they come.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from sites import Mutant, apply, mutants_of

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / os.environ.get("BUILD", "build") / "mutants"
TREE = WORK / "tree"
OPERATOR = "make test-operator-fake"
LAUNCH = "RM_ONLY='tests/launch/horovodrun_test.py tests/launch/signals_test.py' make test-launch"
FOUND = "RM_ONLY=tests/found/found_test.py make test-found"
PYTHON = "tests/python/run.sh {names}"
VALUES = "tests/python/run.sh collectives"
GPU = "make test-gpu"
TENSORFLOW = "tests/python/run.sh tensorflow.TensorFlow.test_2 tensorflow_gpu"
# part, how its files begin, and the row to run when no unit program fails. The longest beginning counts.
PARTS = (
    ("base", "runtime/base/", ""),
    ("contract", "runtime/contract/", ""),
    ("rendezvous", "runtime/rendezvous/", ""),
    ("bootstrap", "runtime/bootstrap/", FOUND),
    ("core", "runtime/core/", VALUES),
    ("control", "runtime/control/", VALUES),
    ("api", "runtime/api/", VALUES),
    ("world", "runtime/world/", VALUES),
    ("engine", "runtime/engine/", VALUES),
    ("observe", "runtime/observe/", VALUES),
    ("cpu", "runtime/backend/", VALUES),
    ("gpu", "runtime/backend/nccl/", GPU),
    ("tensorflow", "runtime/tensorflow/", TENSORFLOW),
    ("launch", "runtime/launch/", LAUNCH),
    ("python", "runtime/python/", PYTHON),
    ("operator-core", "operator/core/", ""),
    ("operator-core", "operator/doc/", ""),
    ("cli", "operator/cli/", "make test-cli"),
    ("operator", "operator/", OPERATOR),
    ("slurm", "spank_plugin/", ""),
)
# Of a Python file: the tests whose names are in its path, else these.
PYTHON_TESTS = ("torch", "tensorflow", "keras", "perseus", "state", "run", "timeline", "compress")
PYTHON_ELSE = "names state collectives"
# Warnings about the form of the code are not what should find a mutant.
LENIENT = " ".join(f"-Wno-{w}" for w in ("unused", "unused-parameter", "empty-body", "parentheses"))
BUILD_S, ROW_S, LEAST_S, SLOWER = 300, 900, 20, 5


class Refused(Exception):
    """What ends the run with an error message."""


def part_of(file: str) -> tuple[str, str] | None:
    fitting = [(len(start), name, row) for name, start, row in PARTS if file.startswith(start)]
    return max(fitting)[1:] if fitting else None


def row_of(file: str) -> str:
    row = part_of(file)[1]
    path = file.removeprefix("runtime/python/").lower()
    names = [name for name in PYTHON_TESTS if name in path] if row == PYTHON else []
    return row.format(names=" ".join(names) or PYTHON_ELSE)


def shell(command: str, limit_s: float, log: Path | None = None) -> int | None:
    """The exit code in the tree; None: it ran too long. Nothing that it started in its session is left."""
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("BUILD", "MAKEFLAGS", "MAKELEVEL", "RM_ONLY", "RM_FAILED")
    }
    env["CMOCKA_MESSAGE_OUTPUT"] = "TAP"
    with (log or WORK / "last.log").open("wb") as out:
        child = subprocess.Popen(
            ["bash", "-c", command], cwd=TREE, env=env, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def git(*args: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *args], check=True, capture_output=True, text=True).stdout


def check_out(base: str) -> None:
    """The commit's files with today's times, so that make builds what differs; objects stay."""
    TREE.mkdir(parents=True, exist_ok=True)
    for old in TREE.iterdir():
        if old.name != "build":
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", base], stdout=subprocess.PIPE)
    subprocess.run(["tar", "xm", "-C", TREE], stdin=archive.stdout, check=True)
    if archive.wait() != 0:
        raise Refused(f"no commit {base}")


def sample(base: str, seed: int, wanted: int, parts: list[str]) -> list[Mutant]:
    """The same number of each part, in turns, so that an interrupted run has tried all parts. Places are
    ordered by a hash of what identifies them, so that a change elsewhere in the tree exchanges few of them."""
    by_part: dict[str, list[tuple[str, Mutant]]] = {}
    for file in git("ls-tree", "-r", "--name-only", base).splitlines():
        part = part_of(file) if file.endswith((".c", ".py")) else None
        if part and (not parts or part[0] in parts):
            for mutant in mutants_of(file, (TREE / file).read_text()):
                key = hashlib.sha256(
                    f"{seed}\n{mutant}\n{mutant.nth}\n{mutant.column}".encode()
                ).hexdigest()
                by_part.setdefault(part[0], []).append((key, mutant))
    chosen, names = [], sorted(by_part)
    for i, name in enumerate(names):
        share = wanted * (i + 1) // len(names) - wanted * i // len(names)
        ordered = sorted(by_part[name], key=lambda entry: entry[0])
        chosen += [(turn, mutant) for turn, (_, mutant) in enumerate(ordered[:share])]
    return [mutant for _, mutant in sorted(chosen, key=lambda entry: entry[0])]


class Programs:
    """The unit programs of the tree: which contain an object, and how long they take."""

    def __init__(self) -> None:
        folder = TREE / "build/plain/unit"
        self.objects: dict[str, set[str]] = {}
        for program in sorted(folder.glob("*_test")):
            table = subprocess.run(["readelf", "-sW", program], capture_output=True, text=True).stdout
            self.objects[program.name] = set(re.findall(r"\bFILE\s+LOCAL\s+DEFAULT\s+ABS (\S+)", table))
        self.took_s: dict[str, float] = {}

    def of(self, file: str) -> list[str]:
        """The program named after the file first, then those of few objects, which are quick."""
        path = Path(file)
        fitting = [name for name, objects in self.objects.items() if path.name in objects]
        return sorted(
            fitting,
            key=lambda name: (not name.endswith(f"_{path.stem}_test"), len(self.objects[name]), name),
        )

    def measure(self, name: str) -> None:
        """A program that fails without any mutant is not used."""
        start = time.monotonic()
        if shell(f"build/plain/unit/{name}", ROW_S) == 0:
            self.took_s[name] = time.monotonic() - start

    def limit_s(self, name: str) -> float:
        return max(LEAST_S, SLOWER * self.took_s[name])


def judge(mutant: Mutant, programs: Programs, most: int, row: str) -> tuple[str, str]:
    """The outcome and what it is due to, with the mutant in the tree; row: the part's row, or nothing."""
    chosen = [name for name in programs.of(mutant.file) if name in programs.took_s][:most]
    if mutant.file.endswith(".c"):
        target = "build/plain/" + mutant.file[:-2] + ".o"
        if shell(f"CPPFLAGS='{LENIENT}' make -s {target}", BUILD_S) != 0:
            return "uncompiled", ""
    for name in chosen:
        if shell(f"make -s build/plain/unit/{name}", BUILD_S) != 0:
            return "uncompiled", name
        if (rc := shell(f"build/plain/unit/{name}", programs.limit_s(name))) != 0:
            return "caught", f"{name} timed out" if rc is None else name
    if row and (rc := shell(row, ROW_S)) != 0:
        return "caught", f"{row} timed out" if rc is None else row
    return "survived", f"{len(chosen)} programs" + (f" and {row}" if row else "")


def attempt(mutant: Mutant, programs: Programs, most: int, row: str) -> tuple[str, str]:
    path = TREE / mutant.file
    text = path.read_text() if path.exists() else ""
    changed = apply(mutant, text)
    if changed is None:
        return "gone", ""
    path.write_text(changed)
    try:
        return judge(mutant, programs, most, row)
    finally:
        path.write_text(text)


def summary(rows: list[dict]) -> None:
    kinds = ("caught", "survived", "uncompiled", "gone")
    print(f"\n{'part':<16}" + "".join(f"{kind:>12}" for kind in kinds) + f"{'of compiled':>14}")
    for part in [*sorted({row["part"] for row in rows}), "all"]:
        got = [row["outcome"] for row in rows if part in ("all", row["part"])]
        n = {kind: got.count(kind) for kind in kinds}
        tried = n["caught"] + n["survived"]
        share = f"{100 * n['caught'] / tried:.0f} %" if tried else "-"
        print(f"{part:<16}" + "".join(f"{n[kind]:>12}" for kind in kinds) + f"{share:>14}")
    for row in rows:
        if row["outcome"] == "survived":
            print(f"survived: {Mutant(**row['mutant'])}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Small changes of the product that no test notices.")
    parser.add_argument("--base", default="HEAD", help="the commit to change")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", action="append", default=[], choices=sorted({p[0] for p in PARTS}))
    parser.add_argument("--most", type=int, default=12, help="unit programs for one mutant")
    parser.add_argument("--out", type=Path, default=WORK / "results.jsonl")
    parser.add_argument("--units", action="store_true", help="unit programs alone, no row of the part")
    parser.add_argument("--replay", type=Path, help="results whose mutants are applied again")
    parser.add_argument(
        "--only", choices=("caught", "survived"), help="of --replay: those with this outcome"
    )
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    check_out(options.base)
    if options.replay:
        before = [json.loads(line) for line in options.replay.open()]
        chosen = [Mutant(**r["mutant"]) for r in before if options.only in (None, r["outcome"])]
    else:
        chosen = sample(options.base, options.seed, options.sample, options.part)
    print(f"{len(chosen)} mutants of {options.base}; building build/mutants/tree", flush=True)
    units = " ".join(f"build/plain/unit/{path.stem}" for path in (TREE / "tests/unit").glob("*_test.c"))
    has_rows = not options.units and any(row_of(mutant.file) for mutant in chosen)
    rows = "all test-programs" if has_rows else ""
    if shell(f"make -j2 {units} {rows}", 3600) != 0:
        raise Refused(f"{options.base} does not build: {WORK / 'last.log'}")
    programs = Programs()
    for name in sorted({name for m in chosen for name in programs.of(m.file)[: options.most]}):
        programs.measure(name)
    rows = []
    with options.out.open("w") as out:
        for number, mutant in enumerate(chosen, 1):
            start = time.monotonic()
            outcome, why = attempt(
                mutant, programs, options.most, "" if options.units else row_of(mutant.file)
            )
            row = {
                "part": part_of(mutant.file)[0],
                "outcome": outcome,
                "why": why,
                "mutant": mutant.as_row(),
            }
            rows.append(row)
            print(json.dumps(row), file=out, flush=True)
            print(
                f"{number}/{len(chosen)} {outcome} ({time.monotonic() - start:.0f} s; {why}): {mutant}",
                flush=True,
            )
    summary(rows)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as e:
        print(f"mutants: {e}", file=sys.stderr)
        sys.exit(1)
