#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What asking for progress costs hvd-operator: many running jobs on the fake API server of tests/operator, whose
agents are one program that answers for all (tests/fakes/agent_fake.py). Every answer has a new step.
usage: BIN=FOLDER operator_ask.py [--jobs N] [--seconds S] [--interval S] [--viewers N] [--check]

Both phases measure the same jobs, which only train: first an operator that asks nothing, then one that asks, each
for S seconds after all jobs are known and, asking, after a first round of answers. Then some jobs start, one after
the other. Processor time is the
operator's own, user and kernel. --check fails above 5% of a core, or if statuses exceed a third of the
requests that are allowed.

--viewers N measures instead what N viewers of its status page cost an operator that asks: rounds without and
with viewers (page_viewers.py) alternate on one operator, and after them the operator is started again under the
viewers' connections. Each viewer has its own token. --check fails if the median of all answers is 100 ms or
more, if any request is refused in a round, or if jobs start more than 1.2 times later with viewers than without.
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
from page_viewers import ROUNDS, TABS, Viewers, print_round, served, verdict

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
    w.wait_pods(name=name)
    for i in range(2):  # with an agent: the operator spends time on those it cannot reach
        w.set_pod(f"{name}-worker-{i}", phase="Running", podIP=w.address)
    wait(f"{name} runs", lambda: w.state(name) == "Running", 60)
    return time.monotonic() - begin


def measure(w: Many, seconds: float) -> dict[str, float]:
    """Per second; and the median time in which a job starts meanwhile."""
    names = ("process_cpu_seconds_total", 'hvd_operator_asks_total{result="ok"}', "hvd_operator_sync_total")
    names += (
        'hvd_operator_api_requests_total{method="PATCH",code="2xx"}',
        "hvd_operator_api_requests_total",
    )
    begin, at = w.metrics(), time.monotonic()
    time.sleep(seconds)
    end, took = w.metrics(), time.monotonic() - at

    def grown(name: str) -> float:
        return sum(v - begin.get(k, 0) for k, v in end.items() if k.startswith(name)) / took

    values = dict(zip(("cpu", "asks", "syncs", "patches", "requests"), map(grown, names), strict=True))
    starts = [start_one(w, f"lag-{time.monotonic() * 1000:.0f}") for _ in range(STARTS)]
    return values | {
        "start": statistics.median(starts),
        "starts": starts,
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


def agent_of(w: Many, jobs: int) -> AgentFake:
    """It answers for all jobs, and all have reported."""
    steps = itertools.count(1)
    agent = AgentFake(w.address, lambda: list(w.fake.objects["secrets"].values()))
    agent.default = lambda: report(
        at=time.time(), step=next(steps), total_steps=10**9, steps_per_s=2.5, samples_per_s=320, blocked=0.1,
        metrics={"loss": 1 / next(steps)},
    )  # fmt: skip
    wait("all report", lambda: w.metrics().get("hvd_operator_jobs_reporting", 0) >= jobs, 600)
    w.fake.log.clear()
    return agent


def ask(w: Many, jobs: int, seconds: float) -> dict[str, float]:
    agent = agent_of(w, jobs)
    values = measure(w, seconds)
    agent.stop()
    return values


# --- viewers --------------------------------------------------------------------------------


def admit(w: Many, n: int) -> list[str]:
    """Tokens of n users, who may read everything."""
    for verb, resources in (
        ("list", "horovodjobs mpijobs events"),
        ("get", "horovodjobs mpijobs pods/log"),
    ):
        w.fake.rights |= {("viewers", verb, r, "") for r in resources.split()}
    users = {f"token-{i}": {"user": f"viewer-{i}", "groups": ["viewers"]} for i in range(n)}
    w.fake.tokens = {t: u | {"audiences": ["hvd-page"]} for t, u in users.items()}
    return list(users)


def trim(w: Many) -> None:
    """Forgets events that all watches have seen; each looks through all of them."""
    with w.fake.changed:
        del w.fake.log[:-500]


def view(w: Many, page: int, o: argparse.Namespace) -> tuple[list[dict], list[float]]:
    """Rounds, each with its figures without and with viewers; and when the viewers of an operator that was
    started again had their streams, in seconds."""
    tokens, jobs = admit(w, o.viewers), [f"horovodjobs/ns/j{i}" for i in range(o.jobs)]
    w.fake.logs = {f"ns/j{i}-worker-0/c": b"a line of a log\n" * 400 for i in range(o.jobs)}
    rounds = []
    for _ in range(ROUNDS):
        trim(w)
        idle = measure(w, o.seconds)
        v = Viewers(page, tokens, jobs, TABS, o.every)
        first = served(v, o.viewers)["served"]
        time.sleep(o.every + 1)  # all have opened their job
        trim(w)
        v.report()
        busy = measure(w, o.seconds)
        rounds.append({"idle": idle, "busy": busy, "page": v.report(), "served": first})
        v.stop()
        print_round(rounds[-1])
    w.operator.stop()
    v = Viewers(page, tokens, jobs, TABS, o.every)
    w.operator = w.begin()
    again = served(v, o.viewers)["served"]
    v.stop()
    return rounds, again


def main_viewers(o: argparse.Namespace, silent: Many) -> int:
    page, interval = free_port(), ("--progress-interval", f"{o.interval}s")
    w = operate(
        silent, *interval, "--page", str(page), "--kube-api-qps", str(QPS), "--kube-api-burst", str(2 * QPS)
    )
    agent = agent_of(w, o.jobs)
    rounds, again = view(w, page, o)
    agent.stop()
    w.__exit__(None)
    return verdict(o, rounds, again)


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", type=int, default=1000)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--interval", type=int, default=15)
    p.add_argument("--viewers", type=int, default=0)
    p.add_argument("--every", type=float, default=5, help="seconds between two requests of a viewer")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    silent, limit = ("--progress-interval", "0"), ("--kube-api-qps", str(QPS))
    first = operate(None, *silent, "--kube-api-qps", "2000", "--kube-api-burst", "4000")
    first.run_all(o.jobs)
    first.__exit__(None)
    if o.viewers:
        return main_viewers(o, first)
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
