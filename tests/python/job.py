# SPDX-License-Identifier: Apache-2.0
"""Starts jobs of several ranks for the tests, and reads the results of their checks.

The installed tree under test is $BUILD/stage (as it goes into images): its python/ on PYTHONPATH,
its bin/horovodrun as the launcher. README.md describes how to write tests of ranks and which versions they
run under.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
STAGE = BUILD / "stage"
RANKS = Path(__file__).resolve().parent / "ranks"
HOROVODRUN = STAGE / "bin" / "horovodrun"
DEBIAN_PYTHON = "/usr/bin/python3"
# environments of tests/setup/venv with a torch of PyPI, or interpreters that have one
TORCHES = os.environ.get("HVD_TEST_TORCHES", "").split() or ["torch"]
TENSORFLOWS = ["tf", "tf215"]


def environment(**extra):
    """The environment of a training process: ours on PYTHONPATH, one thread, no launcher's names."""
    foreign = (
        "HOROVOD_",
        "HVD_",
        "PERSEUS_",
        "SLURM_",
        "OMPI_",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_",
        "MAKE",
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    env.update(PYTHONPATH=str(STAGE / "python"), OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
    env.update(PYTHONDONTWRITEBYTECODE="1", CUDA_VISIBLE_DEVICES="-1", PYTHONUNBUFFERED="1")
    # Arrays of megabytes come and go all the time: memory that was given back is not made zero again.
    env.update(MALLOC_MMAP_THRESHOLD_=f"{1 << 25}", MALLOC_TRIM_THRESHOLD_=f"{1 << 30}")
    env.update(MALLOC_TOP_PAD_=f"{1 << 24}", NUMPY_MADVISE_HUGEPAGE="0")
    # Open MPI starts nothing for root without both.
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    env["HOROVOD_START_TIMEOUT"] = "300"  # on a busy machine one rank may import for long when others have
    env.update(extra)
    return env


class Ended:
    """How a command ended: code (negative: signal), out (both streams), seconds."""

    def __init__(self, code, out, seconds):
        self.code, self.out, self.seconds = code, out, seconds

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n{self.out[-6000:]}"


def start(argv, env, **options):
    """Starts a process whose output and errors are one stream of text."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    return subprocess.Popen([str(a) for a in argv], env=env, **streams, **options)


def command(argv, timeout=600, cwd=None, **extra):
    """Runs a command to its end or its deadline; a deadline is a failure of the test."""
    env = environment(**extra)
    if Path(argv[0]).name.startswith(("mpirun", "mpiexec", "sh")):
        # Ranks of mpirun and torchrun share one stream: what each prints is to be one write, at its end. A
        # shell runs a page's command, which may start either.
        env.pop("PYTHONUNBUFFERED", None)
    began = time.monotonic()
    process = start(argv, env, stdin=subprocess.DEVNULL, start_new_session=True, cwd=cwd)
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        raise AssertionError(f"{argv[0]} still ran after {timeout} s:\n{out[-4000:]}") from None
    return Ended(process.returncode, out, time.monotonic() - began)


def best_of(limit, attempt, tries=6):
    """The smallest result of attempt(), which is called until one is below the limit, or tries times.

    For durations and other results that a busy machine makes worse.
    """
    took = []
    while not took or (min(took) >= limit and len(took) < tries):
        took.append(attempt())
    return min(took)


def python(code, *args, python=DEBIAN_PYTHON, timeout=600, **extra):
    """Runs a piece of Python alone."""
    return command([python, "-c", code, *args], timeout=timeout, **extra)


# A rank in a shell: the first one to end keeps it to itself until the next has ended, or for two minutes.
OUTLIVED = """
"$@"
code=$? i=0
mkdir "$OUTLIVED/first" 2>/dev/null || { : >"$OUTLIVED/next"; exit $code; }
until [ -e "$OUTLIVED/next" ] || [ $i = 600 ]; do sleep 0.2; i=$((i + 1)); done
exit $code
"""


def horovodrun(
    n, script, *args, python=DEBIAN_PYTHON, timeout=600, outlived=False, launcher=HOROVODRUN, **extra
):
    """Runs a script of ranks/ (or a path) on n ranks of this host.

    outlived: a rank dies and another one reports it. The launcher kills all ranks 5 s after the first exit,
    so the first exit is held back until the next rank has ended.
    """
    if not HOROVODRUN.exists():
        raise AssertionError(f"{HOROVODRUN} is missing; run: make stage")
    words = [python, RANKS / script, *args]
    if not outlived:
        return command([launcher, "-np", n, *words], timeout=timeout, **extra)
    with tempfile.TemporaryDirectory() as directory:
        words = ["sh", "-c", OUTLIVED, "sh", *words]
        return command([HOROVODRUN, "-np", n, *words], timeout=timeout, OUTLIVED=directory, **extra)


def bare_ranks(n, script, *args, hosts=None, prefix=None, python=DEBIAN_PYTHON, timeout=600, **extra):
    """Starts n ranks by hand with torchrun's variables only; returns their ends in rank order.

    hosts: a Hosts with equal numbers of ranks on each, in rank order; none: all on this host. prefix: {rank:
    words before its command}.
    """
    here = n // len(hosts.names) if hosts else n
    common = {"WORLD_SIZE": n, "LOCAL_WORLD_SIZE": here, "MASTER_PORT": free_port()}
    common["MASTER_ADDR"] = hosts.address(0) if hosts else "127.0.0.1"
    processes = []
    for rank in range(n):
        place = dict(common, RANK=rank, LOCAL_RANK=rank % here)
        env = environment(**{k: str(v) for k, v in place.items()}, **extra)
        enter = ["ip", "netns", "exec", hosts.names[rank // here]] if hosts else []
        words = [*enter, *(prefix or {}).get(rank, []), python, RANKS / script, *args]
        processes.append(start(words, env))
    ends = []
    deadline = time.monotonic() + timeout
    for process in processes:
        try:
            out, _ = process.communicate(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        ends.append(Ended(process.returncode, out, 0.0))
    return ends


class Hosts:
    """Network namespaces that stand for hosts, on one bridge; needs root. Use with `with`."""

    def __init__(self, n):
        self.names = [f"hvdpy{os.getpid()}h{i}" for i in range(n)]
        self.bridge = f"hvdpy{os.getpid()}br"

    @staticmethod
    def address(i):
        return f"10.98.0.{i + 1}"

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, timeout=60)

    def __enter__(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], check=False).returncode:
            raise unittest.SkipTest("network namespaces need root")
        try:
            self.ip("netns", "add", self.bridge)
            self.ip("-n", self.bridge, "link", "add", "br0", "up", "type", "bridge")
            for i, name in enumerate(self.names):
                self.ip("netns", "add", name)
                self.ip("-n", name, "link", "set", "lo", "up")
                end = ["type", "veth", "peer", "name", f"port{i}", "netns", self.bridge]
                self.ip("-n", name, "link", "add", "eth0", *end)
                self.ip("-n", self.bridge, "link", "set", f"port{i}", "master", "br0", "up")
                self.ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
                self.ip("-n", name, "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.bridge]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL, timeout=60)


@functools.lru_cache(maxsize=None)
def venv(name):
    """The interpreter of a virtual environment of tests/setup/venv, created when missing."""
    made = subprocess.run(
        [ROOT / "tests/setup/venv.sh", name], stdout=subprocess.PIPE, text=True, timeout=900, check=False
    )
    if made.returncode:
        raise unittest.SkipTest(f"the Python environment '{name}' could not be made")
    return f"{made.stdout.strip().splitlines()[-1]}/bin/python"


def packages(name):
    """The site-packages of such an environment, to be put behind another's."""
    return str(next(Path(venv(name)).parent.parent.glob("lib/python3*/site-packages")))


def interpreter(torch):
    """The interpreter that has a torch of TORCHES."""
    return torch if "/" in torch else venv(torch)


def each_torch(cls):
    """Class decorator: the tests run under Debian's torch and, as class NAMENewest, under PyPI's newest.

    They start ranks with self.python, as run_checks does by itself. Where HVD_TEST_TORCHES names other
    torches (README.md), there is a class for each of them in place of the newest.
    """
    marked = {name: m for name, m in vars(cls).items() if hasattr(m, "only_torch")}
    cls.torch, cls.python = "debian", DEBIAN_PYTHON
    for torch in TORCHES:
        name = cls.__name__ + ("Newest" if torch == "torch" else re.sub(r"\W", "_", f"_{torch}"))
        newer = type(name, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__})
        newer.torch, newer.python = torch, property(lambda self: interpreter(self.torch))
        for method, function in marked.items():
            runs = function.only_torch == ("not newest" if torch != "torch" else "newest")
            setattr(newer, method, function if runs or function.only_torch == "newest" else None)
        setattr(sys.modules[cls.__module__], name, newer)
    for method, function in marked.items():
        setattr(cls, method, function if function.only_torch != "newest" else None)
    return cls


def each_tf(cls):
    """Class decorator: the tests run under PyPI's newest TensorFlow (Keras 3) and, as class NAMETf215, under
    2.15 (Keras 2).

    They start ranks with self.python, as run_checks does by itself; self.tf is "tf" or "tf215". Methods marked
    by @only_tf run under one of them.
    """
    marked = {name: m for name, m in vars(cls).items() if hasattr(m, "only_tf")}
    older = type(f"{cls.__name__}Tf215", (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__})
    for which, one in zip(TENSORFLOWS, (cls, older)):
        one.tf, one.torch = which, None
        one.python = property(lambda self: venv(self.tf))
        for method, function in marked.items():
            setattr(one, method, function if function.only_tf == which else None)
    setattr(sys.modules[cls.__module__], older.__name__, older)
    return cls


def only_tf(which):
    """Decorator for a test of such a class: under "tf" or under "tf215" only; say why beside it."""

    def mark(method):
        method.only_tf = which
        return method

    return mark


def only_torch(which):
    """Decorator for a test of such a class: under "debian", or under the "newest" and others of PyPI only, or
    under all but the "not newest", which is left to test_full.py; say why beside it."""

    def mark(method):
        method.only_torch = which
        return method

    return mark


class JobTest(unittest.TestCase):
    """A test that starts jobs whose ranks run many checks (ranks/checks.py)."""

    torch, tf, python = "debian", None, DEBIAN_PYTHON

    def setUp(self):
        self.hvd_points = []

    def run_checks(self, n, script, *args, label=None, hosts=None, end=0, **options):
        """Runs a checks script on n ranks; each check becomes a TAP line, which passes when it passes on
        all ranks.

        script: one of ranks/, or a tuple of them, each with its arguments ("optimizer.py legacy"), which
        the same ranks run one after another: importing torch takes a rank 1.5 s. hosts: the number of
        namespaces that the ranks are spread over; none: horovodrun on this host. end: the job's exit code;
        other than 0: the last script of the tuple has no checks, and is to end so. Returns how it ended
        (with hosts: how rank 0 did).
        """
        if not isinstance(script, str):
            script, args = "together.py", (*script, *args)
            label = label or "together"
        label = label or script
        if self.tf:
            label += f", {self.tf}"
        elif self.torch != "debian":
            label += f", {'newest torch' if self.torch == 'torch' else self.torch}"
        with tempfile.TemporaryDirectory() as directory:
            options.update(CHECKS_DIR=directory, CHECKS_HOSTS=str(hosts or 1))
            options.setdefault("python", self.python)
            if hosts:
                with Hosts(hosts) as spread:
                    ends = bare_ranks(n, script, *args, hosts=spread, **options)
            else:
                ends = [horovodrun(n, script, *args, **options)]
            ended = "\n".join(map(str, ends))
            ranks = [Path(directory) / f"{rank}.json" for rank in range(n)]
            if not all(p.exists() for p in ranks):
                self.fail(f"{script}: a rank has not reported; {ended}")
            reports = [json.loads(p.read_text()) for p in ranks]
        for name in reports[0]:
            said = [r.get(name, "was not reached") for r in reports]
            bad = [f"rank {i}: {text}" for i, text in enumerate(said) if text]
            self.hvd_points.append((f"{label} np={n}: {name}", "\n".join(bad) or None, None))
        self.assertEqual([one.code for one in ends], [end] * len(ends), f"{script}: {ended}")
        self.assertTrue(reports[0], f"{script} ran no check")
        return ends[0]


if __name__ == "__main__":
    sys.exit("job.py is not a program; run tests/python/run.sh")
