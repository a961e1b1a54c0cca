# SPDX-License-Identifier: Apache-2.0
"""What the processes of an elastic job leave on disk for check.py, chaos.py and tests/bench/elastic.py.

Each process appends lines to a file of its own, DIR/HOST-PID-NS.jsonl; a line is a JSON list that begins
with its kind and the time (monotonic, ns), and one write(2). check.py says which steps count as
committed.

    process  t  {host, pid, started, imported}     once; both in ns of the same clock
    world    t  world size rank epoch step         the state was synchronised: training starts after step
    try      t  world epoch step rank [samples]    before the step's collective
    save     t  world step                         this process has committed the steps up to this one
    end      t  epochs step samples digest         rank 0: training is over, the model's SHA-256

A world is named by a number that is later than that of every world before it: next_world().
"""

import glob
import json
import os
import socket
import time


def started_ns():
    """When this process was forked, on the monotonic clock; as exact as a tick (10 ms)."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic_ns() - int(age * 1e9)


def next_world(last):
    """This process' proposal, in microseconds: later than its last world. The largest of all ranks' counts.

    A clock that is behind does no harm while a process of the world before is left. Only where all
    were lost it must not be behind that world's number.
    """
    return max(last + 1, time.time_ns() // 1000)


class Writer:
    """The file of this process."""

    def __init__(self, folder, imported_ns):
        os.makedirs(folder, exist_ok=True)
        host, pid = socket.gethostname(), os.getpid()
        path = os.path.join(folder, f"{host}-{pid}-{time.time_ns()}.jsonl")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.add("process", {"host": host, "pid": pid, "started": started_ns(), "imported": imported_ns})

    def add(self, kind, *values):
        line = json.dumps([kind, time.monotonic_ns(), *values], separators=(",", ":")) + "\n"
        n = os.write(self._fd, line.encode())
        if n != len(line):
            raise OSError(f"record: {n} of {len(line)} bytes of a line were written")


class Reader:
    """Reads what was appended to a folder's files since the last call."""

    def __init__(self, folder):
        self.folder = folder
        self._offsets = {}

    def lines(self):
        """[(file name, line)] of complete lines; a killed process may leave a part of one."""
        found = []
        for path in sorted(glob.glob(os.path.join(self.folder, "*.jsonl"))):
            offset = self._offsets.get(path, 0)
            if os.path.getsize(path) == offset:
                continue
            with open(path, "rb") as f:
                f.seek(offset)
                data = f.read()
            end = data.rfind(b"\n") + 1
            self._offsets[path] = offset + end
            name = os.path.basename(path)
            found += [(name, json.loads(line)) for line in data[:end].splitlines()]
        return found
