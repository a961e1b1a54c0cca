#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of real training that hang, for each cause, and the condition Stalled: which rank, why, and how soon.

usage: run.sh --hang     HANG_RUNS=20: each cause so many times; HANG_STALL_S=60: another stall time;
       HANG_CAUSES=stopped,branch: only these

One job for each cause, all at once. Their program is tests/hang/hang_rank.py, in which another rank hangs in each
round. It comes from a folder of this machine, by which the test also begins and ends each hang.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple

from cluster import (
    ROOT,
    RUN,
    Suite,
    apply,
    diagnosis,
    expect,
    horovodjob,
    kubectl,
    namespace,
    run_suite,
    wait,
)

BUILD = ROOT / os.environ.get("BUILD", "build")
RUNS = int(os.environ.get("HANG_RUNS", "1"))
STALL_S = int(os.environ.get("HANG_STALL_S", "5"))
ONLY = os.environ.get("HANG_CAUSES", "").split(",")
VERDICT_S = 10  # after the stall time: the bound
LATE_S = 60  # a verdict that is later than that is none
NS = os.environ.get("HANG_NS", "e2e-hang")
# A line of kubectl with a tab in it would wait for others, to be aligned with them.
STALLED = "{.status.conditions[?(@.type=='Stalled')]"
LINE = f"{{.metadata.name}} {STALLED}.status}} {STALLED}.reason}} {STALLED}.message}}{{'\\n'}}"


class Cause(NamedTuple):
    name: str  # of the function of hang_rank.py
    reason: str
    has_place: bool = True  # the message names a line of it
    workers: int = 2
    is_busy: bool = False  # a rank that hangs takes a processor


CAUSES = (
    Cause("stopped", "Stopped", has_place=False),
    Cause("swapping", "Swapping", is_busy=True),
    Cause("deadlock", "Deadlock"),
    Cause("lock_never_released", "Lock"),
    Cause("lock_in_c", "Lock"),
    Cause("loop_python", "Loop", is_busy=True),
    Cause("loop_c", "Loop", is_busy=True),
    Cause("branch", "OutOfStep", workers=3),  # of two ranks, either could be the one that went astray
    Cause("storage_dead", "Storage"),
)


few_are_busy = threading.Semaphore(2)


class Seen(NamedTuple):
    at: float
    status: str = ""
    reason: str = ""
    message: str = ""


class Watch:
    """The condition of each job, as kubectl prints it when it changes."""

    def __init__(self):
        self.changed = threading.Condition()
        self.seen: dict[str, Seen] = {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        words = ["get", "horovodjobs", "-n", NS, "--watch", "-o", f"jsonpath={LINE}"]
        argv = [str(RUN / "bin/kubectl"), "--kubeconfig", str(RUN / "admin.kubeconfig"), *words]
        while True:  # the server ends a watch after a while
            with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as kubectl_get:
                for line in kubectl_get.stdout or ():
                    name, *rest = line.rstrip("\n").split(" ", 3)
                    with self.changed:
                        self.seen[name] = Seen(time.time(), *rest)
                        self.changed.notify_all()
            time.sleep(0.1)

    def wait(self, name: str, is_wanted, seconds: float) -> Seen | None:
        """The first such condition from now on; None: there was none in time."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not is_wanted(seen := self.seen.get(name, Seen(0))):
                self.changed.wait(max(0, min(5, deadline - time.monotonic())))
                if time.monotonic() >= deadline:
                    return None
        return seen


def job_name(cause: Cause) -> str:
    return cause.name.replace("_", "-")


def folder_of(cause: Cause) -> Path:
    return RUN / "hang" / NS / job_name(cause)


def start(cause: Cause) -> None:
    folder = folder_of(cause)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in ("tests/hang/hang_rank.py", "tests/hang/dead_server.py"):
        shutil.copy(ROOT / path, folder)
    shutil.copy(BUILD / "plain/bin/hang-loop.so", folder / "loop.so")
    env = {
        "OMP_NUM_THREADS": "1",
        "HANG_TORCH": "1",
        "HANG_ROUNDS": str(RUNS),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(STALL_S),
        "HVD_PEER_TIMEOUT": str(
            2 * (STALL_S + LATE_S)
        ),  # a rank that is stopped must not end the job before
    }
    container = {
        "env": [{"name": k, "value": v} for k, v in env.items()],
        "volumeMounts": [{"name": "hang", "mountPath": "/hang"}],
        "securityContext": {"privileged": cause.name == "storage_dead"},  # it mounts a file system
    }
    command = ["python3", "/hang/hang_rank.py", cause.name, str(random.randrange(cause.workers)), "/hang"]
    volumes = [{"name": "hang", "hostPath": {"path": str(folder)}}]
    apply(horovodjob(job_name(cause), command, cause.workers, container=container, volumes=volumes), NS)


def lines_of(cause: Cause) -> list[int]:
    """Where the function hangs."""
    lines = (ROOT / "tests/hang/hang_rank.py").read_text().splitlines()
    first = lines.index(f"def {cause.name}():")
    body = [n for n in range(first + 1, len(lines)) if lines[n].endswith("# HERE")]
    end = next((n for n in range(first + 1, len(lines)) if lines[n][:1].strip()), len(lines))
    return [n + 1 for n in body if n < end]


def faults_of(cause: Cause, rank: str, seen: Seen) -> str:
    """What is wrong with the verdict; "": nothing."""
    places = [f"hang_rank.py:{n})" for n in lines_of(cause)] if cause.has_place else [""]
    if seen.reason != cause.reason:
        return f"{seen.reason}, not {cause.reason}"
    if not re.match(rf"rank {rank}\b", seen.message):
        return f"not rank {rank}"
    return "" if any(p in seen.message for p in places) else "another place"


class Result:
    """Of one cause, in all rounds."""

    def __init__(self, cause: Cause):
        self.cause, self.late_s, self.faults, self.loads = cause, [], [], []
        self.why = ""  # the rounds ended early

    def run(self, watch: Watch) -> None:
        try:
            for turn in range(RUNS):
                over = watch.wait(job_name(self.cause), lambda s: s.status != "True", 120)
                expect(over is not None, f"round {turn}: the stall before is not over")
                time.sleep(random.uniform(0, 5))  # the operator asks at its own times
                with few_are_busy if self.cause.is_busy else contextlib.nullcontext():
                    self.round(watch, turn)
        except AssertionError as e:
            self.why = f"{self.cause.name}: {e}"

    def round(self, watch: Watch, turn: int) -> None:
        name, folder = job_name(self.cause), folder_of(self.cause)
        (folder / f"begin.{turn}").touch()
        mark = folder / f"hangs.{turn}"
        deadline = time.monotonic() + 300
        while not mark.exists():
            expect(time.monotonic() < deadline, f"round {turn}: a rank hangs")
            time.sleep(0.1)
        due = mark.stat().st_mtime + STALL_S
        seen = watch.wait(name, lambda s: s.status == "True" and s.reason != "Unknown", STALL_S + LATE_S)
        rank, _ = mark.read_text().split()
        expect(seen is not None, f"round {turn}: no verdict about rank {rank}", watch.seen.get(name))
        self.late_s.append(seen.at - due)
        self.loads.append(os.getloadavg()[0])
        fault = faults_of(self.cause, rank, seen)
        print(
            f"# {self.cause.name} {turn}: {seen.at - due:.1f} s {seen.reason}: {seen.message}", flush=True
        )
        if fault:
            self.faults.append(f"{self.cause.name} round {turn}: {fault}: {seen.reason}: {seen.message}")
        (folder / f"go.{turn}").touch()

    def row(self) -> str:
        n, late = len(self.late_s) - len(self.faults), self.late_s or [float("nan")]
        times = f"{statistics.median(late):.1f} | {max(late):.1f}"
        return f"# | {self.cause.name} | {self.cause.reason} | {n} of {RUNS} | {times} |"


suite = Suite()


@suite.test
def each_cause_is_named_within_10_s_after_the_stall_time() -> None:
    namespace(NS)
    watch = Watch()
    results = [Result(cause) for cause in CAUSES if ONLY == [""] or cause.name in ONLY]
    for result in results:
        start(result.cause)
    paths = [folder_of(r.cause) / f"trains.{i}" for r in results for i in range(r.cause.workers)]
    wait("all jobs train", lambda: all(p.exists() for p in paths), 600)
    threads = [threading.Thread(target=r.run, args=(watch,)) for r in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loads = [x for r in results for x in r.loads]
    if loads:
        print(f"# load {min(loads):.0f} to {max(loads):.0f}, median {statistics.median(loads):.0f}")
    print(
        f"# stall time {STALL_S} s; seconds from its end to the condition\n# | cause | reason | right | median | max |"
    )
    print("\n".join(r.row() for r in results), flush=True)
    for r in results:
        if r.why:
            print("# " + diagnosis(job_name(r.cause), NS).replace("\n", "\n# "), flush=True)
    expect(not any(r.why for r in results), "all rounds were made", *(r.why for r in results if r.why))
    expect(not any(r.faults for r in results), "named correctly", *(f for r in results for f in r.faults))
    late = [f"{r.cause.name}: {x:.1f} s" for r in results for x in r.late_s if x > VERDICT_S]
    expect(not late, f"within {VERDICT_S} s", late)
    kubectl("delete", "namespace", NS, "--wait=false")


if __name__ == "__main__":
    run_suite(suite)
