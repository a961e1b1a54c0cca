# SPDX-License-Identifier: Apache-2.0
"""What run.py and bench.py stand on: the tree of programs, environments, commands with deadlines, points.

A tree (build/plain here, build/gpu on a machine that it was carried to) has gpu/ (programs of this folder),
bin/, lib/ (libhvd.so and libhvd_cuda.so), fakes/ and python/. All limits are a stage's: what a stage has left
when a command is started is the most that the command can get.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from ports import free_port

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DRIVER = "/dev/nvidiactl"
TAP = re.compile(r"^(not ok|ok) \d+ - (.*)$")


def has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def has_gpu():
    """Is there a driver that answers? Its node alone may be left of one."""
    try:
        os.close(os.open(DRIVER, os.O_RDWR))
    except OSError:
        return False
    return True


def interpreter():
    """One that has numpy."""
    return sys.executable if has("numpy") else "/usr/bin/python3"


def wheels_nccl():
    """NCCL as a framework's wheel brought it, where programs without the framework would not find it."""
    if not has("nvidia.nccl"):
        return ""
    for folder in importlib.util.find_spec("nvidia.nccl").submodule_search_locations:
        path = Path(folder) / "lib" / "libnccl.so.2"
        if path.exists():
            return str(path)
    return ""


class Ended:
    """How a command ended: code (negative: by a signal; None: killed at its limit), out, seconds."""

    def __init__(self, code, out, seconds):
        self.code, self.out, self.seconds = code, out, seconds

    def error(self):
        """None when it went well, else what to show."""
        if self.code == 0:
            return None
        how = "killed at its limit" if self.code is None else f"exit code {self.code}"
        return f"{how} after {self.seconds:.1f} s\n{self.out[-3000:]}"


class Process:
    """A command that runs, in a group of its own; all of it is killed at the end."""

    def __init__(self, argv, env):
        self.began = time.monotonic()
        self.child = subprocess.Popen(
            [str(a) for a in argv],
            env=env,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append(line)

    def kill(self, sig=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, sig)

    def says(self, text, timeout):
        """Waits until it has said this; False: it ended before, or did not in time."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if any(text in line for line in list(self.lines)):
                return True
            if self.child.poll() is not None and not self.reader.is_alive():
                return any(text in line for line in self.lines)
            time.sleep(0.005)
        return False

    def end(self, timeout):
        try:
            code = self.child.wait(timeout=max(0.1, timeout))
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - self.began
        self.kill()
        self.child.wait()
        self.reader.join(30)
        return Ended(code, "".join(self.lines), seconds)


class Bench:
    """One run: where its programs are, what they run on, and what came out."""

    def __init__(self, tree, is_fake, out):
        self.tree, self.is_fake, self.out = Path(tree).resolve(), is_fake, Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = (self.out / ("fake.log" if is_fake else "gpu.log")).open("w")
        self.stages, self.count, self.n_failed = [], 0, 0
        self.deadline = time.monotonic() + 3600
        self.tmp = tempfile.TemporaryDirectory(prefix="rmgpu")

    # --- results ---

    def point(self, name, error=None):
        self.count += 1
        self.n_failed += error is not None
        what = f"{'fake: ' if self.is_fake else ''}{self.stages[-1]['name']}: {name}"
        print(f"{'ok' if error is None else 'not ok'} {self.count} - {what}", flush=True)
        for line in (error or "").rstrip().splitlines()[-60:]:
            print(f"#   {line}", flush=True)
        self.stages[-1]["points"].append({"name": name, "error": error})

    def taps(self, label, ended, least=1, each=True):
        """The lines of a TAP program as points of ours, and how it ended if not by them.

        each: also those that are well have points of their own, else all of those one.
        """
        failed, seen = [], 0
        notes = []
        for line in ended.out.splitlines():
            m = TAP.match(line)
            if not m:
                notes.append(line)
                continue
            seen += 1
            error = None if m[1] == "ok" else "\n".join(notes[-20:]) or "it says no more"
            failed += [error] if error else []
            if each or error:
                self.point(f"{label}: {m[2]}", error)
            notes = []
        if seen < least or (ended.code != 0 and not failed):
            self.point(f"{label} ran", ended.error() or f"{seen} tests, not {least}\n{ended.out[-2000:]}")
        elif not each and not failed:
            self.point(f"{label}: all {seen}")

    def stage(self, name, budget_s, function):
        """Runs function(self) with budget_s for all that it starts."""
        began = time.monotonic()
        self.deadline = began + budget_s
        self.stages.append({"name": name, "budget_s": budget_s, "points": []})
        try:
            function(self)
        except Exception as e:  # the other stages must still run
            self.point("it was carried out", f"{type(e).__name__}: {e}")
        if not self.stages[-1]["points"]:
            self.point("it tested something", "no test was run")
        seconds = time.monotonic() - began
        self.stages[-1]["seconds"] = round(seconds, 2)
        print(f"# {name}: {seconds:.1f} s of {budget_s} s", flush=True)

    def write(self, name, **more):
        """All of it as JSON."""
        text = json.dumps({"is_fake": self.is_fake, "stages": self.stages, **more}, indent=1)
        (self.out / name).write_text(text + "\n")

    # --- commands ---

    def left(self, most=3600.0):
        return max(0.5, min(most, self.deadline - time.monotonic()))

    def environment(self, **extra):
        mine = ("HOROVOD_", "HVD_", "NCCL_", "SLURM_", "OMPI_", "RM_")
        env = {k: v for k, v in os.environ.items() if not k.startswith(mine)}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            env.pop(name, None)
        paths = [str(self.tree / "fakes")] if self.is_fake else []
        paths += [p for p in [env.get("LD_LIBRARY_PATH")] if p]
        if paths:
            env["LD_LIBRARY_PATH"] = ":".join(paths)
        env.update(PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
        env.update(PYTHONPATH=str(self.tree / "python"), CAPI_LIBRARY=str(self.tree / "lib" / "libhvd.so"))
        if self.is_fake:
            env.update(HVD_FAKE_HOST="gpu", HVD_FAKE_HANG_S="50")
        elif wheels_nccl():
            env["HVD_NCCL_LIB"] = wheels_nccl()
        env.update({k: str(v) for k, v in extra.items()})
        return env

    def note(self, argv, ended):
        words = " ".join(str(a) for a in argv)
        self.log.write(f"== {words}: {ended.code} after {ended.seconds:.2f} s\n{ended.out}\n")
        self.log.flush()

    def command(self, argv, timeout=3600.0, **extra):
        ended = Process(argv, self.environment(**extra)).end(self.left(timeout))
        self.note(argv, ended)
        return ended

    def start_ranks(self, n, argv, **extra):
        """n ranks on the one GPU: for NCCL each is a host of its own, on the loopback interface.

        A word "{rank}" of argv is the rank's number.
        """
        common = {
            "WORLD_SIZE": n,
            "LOCAL_WORLD_SIZE": n,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": free_port(),
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_MAX_CTAS": 2,
            "NCCL_DEBUG": "WARN",
        }
        common.update(extra)
        return [
            Process(
                [r if a == "{rank}" else a for a in argv],
                self.environment(**common, RANK=r, LOCAL_RANK=r, NCCL_HOSTID=f"rank{r}"),
            )
            for r in range(n)
        ]

    def end_ranks(self, argv, processes, timeout=3600.0):
        """Their ends in the order of ranks; what is left of them at the limit is killed."""
        end = time.monotonic() + self.left(timeout)
        ended = [p.end(end - time.monotonic()) for p in processes]
        for e in ended:
            self.note(argv, e)
        return ended

    def ranks(self, n, argv, timeout=3600.0, **extra):
        return self.end_ranks(argv, self.start_ranks(n, argv, **extra), timeout)
