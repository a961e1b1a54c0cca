#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a folder of Horovod's tests on N ranks, merges what the ranks saw and compares with a record.

    run.py TESTS...  --- one launch a file ---> rank.py x N --- OUT/FILE/K/rank.R.jsonl
       |                                                             |
       '--- table, skips, disagreements, what was worse <--- merge --'

A file runs in one process a rank. When a test hangs or kills a rank, the file is launched again (K
counts) without the tests that are done and without that one, so that one bad test costs only itself.
Outcomes: passed, failed, skipped, hung, crashed, and disagree where ranks saw different ones.

expected/NAME.tsv has a row a test and a column a way of running (mpirun-2 ...), written by --record.
The exit code is 0 when no test came out worse than there.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXPECTED = HERE / "expected"
TRIES = 30
FRAMEWORKS = ("torch", "tensorflow", "keras", "mxnet", "ray", "pyspark", "pytorch_lightning")
# Run with names as arguments; prints those that cannot be imported.
HAS = """
import importlib.util, sys
for name in sys.argv[1:]:
    module, _, attribute = name.partition(":")
    try:
        found = importlib.util.find_spec(module) is not None
        if found and attribute:
            found = hasattr(importlib.import_module(module), attribute) or \\
                importlib.util.find_spec(module + "." + attribute) is not None
    except ImportError:
        found = False
    if not found:
        print(name)
"""
LAUNCHERS = ("mpirun", "mpiexec", "horovodrun")
TOOLS = re.compile(r"/(_pytest|pluggy|unittest)/|/rank\.py|^Extension modules")
BAD = ("failed", "hung", "crashed", "disagree")


def die(text):
    sys.exit(f"run.py: {text}")


def setup(*command):
    """What a script of tests/setup prints: a path."""
    made = subprocess.run(
        [ROOT / "tests/setup" / command[0], *command[1:]], stdout=subprocess.PIPE, text=True, check=False
    )
    if made.returncode:
        die(f"tests/setup/{' '.join(command)} failed; the reason is above")
    return made.stdout.strip().splitlines()[-1] if made.stdout.strip() else ""


def site_packages(environment):
    return str(next(Path(environment).glob("lib/python3*/site-packages")))


class World:
    """What the tests run with: an interpreter, the package under test, a launcher, N ranks."""

    def __init__(self, args):
        self.args, self.np, self.launcher = args, args.np, args.launcher
        self.tag = f"{args.launcher}-{args.np}"
        tools = site_packages(setup("venv.sh", "conform"))
        if args.python == "debian":
            setup("deb.sh", "torch", "mpi")
            self.python = "/usr/bin/python3"
        elif Path(args.python).is_absolute():
            self.python = args.python
        else:
            self.python = f"{setup('venv.sh', args.python)}/bin/python"
        if args.horovod:
            real = setup("horovod.sh") if args.horovod == "original" else args.horovod
            self.horovodrun, path = f"{real}/bin/horovodrun", [site_packages(real), tools]
        else:
            tree = ROOT / os.environ.get("O", "build/plain")
            self.horovodrun, path = str(tree / "bin/horovodrun"), [str(tree / "python"), tools]
        foreign = ("HOROVOD_", "HVD_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "PYTEST_", "RANK", "WORLD_SIZE")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
            self.env.pop(name, None)
        if args.keras2:
            path.append(site_packages(setup("venv.sh", "keras2")))
            self.env.update(TF_USE_LEGACY_KERAS="1")
        self.env.update(PYTHONPATH=os.pathsep.join(path), PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
        self.env.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", PYTHONUNBUFFERED="1")

    def lacking(self, names):
        """Those of the names (see needs) that this interpreter has not."""
        said = subprocess.run(
            [self.python, "-c", HAS, *sorted(names)],
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if said.returncode:
            die(f"{self.python} does not work")
        return set(said.stdout.split())

    def command(self, alone, words):
        """How words are started on all ranks; alone: as one process without a launcher."""
        if alone:
            return [self.python, *words]
        n = str(self.np)
        if self.launcher == "horovodrun":
            gloo = ["--gloo"] if self.args.horovod else []
            return [self.python, self.horovodrun, *gloo, "-np", n, self.python, *words] if gloo else [
                self.horovodrun, "-np", n, self.python, *words
            ]  # fmt: skip
        if self.launcher == "mpiexec":
            return ["mpiexec.mpich", "-n", n, self.python, *words]
        mpirun = shutil.which("mpirun.openmpi") or "mpirun"
        options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        return [mpirun, *options, "-np", n, self.python, *words]


def needs(file):
    """What a test file imports at its top and may be lacking: frameworks, by themselves or by horovod's
    modules, and parts of horovod.runner, as MODULE or MODULE:NAME."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        names, of = [], []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names, of = [node.module], [alias.name for alias in node.names]
        for name in names:
            words = name.split(".")
            framework = words[1] if words[0] == "horovod" and len(words) > 1 else words[0]
            found |= {framework} & {*FRAMEWORKS}
            if name.startswith("horovod.runner"):
                found |= {f"{name}:{n}" for n in of} or {name}
    return found


def files_of(tests):
    """Test files of files and folders; a folder that has parallel/ or single/ stands for those."""
    found = []
    for text in tests:
        path = Path(text).resolve()
        inner = [path / name for name in ("parallel", "single") if (path / name).is_dir()]
        if path.is_dir():
            found += [f for d in inner or [path] for f in sorted(d.glob("test_*.py"))]
        elif path.exists():
            found.append(path)
        else:
            die(f"TESTS={text}: there is no such file or folder")
    return found


class Rank:
    """What one rank wrote in one launch."""

    def __init__(self, out, number):
        self.tests, self.ended, self.started, self.errors, self.left = [], {}, [], [], ""
        self.finished = False
        path = out / f"rank.{number}.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            said = json.loads(line)
            self.tests = said.get("tests", self.tests)
            self.finished |= said.get("finished", False)
            self.left = said.get("left", self.left)
            if "collection" in said:
                self.errors.append(said["collection"])
            if "start" in said:
                self.started.append(said["start"])
            if "end" in said:
                self.ended[said["end"]] = said
        stacks = out / f"rank.{number}.stacks"
        self.stacks = stacks.read_text() if stacks.exists() else ""


class Test:
    """One test's merged outcome and, by rank, what each saw."""

    def __init__(self, said):
        self.said = said  # [(outcome, why)] by rank
        outcomes = {outcome for outcome, _ in said}
        hard = [o for o in ("hung", "crashed") if o in outcomes]
        self.outcome = hard[0] if hard else outcomes.pop() if len(outcomes) == 1 else "disagree"

    def detail(self):
        """Lines for a reader: each rank's, or one when they agree."""
        texts = [f"{outcome}: {last_line(why)}" if why else outcome for outcome, why in self.said]
        if len(set(texts)) == 1:
            return [texts[0]]
        return [f"rank {rank}: {text}" for rank, text in enumerate(texts)]


def last_line(text):
    """The line of a pytest report that says what went wrong."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[0][:300]


class Result:
    """One file's: tests by name, seconds, and what went wrong outside of any test."""

    def __init__(self, name):
        self.name, self.tests, self.seconds, self.problems, self.left = name, {}, 0.0, [], ""

    def count(self, *outcomes):
        return sum(t.outcome in outcomes for t in self.tests.values())


def start_ranks(world, alone, words, folder, output):
    """Starts a launcher in a folder, as the leader of a session, so that its ranks can be killed with it."""
    return subprocess.Popen(
        world.command(alone, words),
        cwd=folder,
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def launch(world, out, file, alone):
    """One launch; returns its exit code, None when it ran past the file's time."""
    words = [str(HERE / "rank.py"), str(out), str(world.args.limit), str(file)]
    with (out / "output").open("wb") as output:
        child = start_ranks(world, alone, words, file.parent, output)
        try:
            return child.wait(timeout=world.args.file_limit)
        except subprocess.TimeoutExpired:
            child.terminate()  # the launcher hands it on, and the ranks leave their stacks
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=15)
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def take(result, ranks, rc):
    """Takes over what all ranks have ended; returns the test that stopped them, None when none did."""
    order = max((r.tests for r in ranks), key=len)
    for test in order:
        name = test.split("::", 1)[-1]
        if all(test in r.ended for r in ranks):
            result.tests[name] = Test([(r.ended[test]["outcome"], r.ended[test]["why"]) for r in ranks])
            continue
        hung = rc is None or any("Timeout (" in r.stacks for r in ranks)
        said = []
        for r in ranks:
            if test in r.ended:
                said.append((r.ended[test]["outcome"], r.ended[test]["why"]))
            else:
                where = "in it" if test in r.started else "not begun"
                said.append(("hung" if hung else "crashed", where))
        result.tests[name] = Test(said)
        return test
    return None


def stacks(ranks):
    """The stacks that ranks left, without pytest's own frames."""
    lines = []
    for number, rank in enumerate(ranks):
        said = [line for line in rank.stacks.splitlines() if line.strip() and not TOOLS.search(line)]
        lines += [f"rank {number}: {line}" for line in said[:30]]
    return lines


def runs_alone(file):
    """Whether a file's tests run in one process: those of single/, and those that start elastic jobs."""
    return file.parent.name == "single" or (
        file.parent.name == "integration" and file.name.startswith("test_elastic_")
    )


def run_file(world, file):
    """Launches a file until each of its tests has an outcome."""
    alone = runs_alone(file)
    n = 1 if alone else world.np
    result, done, began = Result(file.name), [], time.monotonic()
    out = world.args.out / file.stem
    shutil.rmtree(out, ignore_errors=True)
    for k in range(TRIES):
        here = out / str(k)
        here.mkdir(parents=True)
        (here / "leave-out").write_text("\n".join(done))
        rc = launch(world, here, file, alone)
        ranks = [Rank(here, number) for number in range(n)]
        culprit = take(result, ranks, rc)
        result.left = ranks[0].left
        errors = {e for r in ranks for e in r.errors}
        result.problems += [f"cannot be collected: {last_line(e)}" for e in errors]
        if culprit is None:
            if not all(r.finished for r in ranks):
                tail = (here / "output").read_text(errors="replace").splitlines()[-15:]
                result.problems += [f"ended early, exit code {rc}; {here}/output ends:", *tail]
            elif rc != 0:
                how = f"past {world.args.file_limit} s" if rc is None else f"exit code {rc}"
                result.problems += [
                    f"all tests ended, then the job did not end well: {how}",
                    *stacks(ranks),
                ]
            break
        print(f"  {culprit}: {result.tests[culprit.split('::', 1)[-1]].outcome}; going on without it")
        print("".join(f"    | {line}\n" for line in stacks(ranks)), end="", flush=True)
        done += [t for t in ranks[0].tests if t.split("::", 1)[-1] in result.tests]
    result.seconds = time.monotonic() - began
    return result


def read_table(path):
    """{test: {column: outcome}} of a record."""
    if not path.exists():
        return {}
    head, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    return {row[0]: dict(zip(head[1:], row[1:])) for row in rows}


def record(result, tag, expected):
    """Writes this run's outcomes into the file's record, beside those of other ways.

    What once passed stays: the original's Gloo sometimes ends in init() on a busy machine.
    """
    path = expected / (Path(result.name).stem + ".tsv")
    table = read_table(path)
    for name, test in result.tests.items():
        row = table.setdefault(name, {})
        if test.outcome not in BAD or row.get(tag) not in ("passed", "skipped"):
            row[tag] = test.outcome
    for name in [n for n in table if n not in result.tests]:
        table[name].pop(tag, None)
        if not table[name]:
            del table[name]
    columns = sorted({tag} | {c for row in table.values() for c in row})
    lines = ["\t".join(["test", *columns])]
    lines += ["\t".join([name, *(row.get(c, "-") for c in columns)]) for name, row in table.items()]
    path.write_text("\n".join(lines) + "\n")


def not_ours(expected):
    """{(file, test): (text, reason)} of tests that fail by themselves; text is in what each rank says."""
    path = expected / "not-ours.tsv"
    rows = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    return {(file, test): (text, reason) for file, test, text, reason in rows}


def excuse(result, name, known):
    """Why this failure is not the runtime's; None when it is."""
    text, reason = known.get((result.name, name), (None, None))
    return reason if text and all(text in why for _, why in result.tests[name].said) else None


def worse(result, tag, expected):
    """Sentences on tests that came out worse than recorded, and how many better."""
    known = not_ours(expected)
    table = read_table(expected / (Path(result.name).stem + ".tsv"))
    recorded = {name: row[tag] for name, row in table.items() if row.get(tag, "-") != "-"}
    bad, better = [], 0
    for name, test in result.tests.items():
        want = recorded.get(name, "passed")
        if want == test.outcome or excuse(result, name, known):
            continue
        if test.outcome in BAD and want not in BAD:
            bad.append(f"{name}: {test.outcome}, with the original {recorded.get(name, 'not recorded')}")
        elif test.outcome == "skipped" and want == "passed" and name in recorded:
            bad.append(f"{name}: skipped, with the original passed")
        elif name in recorded:
            better += 1
    bad += [f"{name}: did not run, with the original {want}" for name, want in recorded.items()
            if name not in result.tests]  # fmt: skip
    return bad, better, bool(recorded)


def report(world, results, left):
    """Prints what there is to say; returns the number of things worse than recorded."""
    n_worse = 0
    known = not_ours(world.args.expected)
    for result in results:
        for problem in result.problems:
            print(f"{result.name}: {problem}")
        n_worse += bool(result.problems)
        for name, test in result.tests.items():
            if test.outcome in BAD:
                print(f"{result.name}::{name}: {test.outcome}")
                print("".join(f"    {line}\n" for line in test.detail()), end="")
                if reason := excuse(result, name, known):
                    print(f"    not ours: {reason}")
    reasons = collections.Counter(
        (r.name, t.said[0][1]) for r in results for t in r.tests.values() if t.outcome == "skipped"
    )
    for (name, why), times in sorted(reasons.items()):
        print(f"skipped in {name}: {times} x {why}")
    for name, why in left:
        print(f"left out {name}: {why}")
    table = [("file", "passed", "failed", "skipped", "disagree", "seconds", "against the record")]
    for result in results:
        bad, better, recorded = worse(
            result, "alone" if is_alone(world, result) else world.tag, world.args.expected
        )
        n_worse += len(bad)
        for line in bad:
            print(f"worse: {result.name}::{line}")
        verdict = f"{len(bad)} worse, {better} better" if recorded else "not recorded"
        failed = result.count(*BAD) + bool(result.problems)
        table.append((result.name, result.count("passed"), failed, result.count("skipped"),
                      result.count("disagree"), f"{result.seconds:.0f}", verdict))  # fmt: skip
    widths = [max(len(str(row[i])) for row in table) for i in range(len(table[0]))]
    print()
    for row in table:
        first, *rest = row
        cells = [f"{cell:>{w}}" for cell, w in zip(rest[:-1], widths[1:])]
        print(f"{first:<{widths[0]}}  " + "  ".join(cells) + f"  {rest[-1]}")
    return n_worse


def is_alone(world, result):
    return result.name in world.alone


def arguments(words):
    parser = argparse.ArgumentParser(prog="run.py", description="Horovod's own tests on our ranks")
    parser.add_argument("tests", nargs="+", help="test files and folders")
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--launcher", choices=LAUNCHERS, default="mpirun")
    parser.add_argument("--python", default="debian", help="debian, a name of tests/setup/venv, or a path")
    parser.add_argument(
        "--keras2", action="store_true", help="tf.keras is Keras 2 in the newest TensorFlow too"
    )
    parser.add_argument("--horovod", default="", help="original, or a path of an environment that holds it")
    parser.add_argument("--limit", type=float, default=180, help="seconds a test may take")
    parser.add_argument("--file-limit", type=float, default=1800, help="seconds a file may take")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="folder of the record")
    parser.add_argument("--record", action="store_true", help="write the outcomes into the record")
    parser.add_argument("--out", type=Path, help="where the ranks write; default build/conformance/...")
    args = parser.parse_args(words)
    if args.np < 1:
        die(f"--np {args.np} must be at least 1")
    if args.out is None:
        name = f"{args.launcher}-{args.np}-{re.sub('[^a-z0-9]+', '_', args.python.lower())}"
        args.out = (
            ROOT
            / os.environ.get("BUILD", "build")
            / "conformance"
            / (name + "-keras2" * args.keras2 + "-original" * bool(args.horovod))
        )
    args.out = args.out.resolve()
    return args


def main(words):
    args = arguments(words)
    files = files_of(args.tests)
    world = World(args)
    world.alone = {f.name for f in files if runs_alone(f)}
    results, left = [], []
    missing = world.lacking({name for file in files for name in needs(file)})
    for file in files:
        lacking = sorted(name.replace(":", ".") for name in needs(file) & missing)
        if lacking:
            more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
            left.append(
                (file.name, f"needs {', '.join(lacking[:3])}{more}, which {world.python} cannot import")
            )
            continue
        print(f"== {file.name}", flush=True)
        result = run_file(world, file)
        if result.left and not result.tests:
            left.append((file.name, result.left))
            continue
        results.append(result)
        if args.record:
            record(result, "alone" if is_alone(world, result) else world.tag, args.expected)
    n_worse = report(world, results, left)
    if not results:
        print("none of these files could run")
        n_worse = 1
    passed, skipped = (sum(r.count(o) for r in results) for o in ("passed", "skipped"))
    failed = sum(r.count(*BAD) + bool(r.problems) for r in results)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if n_worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
