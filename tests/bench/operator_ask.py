#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What asking for progress costs hvd-operator: many running jobs on the fake API server of tests/operator, whose
agents are one program that answers for all (tests/fakes/agent_fake.py). Every answer has a new step.
usage: BIN=FOLDER operator_ask.py [--jobs N] [--seconds S] [--interval S] [--check]

Both phases measure the same jobs, which only train: first an operator that asks nothing, then one that asks, each
for S seconds after all jobs are known and, asking, after a first round of answers. Then some jobs start, one after
the other. Processor time is the
operator's own, user and kernel. --check fails above 5% of a core, or if statuses exceed a third of the
requests that are allowed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "operator"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fakes"))
from agent_fake import AgentFake, report
from api import wait
from fake_world import World, fetch, free_port

QPS = 50  # the default of --kube-api-qps
GOAL = 5.0  # percent of a core
STARTS = 9


class Many(World):
    address = "127.9.9.9"

    def run_all(self, jobs: int) -> None:
        for i in range(jobs):
            job = self.job(f"j{i}")
            job["spec"]["replicaSpecs"]["Worker"]["replicas"] = 1
            self.fake.put("horovodjobs", job)
        pods = self.fake.objects["pods"]
        wait("all pods", lambda: len(pods) == jobs, 600)
        for key in list(pods):
            self.set_pod(key.partition("/")[2], phase="Running", podIP=self.address)
        wait("all run", lambda: all(self.state(f"j{i}") == "Running" for i in range(jobs)), 600)
        self.fake.log.clear()  # what the watches have shown; each looks through all of it

    def metrics(self) -> dict[str, float]:
        rows = [r.rsplit(" ", 1) for r in fetch(self.port, "/metrics")[1].splitlines() if r[0] != "#"]
        return {k: float(v) for k, v in rows}


def start_one(w: Many, name: str) -> float:
    """Seconds from the creation of a job until it is Running, with the test as its kubelet."""
    begin = time.monotonic()
    w.fake.put("horovodjobs", w.job(name))
    w.run_pods(name=name)
    wait(f"{name} runs", lambda: w.state(name) == "Running", 60)
    return time.monotonic() - begin


def measure(w: Many, seconds: float) -> dict[str, float]:
    """Per second; and the median time in which a job starts meanwhile."""
    names = ("process_cpu_seconds_total", 'hvd_operator_asks_total{result="ok"}', "hvd_operator_sync_total")
    names += ('hvd_operator_api_requests_total{method="PATCH",code="2xx"}',)
    begin, at = w.metrics(), time.monotonic()
    time.sleep(seconds)
    end, took = w.metrics(), time.monotonic() - at

    def grown(name: str) -> float:
        return sum(v - begin.get(k, 0) for k, v in end.items() if k.startswith(name)) / took

    values = dict(zip(("cpu", "asks", "syncs", "patches"), map(grown, names), strict=True))
    starts = [start_one(w, f"new{i}-{w.port}") for i in range(STARTS)]
    return values | {
        "start": statistics.median(starts),
        "memory": end["process_resident_memory_bytes"] / 2**20,
        "reports": end["hvd_operator_report_bytes"] / 1024,
        "reporting": end["hvd_operator_jobs_reporting"],
    }


def operate(before: Many | None, *options: str) -> Many:
    """With the objects of the operator before, which has ended."""
    port = free_port()

    def take(fake) -> None:
        if before:
            fake.version, fake.objects = before.fake.version, before.fake.objects

    extra = ["--watch-idle-timeout", "1h", "--log-level", "info", *options]
    w = Many(jobs=0, port=port, extra=extra, before=take)
    w.port = port
    return w


def ask(w: Many, jobs: int, seconds: float) -> dict[str, float]:
    steps = itertools.count(1)
    agent = AgentFake(w.address, lambda: list(w.fake.objects["secrets"].values()))
    agent.default = lambda: report(
        at=time.time(), step=next(steps), total_steps=10**9, steps_per_s=2.5, samples_per_s=320, blocked=0.1,
        metrics={"loss": 1 / next(steps)},
    )  # fmt: skip
    wait("all report", lambda: w.metrics().get("hvd_operator_jobs_reporting", 0) >= jobs, 600)
    w.fake.log.clear()
    values = measure(w, seconds)
    agent.stop()
    return values


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", type=int, default=1000)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--interval", type=int, default=15)
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    silent, limit = ("--progress-interval", "0"), ("--kube-api-qps", str(QPS))
    first = operate(None, *silent, "--kube-api-qps", "2000", "--kube-api-burst", "4000")
    first.run_all(o.jobs)
    first.__exit__(None)
    idle = operate(first, *silent, *limit)
    wait("its caches", lambda: idle.metrics().get("hvd_operator_queue_depth") == 0, 600)
    without = measure(idle, o.seconds)
    idle.__exit__(None)
    asking = operate(idle, "--progress-interval", f"{o.interval}s", *limit)
    asked = ask(asking, o.jobs, o.seconds)
    asking.__exit__(None)
    print(f"{o.jobs} jobs, asked every {o.interval} s, for {o.seconds:.0f} s, per second:")
    for name, v in (("without", without), ("asking", asked)):
        print(
            f"{name:8} {v['cpu'] * 100:5.2f}% of a core  {v['asks']:6.1f} answers  {v['syncs']:5.1f} reconciles"
            f"  {v['patches']:5.1f} status writes  {v['memory']:5.1f} MiB  a job starts in {v['start']:.2f} s"
        )
    cost = (asked["cpu"] - without["cpu"]) * 100
    print(f"asking costs {cost:.2f}% of a core; reports take {asked['reports']:.0f} KiB")
    is_missed = cost > GOAL or asked["patches"] > QPS / 3 * 1.2 or asked["reporting"] < o.jobs
    return int(o.check and is_missed)


if __name__ == "__main__":
    sys.exit(main())
