# SPDX-License-Identifier: Apache-2.0
"""Processes of /proc: who descends from whom, and the processor time that they used.

Also the clock of budgets. A row's budget is in seconds of a machine that does nothing but this run: while
other programs use a part f of the processors, a second counts as 1 - f, and as 1/4 at least, so that a
row that hangs is stopped after four times its budget at the latest. The run's own rows do not slow the
clock: budgets are measured with all lanes at work.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
LEAST = 0.25  # of a second, that a second counts


@dataclass
class Process:
    pid: int
    state: str
    parent: int
    session: int
    cpu_s: float  # its own and that of the children it has waited for

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZX"


def parse_stat(text: str) -> Process:
    """The content of /proc/PID/stat; the name in brackets may contain anything."""
    pid, _, rest = text.partition(" ")
    field = rest.rpartition(")")[2].split()
    ticks = sum(int(field[i]) for i in (11, 12, 13, 14))
    return Process(int(pid), field[0], int(field[1]), int(field[3]), ticks / TICKS)


def all_processes() -> list[Process]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found.append(parse_stat(stat.read_text(errors="replace")))
        except (OSError, ValueError, IndexError):
            continue  # it is gone
    return found


def descendants(root: int) -> list[Process]:
    """All processes below root, zombies included."""
    children: dict[int, list[Process]] = {}
    for process in all_processes():
        children.setdefault(process.parent, []).append(process)
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [process.pid for process in below]
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def counted_s(wall_s: float, busy_s: float, own_s: float, n_cpus: int) -> float:
    """How many seconds of a budget wall_s has used up, in which the n_cpus processors were busy for
    busy_s, own_s of them with this run."""
    if wall_s <= 0:
        return 0.0
    others = max(busy_s - own_s, 0.0) / (wall_s * n_cpus)
    return wall_s * max(1.0 - others, LEAST)


def busy_s(stat: str, cpus: set[int]) -> float:
    """Seconds that these processors have worked, those stolen by other guests included: /proc/stat."""
    total = 0
    for line in stat.splitlines():
        name, *values = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cpus:
            user, nice, system, _idle, _iowait, irq, softirq, *steal = map(int, values[:8])
            total += user + nice + system + irq + softirq + sum(steal)
    return total / TICKS


class Clock:
    """The clock of budgets: now_s grows by counted_s of what went by since the last call."""

    def __init__(self) -> None:
        self.cpus = os.sched_getaffinity(0)
        self.counted = 0.0
        self.last = self.sample()

    def sample(self) -> tuple[float, float, float]:
        own = os.times()
        own_s = sum(own[:4]) + sum(p.cpu_s for p in descendants(os.getpid()))
        return time.monotonic(), busy_s(Path("/proc/stat").read_text(), self.cpus), own_s

    def now_s(self) -> float:
        now = self.sample()
        wall, busy, own = (new - old for new, old in zip(now, self.last, strict=True))
        if wall >= 1.0:  # ticks are too coarse for less
            self.counted += counted_s(wall, busy, max(own, 0.0), len(self.cpus))
            self.last = now
            return self.counted
        return self.counted + wall
