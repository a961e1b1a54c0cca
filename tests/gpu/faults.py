# SPDX-License-Identifier: Apache-2.0
"""Stage faults of run.py: what the other ranks of a job with GPU tensors hear, and when."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from harness import HERE, free_port, interpreter

FAILED = re.compile(r"^failed ([0-9.]+) (.*)$", re.MULTILINE)
BEGINS = re.compile(r"^begins ([0-9.]+)$", re.MULTILINE)
# At most 1 s until our kernels are idle, 0.5 s for a launcher, and what the driver takes to end a process with a
# context. The log has the figures.
WITHIN_S = 4.0


def start(bench, fault, **extra):
    argv = [interpreter(), HERE / "faults_rank.py", fault]
    return argv, bench.start_ranks(3, argv, CHECKS_HOSTS=3, **extra)


def check_ends(bench, name, argv, processes, began, words, within=WITHIN_S, ranks=(0, 2)):
    """The ranks that are left said a sentence with these words in time; *began* is when it happened."""
    if bench.is_fake:
        within += 9  # of a machine that others work on, too: what is slow without a GPU is found by 30 s
    ends = bench.end_ranks(argv, processes, 60)
    gone = [p.output_ended - began for p in processes]
    for rank in ranks:
        m = FAILED.search(ends[rank].out)
        if not m:
            bench.point(f"{name}: rank {rank} reports it", ends[rank].out[-2000:] or "it says nothing")
            continue
        late, error = float(m[1]) - began, None
        if not 0 <= late <= within:
            error = f"after {late:.2f} s, not within {within} s"
        missing = [w for w in words if w not in m[2]]
        if missing:
            error = f"lacks {missing}"
        bench.point(
            f"{name}: rank {rank} reports it within {within} s",
            error and f"{error}\n{m[2]}\n{ends[rank].out[-1500:]}",
        )
        bench.note(
            f"# {name}: rank {rank} after {late:.3f} s, rank 1 was gone after {gone[1]:.3f} s: {m[2]}"
        )
    return ends


def check_steady(bench, name, processes):
    silent = [i for i, p in enumerate(processes) if not p.says("steady", bench.left(40))]
    bench.point(f"{name}: all were at work before", f"ranks {silent} were not" if silent else None)


def killed(bench):
    """kill -9 of one of three ranks; the other two continue together."""
    argv, processes = start(bench, "kill", RM_AGAIN=free_port())
    check_steady(bench, "a killed rank", processes)
    began = time.monotonic()
    processes[1].kill(signal.SIGKILL)
    ends = check_ends(bench, "a killed rank", argv, processes, began, ["rank 1", "was lost"])
    for rank in (0, 2):
        error = None if "again" in ends[rank].out and ends[rank].code == 0 else ends[rank].out[-2000:]
        bench.point(f"a killed rank: rank {rank} reduces in the world of those who are left", error)


def stopped(bench):
    """SIGSTOP: it is silent, and the peer timeout ends it."""
    silence = 10 if bench.is_fake else 5  # longer than a busy machine lets a rank wait
    argv, processes = start(bench, "kill", HVD_PEER_TIMEOUT=silence)
    check_steady(bench, "a stopped rank", processes)
    began = time.monotonic()
    processes[1].kill(signal.SIGSTOP)
    for rank in (0, 2):
        processes[rank].says("failed", bench.left(40))
    processes[1].kill(signal.SIGKILL)
    check_ends(bench, "a stopped rank", argv, processes, began, ["rank 1"], silence + 6)


def in_flight(bench, fault, name):
    """Kernels wait on the device for the one that goes: only an abort of the communicator ends them."""
    spin_s = 40 if bench.is_fake else 20  # longer than it takes; then the kernel ends by itself
    argv, processes = start(bench, fault, RM_AGAIN=free_port(), RM_SPIN_S=spin_s)
    ready = processes[1].says("in flight", bench.left(40))
    silent = [i for i in (0, 2) if ready and not processes[i].says("launched", bench.left(20))]
    began = time.monotonic()
    processes[1].kill(signal.SIGUSR1 if fault == "exit" else signal.SIGKILL)
    ends = check_ends(bench, name, argv, processes, began, ["rank 1"])
    error = None if ready else ends[1].out[-2000:] or "it did not say so"
    error = error or (f"ranks {silent} had not launched theirs" if silent else None)
    bench.point(f"{name}: kernels waited for it", error)
    error = "its own kernel had ended" if "has ended" in ends[1].out else None
    released = [i for i in (0, 2) if "released" in ends[i].out]
    bench.point(
        f"{name}: they waited to the end", error or (f"not of ranks {released}" if released else None)
    )
    for rank in (0, 2):
        error = None if "again" in ends[rank].out and ends[rank].code == 0 else ends[rank].out[-2000:]
        bench.point(f"{name}: rank {rank} reduces again", error)


def illegal(bench):
    """A kernel writes to an unmapped address: its rank reports that, and the other ranks name this rank."""
    extra = {}
    if bench.is_fake:
        extra["RM_FAULTS"] = Path(bench.tmp.name) / "faults"
    argv = [interpreter(), HERE / "faults_rank.py", "illegal"]
    processes = bench.start_ranks(3, argv, CHECKS_HOSTS=3, **extra)
    processes[1].says("begins", bench.left(40))
    began = BEGINS.search("".join(processes[1].lines))
    began = float(began[1]) if began else time.monotonic()
    check_ends(bench, "an illegal address", argv, processes, began, ["rank 1"])
    own = FAILED.search("".join(processes[1].lines))
    is_named = own and ("illegal" in own[2] or "CUDA" in own[2])
    bench.point(
        "an illegal address: its rank names it", None if is_named else "".join(processes[1].lines)[-2000:]
    )


def faults(bench):
    killed(bench)
    stopped(bench)
    in_flight(bench, "in_flight", "killed while kernels wait")
    in_flight(bench, "exit", "gone while kernels wait")
    illegal(bench)
