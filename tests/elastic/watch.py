# SPDX-License-Identifier: Apache-2.0
"""Follows the record of a job that runs (record.py), and ends it. For chaos.py and tests/bench/elastic.py."""

import contextlib
import os
import signal
import subprocess
import time

from record import Reader

POLL_S = 0.02


class Late(Exception):
    """What was waited for and did not happen."""


class Followed:
    """A training whose record goes to folder/records, and what the record says.

    Subclasses start it, and implement is_running(), status() and end().
    """

    def __init__(self, folder):
        self.folder, self.log = folder, os.path.join(folder, "log")
        os.makedirs(folder)
        self.records = os.path.join(folder, "records")
        self._reader = Reader(self.records)
        self.lines = []  # all so far
        self.processes = {}  # name: {host, pid, started, imported}
        self.sizes = {}  # world: ranks
        self.members = {}  # world: {rank: name}
        self.saves = {}  # world: {name: [ns of each save]}
        self.last_save_ns = 0

    def update(self):
        for name, line in self._reader.lines():
            self.lines.append((name, line))
            kind, t, *values = line
            if kind == "process":
                self.processes[name] = values[0]
            elif kind == "world":
                world, size, rank = values[:3]
                self.sizes[world] = size
                self.members.setdefault(world, {})[rank] = name
            elif kind == "save":
                self.saves.setdefault(values[0], {}).setdefault(name, []).append(t)
                self.last_save_ns = max(self.last_save_ns, t)

    def last_world(self):
        """0: none yet."""
        return max(self.sizes, default=0)

    def has_saved(self, world, n_steps):
        """Whether each rank of the world has committed n_steps times in it."""
        saves = self.saves.get(world, {}).values()
        return (
            world != 0 and len(saves) == self.sizes[world] and all(len(times) >= n_steps for times in saves)
        )

    def first_step_ns(self, world):
        """When the last rank of the world had committed its first step there."""
        return max(times[0] for times in self.saves[world].values())

    def is_running(self):
        raise NotImplementedError

    def status(self):
        """The exit status of one that does not run."""
        raise NotImplementedError

    def end(self):
        """Ends what is left."""
        raise NotImplementedError

    def wait(self, what, condition, deadline_s):
        """Returns condition()'s first true value."""
        end = time.monotonic() + deadline_s
        while True:
            running = self.is_running()
            self.update()
            value = condition()
            if value:
                return value
            if not running:
                raise Late(f"the job has ended with {self.status()} before: {what}")
            if time.monotonic() > end:
                raise Late(f"not within {deadline_s:g} s: {what}")
            time.sleep(POLL_S)

    def wait_end(self, deadline_s):
        """The exit status."""
        self.wait("the job ends", lambda: not self.is_running(), deadline_s)
        return self.status()

    def ranks(self):
        """Pids of the processes that train, by their command lines: they write into this job's record."""
        return [pid for pid, argv in processes() if is_python(argv) and self.records in argv]

    def writers(self):
        """{pid: name of its record}; None: it has not begun one."""
        return {pid: record_of(pid) for pid in self.ranks()}

    def tail(self, n=15):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "".join(line[:300].rstrip("\n") + "\n" for line in f.readlines()[-n:])


class Job(Followed):
    """One that a command starts."""

    def __init__(self, command, folder, env=None):
        super().__init__(folder)
        self.command, self.env = command, env
        self.launch()

    def launch(self):
        with open(self.log, "ab") as log:
            self.program = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                start_new_session=True,
            )

    def is_running(self):
        return self.program.poll() is None

    def status(self):
        return self.program.returncode

    def end(self):
        """Kills what is left, and waits for the launcher."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)
        self.program.wait()
        for pid in self.ranks():
            kill(pid)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def is_python(argv):
    """Whether this runs a training, and is not a launcher or a shell that has it as an argument."""
    return (
        len(argv) > 1
        and os.path.basename(argv[0]).startswith("python")
        and any(os.path.basename(word) in ("train.py", "elastic_torch.py") for word in argv[1:4])
        and "torch.distributed.run" not in argv
        and not any(os.path.basename(word) == "horovodrun" for word in argv[1:3])
    )


def processes():
    """[(pid, argv)]"""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as f:
                argv = f.read().decode(errors="replace").split("\0")
                found.append((int(name), argv))
    return found


def record_of(pid):
    """The name of the record that a process has open; None: none yet. Its pid is another one where it runs."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                name = os.path.basename(os.readlink(f"/proc/{pid}/fd/{fd}"))
                if name.endswith(".jsonl"):
                    return name
    return None
