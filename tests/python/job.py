# SPDX-License-Identifier: Apache-2.0
"""Starts jobs of several ranks for the tests, and reads what their checks said.

The installed tree under test is $BUILD/stage (as it goes into images): its python/ on PYTHONPATH,
its bin/horovodrun as the launcher.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
STAGE = BUILD / "stage"
RANKS = Path(__file__).resolve().parent / "ranks"
HOROVODRUN = STAGE / "bin" / "horovodrun"
DEBIAN_PYTHON = "/usr/bin/python3"


def environment(**extra):
    """The environment of a training process: ours on PYTHONPATH, one thread, no launcher's names."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD_", "HVD_", "SLURM_", "OMPI_"))}
    for name in (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "MAKEFLAGS",
        "MAKELEVEL",
    ):
        env.pop(name, None)
    env.update(PYTHONPATH=str(STAGE / "python"), OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
    env.update(PYTHONDONTWRITEBYTECODE="1", CUDA_VISIBLE_DEVICES="-1", PYTHONUNBUFFERED="1")
    env.update(extra)
    return env


class Ended:
    """How a command ended: code (negative: signal), out (both streams), seconds."""

    def __init__(self, code, out, seconds):
        self.code, self.out, self.seconds = code, out, seconds

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n{self.out[-6000:]}"


def command(argv, timeout=60, cwd=None, **extra):
    """Runs a command to its end or its deadline; a deadline is a failure of the test."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(a) for a in argv],
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        cwd=cwd,
        text=True,
        errors="replace",
    )
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        raise AssertionError(f"{argv[0]} still ran after {timeout} s:\n{out[-4000:]}") from None
    return Ended(process.returncode, out, time.monotonic() - began)


def python(code, *args, python=DEBIAN_PYTHON, timeout=60, **extra):
    """Runs a piece of Python alone."""
    return command([python, "-c", code, *args], timeout=timeout, **extra)


def horovodrun(n, script, *args, python=DEBIAN_PYTHON, timeout=120, **extra):
    """Runs a script of ranks/ (or a path) on n ranks of this host."""
    if not HOROVODRUN.exists():
        raise AssertionError(f"{HOROVODRUN} is missing; run: make stage")
    path = RANKS / script
    return command([HOROVODRUN, "-np", n, python, path, *args], timeout=timeout, **extra)


def bare_ranks(n, script, *args, hosts=None, python=DEBIAN_PYTHON, timeout=120, **extra):
    """Starts n ranks by hand with torchrun's variables only; returns their ends in rank order.

    hosts: a Hosts with equal numbers of ranks on each, in rank order; none: all on this host.
    """
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    here = n // len(hosts.names) if hosts else n
    common = {"WORLD_SIZE": n, "LOCAL_WORLD_SIZE": here, "MASTER_PORT": port}
    common["MASTER_ADDR"] = hosts.address(0) if hosts else "127.0.0.1"
    processes = []
    for rank in range(n):
        place = dict(common, RANK=rank, LOCAL_RANK=rank % here)
        env = environment(**{k: str(v) for k, v in place.items()}, **extra)
        prefix = ["ip", "netns", "exec", hosts.names[rank // here]] if hosts else []
        processes.append(
            subprocess.Popen(
                [*prefix, python, str(RANKS / script), *args],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
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
        subprocess.run(["ip", *words], check=True, timeout=20)

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
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL, timeout=20)


class JobTest(unittest.TestCase):
    """A test that starts jobs whose ranks run many checks (ranks/checks.py)."""

    def setUp(self):
        self.hvd_points = []

    def run_checks(self, n, script, *args, label=None, hosts=None, **options):
        """Runs a checks script on n ranks; each check becomes a TAP line, good when all ranks say so.

        hosts: the number of namespaces that the ranks are spread over; none: horovodrun on this host.
        """
        with tempfile.TemporaryDirectory() as directory:
            options.update(CHECKS_DIR=directory, CHECKS_HOSTS=str(hosts or 1))
            if hosts:
                with Hosts(hosts) as spread:
                    ends = bare_ranks(n, script, *args, hosts=spread, **options)
            else:
                ends = [horovodrun(n, script, *args, **options)]
            ended = "\n".join(str(end) for end in ends)
            ranks = [Path(directory) / f"{rank}.json" for rank in range(n)]
            if not all(p.exists() for p in ranks):
                self.fail(f"{script}: a rank has not reported; {ended}")
            reports = [json.loads(p.read_text()) for p in ranks]
        for name in reports[0]:
            said = [r.get(name, "was not reached") for r in reports]
            bad = [f"rank {i}: {text}" for i, text in enumerate(said) if text]
            self.hvd_points.append((f"{label or script} np={n}: {name}", "\n".join(bad) or None, None))
        self.assertEqual([end.code for end in ends], [0] * len(ends), f"{script}: {ended}")
        self.assertTrue(reports[0], f"{script} ran no check")


def venv(name):
    """The interpreter of a virtual environment of tests/setup/venv, made when missing."""
    made = subprocess.run(
        [ROOT / "tests/setup/venv.sh", name], stdout=subprocess.PIPE, text=True, timeout=900, check=False
    )
    if made.returncode:
        raise unittest.SkipTest(f"the Python environment '{name}' could not be made")
    return f"{made.stdout.strip().splitlines()[-1]}/bin/python"


if __name__ == "__main__":
    sys.exit("job.py is not a program; run tests/python/run.sh")
