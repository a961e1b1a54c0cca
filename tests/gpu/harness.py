# SPDX-License-Identifier: Apache-2.0
"""What run.py and bench.py stand on: the tree of programs, environments, commands with limits, points.

A tree (build/gpu of `make gpu-carry`, or where that was carried to) has gpu/ (programs of this folder), bin/,
lib/ (libhvd.so and libhvd_cuda.so), fakes/ and python/. A command gets at most what the stage's limit leaves.
When the limit is over, and on SIGTERM, what runs is killed and no other command starts (OutOfTime). What is
known by then is kept: each point and each line of output is in a file when it exists.

Runs on Python 3.9.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
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
IS_CARRIED = (ROOT / "lib" / "libhvd.so").exists()
TREE = ROOT if IS_CARRIED else ROOT / os.environ.get("BUILD", "build") / "gpu"
DRIVER = "/dev/nvidiactl"
TAP = re.compile(r"^(not ok|ok) \d+ - (.*)$")
MOST_LOGGED = 256 << 10  # characters of a command that the log keeps; all of them are judged


class OutOfTime(Exception):
    """The limit is over, or the run was asked to stop."""


class Skipped(Exception):
    """There is nothing to test; the text says why."""


def has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@functools.lru_cache(maxsize=None)
def no_gpu():
    """Why there is no GPU, or "". The driver's node alone may be left of one."""
    try:
        os.close(os.open(DRIVER, os.O_RDWR))
    except OSError as e:
        return f"no NVIDIA driver answers ({DRIVER}: {e.strerror})"
    return ""


def keep_gpu():
    """Keeps the GPU initialised while we run, as nvidia-persistenced does; otherwise each command takes seconds."""
    with contextlib.suppress(OSError):
        os.open("/dev/nvidia0", os.O_RDWR)


def interpreter():
    """For ranks: ours. first-contact.sh starts us by one that has numpy."""
    return sys.executable


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
    """A command that runs, in a session of its own; all of it is killed at the end.

    on_line: gets each line of its output when it comes, in a thread.
    """

    def __init__(self, argv, env, on_line=None):
        self.began = time.monotonic()
        self.on_line, self.is_stopped, self.tag = on_line, False, ""
        self.output_ended = math.inf  # when it was gone, as far as others can see
        self.child = subprocess.Popen(
            [str(a) for a in argv],
            env=env,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append(line)
            if self.on_line:
                self.on_line(line)
        self.output_ended = time.monotonic()

    def kill(self, sig=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, sig)

    def stop(self):
        """Ends it as its limit would."""
        self.is_stopped = True
        self.kill()

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
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.child.wait(timeout=max(0.1, timeout))
        seconds = time.monotonic() - self.began
        self.kill()
        # A process that waits in the driver may outlive SIGKILL: it is left behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(timeout=5)
        self.reader.join(1 if self.child.returncode is None else 5)
        return Ended(None if self.is_stopped else code, "".join(list(self.lines)), seconds)


class Limit:
    """What Bench.limit yields. why: how time ran out, or ""."""

    why = ""


class Bench:
    """One run: where its programs are, what they run on, and what came out.

    In out: NAME.log, all lines of its output and of its commands; NAME.jsonl, the results of its stages.
    """

    def __init__(self, tree, is_fake, out, name=None):
        self.tree, self.is_fake, self.out = Path(tree).resolve(), is_fake, Path(out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.mark = "fake: " if is_fake else ""  # before names of points
        self.name = name or ("fake" if is_fake else "gpu")
        self.log, self.results = self.open(f"{self.name}.log"), None
        self.log_lock = threading.Lock()  # each rank's output is written by a thread
        self.stages, self.count, self.n_failed, self.n_started = [], 0, 0, 0
        self.deadline = time.monotonic() + 3600
        self.tmp = tempfile.TemporaryDirectory(prefix="rmgpu")
        self.processes = []  # of the limit that runs
        self.stopped = ""  # by which signal
        self.extra = {}  # of all commands' environments
        self.sharing = {"NCCL_HOSTID": "rank{rank}"}  # why NCCL lets ranks share one GPU
        self.facts = []  # lines of the inventory

    def open(self, file):
        """Each line that is written is in the file at once."""
        return (self.out / file).open("w", buffering=1)

    # --- results ---

    def note(self, text):
        """A line of the log."""
        with self.log_lock:
            self.log.write(f"{text}\n")

    def say(self, text):
        """A line of output, which is also in the log."""
        print(text, flush=True)
        self.note(text)

    def point(self, name, error=None, skip=None):
        self.count += 1
        self.n_failed += error is not None
        what = f"{self.mark}{self.stages[-1]['name']}: {name}"
        tail = f" # SKIP {skip}" if skip else ""
        self.say(f"{'ok' if error is None else 'not ok'} {self.count} - {what}{tail}")
        for line in (error or "").rstrip().splitlines()[-60:]:
            self.say(f"#   {line}")
        self.stages[-1]["points"].append({"name": name, "error": error, "skip": skip})
        self.record(stage=self.stages[-1]["name"], point=name, error=error, skip=skip)

    def record(self, **row):
        """Appends a line to the results."""
        self.results = self.results or self.open(f"{self.name}.jsonl")
        self.results.write(json.dumps(row) + "\n")

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

    # --- limits ---

    @contextlib.contextmanager
    def limit(self, seconds):
        """What runs inside ends after so many seconds; yields a Limit."""
        before, limit = self.deadline, Limit()
        self.deadline = min(before, time.monotonic() + seconds)
        try:
            yield limit
        except OutOfTime:
            pass
        finally:
            if self.stopped:
                limit.why = f"stopped by {self.stopped}"
            elif time.monotonic() >= self.deadline:
                limit.why = f"stopped at its limit of {seconds:.0f} s"
            self.deadline = before
            for process in self.processes:
                process.kill()
            self.processes = []

    def stop(self, name):
        """Of a signal's handler: nothing is printed here. Limits do the rest."""
        self.stopped = name
        for process in self.processes:
            process.stop()

    def left(self, most=3600.0):
        """Seconds, for a wait."""
        return 0.1 if self.stopped else max(0.1, min(most, self.deadline - time.monotonic()))

    def begin_stage(self, name, limit_s):
        row = {"name": name, "limit_s": limit_s, "points": [], "result": "running", "seconds": 0.0}
        self.stages.append(row)
        return row

    def skip_stage(self, name, why):
        self.begin_stage(name, 0)["result"] = "skipped"
        self.point("nothing was tested", skip=why)

    def stage(self, name, limit_s, function, begun=lambda: None):
        """Runs function(self), which ends after limit_s; begun() is called before."""
        began = time.monotonic()
        row = self.begin_stage(name, limit_s)
        self.say(f"# {name}: at most {limit_s:.0f} s")
        begun()
        with self.limit(limit_s) as limit:
            try:
                function(self)
            except Skipped as e:
                row["result"] = "skipped"
                self.point("nothing was tested", skip=str(e))
            except OutOfTime:
                raise
            except Exception as e:  # the other stages must still run
                self.point("it was carried out", f"{type(e).__name__}: {e}")
        if limit.why:
            self.point("it came to its end", limit.why)
            row["result"] = limit.why
        elif not row["points"]:
            self.point("it tested something", "no test was run")
        row["seconds"] = round(time.monotonic() - began, 2)
        if row["result"] == "running":
            row["result"] = "failed" if any(p["error"] for p in row["points"]) else "passed"
        self.record(stage=name, **{k: row[k] for k in ("result", "seconds", "limit_s")})
        self.say(f"# {name}: {row['result']}, {row['seconds']:.1f} s of {limit_s:.0f} s")

    # --- commands ---

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
            env.pop("CUDA_VISIBLE_DEVICES", None)
            env.update(HVD_FAKE_HOST="gpu", HVD_FAKE_HANG_S="50")
            env["HVD_FAKE_FAULTS"] = os.environ.get("RM_FAKE_FAULTS", "")
        elif wheels_nccl():
            env["HVD_NCCL_LIB"] = wheels_nccl()
        env.update({k: str(v) for k, v in {**self.extra, **extra}.items()})
        return env

    def start(self, argv, env, on_line=None, rank=""):
        """A Process whose output is in the log, each line with the command's number and rank."""
        if self.stopped or time.monotonic() >= self.deadline:
            raise OutOfTime
        self.n_started += rank in ("", 0)
        tag = f"{self.n_started}{'' if rank == '' else f'.{rank}'}"
        self.note(f"== {tag}: {' '.join(str(a) for a in argv)}")
        left = MOST_LOGGED

        def each(line):
            nonlocal left
            if left > 0:
                left -= len(line)
                self.note(f"{tag}| {line.rstrip()}")
                if left <= 0:
                    self.note(f"{tag}| (the log does not keep what follows)")
            if on_line:
                on_line(line)

        process = Process(argv, env, each)
        process.tag = tag
        self.processes.append(process)
        if self.stopped:  # meanwhile
            process.stop()
        return process

    def finish(self, process, timeout):
        ended = process.end(timeout)
        self.processes = [p for p in self.processes if p is not process]
        self.note(f"== {process.tag}: {ended.code} after {ended.seconds:.2f} s")
        return ended

    def command(self, argv, timeout=3600.0, on_line=None, **extra):
        return self.finish(self.start(argv, self.environment(**extra), on_line), self.left(timeout))

    def start_ranks(self, n, argv, on_line=None, **extra):
        """n ranks on the one GPU: for NCCL each is a host of its own, on the loopback interface.

        A word "{rank}" of argv is the rank's number. on_line: gets what rank 0 prints.
        """
        common = {
            "WORLD_SIZE": n,
            "LOCAL_WORLD_SIZE": n,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": free_port(),
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_IB_DISABLE": 1,  # or a plugin of the image might look for a network
            "NCCL_NET_PLUGIN": "none",
            "NCCL_MAX_CTAS": 2,
            "NCCL_DEBUG": "WARN",
        }
        processes = []
        for r in range(n):
            sharing = {k: v.replace("{rank}", str(r)) for k, v in self.sharing.items()}
            env = self.environment(**{**common, **sharing, "RANK": r, "LOCAL_RANK": r, **extra})
            words = [r if a == "{rank}" else a for a in argv]
            processes.append(self.start(words, env, None if r else on_line, r))
        return processes

    def end_ranks(self, argv, processes, timeout=3600.0):
        """Their ends in the order of ranks; what is left of them at the limit is killed."""
        end = time.monotonic() + self.left(timeout)
        return [self.finish(p, min(end - time.monotonic(), self.left())) for p in processes]

    def ranks(self, n, argv, timeout=3600.0, on_line=None, **extra):
        return self.end_ranks(argv, self.start_ranks(n, argv, on_line, **extra), timeout)


def stop_on_signals(stop):
    """stop(name) is called in the main thread when the run is asked to end."""
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sig, lambda number, frame: stop(signal.Signals(number).name))
