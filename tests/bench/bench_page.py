#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What viewers of its status page cost hvd-operator on a real control plane whose nodes kwok simulates. Called by
operator.sh --viewers, in the control plane's network namespace.
usage: bench_page.py HVD-OPERATOR --viewers N [--jobs N] [--seconds S] [--rounds N] [--events] [--check]

All workers have one address, at which this program answers as their agents (tests/fakes/agent_fake.py): the
operator asks each job for its progress every 15 s, as in a cluster that trains. Each viewer has a token of its own.
Rounds and goals are those of operator_ask.py --viewers, whose API server is a fake: there it is the operator alone
that works, here API server, etcd and scheduler share the processors with it. Viewers are one process, the jobs whose
start is measured are created and watched by another one (job_starts.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fakes"))
import bench_operator as bench
from agent_fake import AgentFake, report
from kwok import Api, Daemons, Watch, cpu, memory_mib, wait
from page_viewers import ROUNDS, TABS, Child, Viewers, print_round, served, verdict

AGENT = "10.245.255.1"
PAGE = 18081
STARTS = 20
KIND = "HorovodJob"
NO_LOG = [t for t in TABS if "/log" not in t]  # kwok has no logs of pods
OPTIONS = ("--page", str(PAGE), "--progress-interval", "15s")


def admit(n: int) -> list[str]:
    """Tokens of the account that manifests/page has for viewers; the operator gets its rights there, too."""
    for name in ("reviews", "logs", "viewer", "serviceaccount", "bindings"):
        bench.kubectl_apply(f"-f={bench.ROOT}/manifests/page/{name}.yaml")
    api, path = Api(), "/api/v1/namespaces/ringmaster/serviceaccounts/hvd-page/token"
    spec = {"spec": {"audiences": ["hvd-page"], "expirationSeconds": 7200}}
    return [api.call("POST", path, spec)["status"]["token"] for _ in range(n)]


class Agents(AgentFake):
    """Learns the tokens of new jobs from a watch: a list of a thousand Secrets whenever a job starts would delay it."""

    def __init__(self):
        super().__init__(AGENT, lambda: [])
        path = f"/api/v1/namespaces/{bench.NS}/secrets"
        self.watch = Watch(path, lambda line, now: self.learn(json.loads(line)["object"]))
        for s in Api().call("GET", path)["items"]:
            self.learn(s)

    def find(self, job: bytes) -> tuple[str, bytes]:
        try:
            return super().find(job)
        except KeyError:  # a job whose Secret was not seen yet: the operator asks again
            raise ConnectionError("unknown job") from None

    def stop(self) -> None:
        self.watch.stop()
        super().stop()


def agents() -> Agents:
    steps = itertools.count(1)
    agent = Agents()
    agent.default = lambda: report(
        at=time.time(), step=next(steps), total_steps=10**9, steps_per_s=2.5, samples_per_s=320, blocked=0.1,
        metrics={"loss": 1 / next(steps)},
    )  # fmt: skip
    return agent


def metrics() -> dict[str, float]:
    rows = [r.rsplit(" ", 1) for r in bench.get("/metrics")[1].splitlines() if r[0] != "#"]
    return {k: float(v) for k, v in rows}


def measure(op: bench.Operator, starts: Child, seconds: float) -> dict:
    """As operator_ask.measure does."""
    begin, cpu0, at = metrics(), sum(cpu(op.pid)), time.monotonic()
    time.sleep(seconds)
    end, cpu1, took = metrics(), sum(cpu(op.pid)), time.monotonic() - at

    def grown(name: str) -> float:
        return sum(v - begin.get(k, 0) for k, v in end.items() if k.startswith(name)) / took

    times = starts.ask(str(STARTS))
    return {
        "cpu": (cpu1 - cpu0) / took,
        "asks": grown('hvd_operator_asks_total{result="ok"}'),
        "patches": grown('hvd_operator_api_requests_total{method="PATCH",code="2xx"}'),
        "requests": grown("hvd_operator_api_requests_total"),
        "memory": memory_mib(op.pid, "VmRSS"),
        "start": statistics.median(times),
        "starts": times,
    }


def fill(o: argparse.Namespace, who: tuple[str, Path]) -> list[str]:
    """Jobs that run."""
    path, names = bench.KINDS[KIND]("", 0, 0)[0], [f"j{i}" for i in range(o.jobs)]
    sight = bench.Sight(path, "j")
    op = bench.Operator(o.program, who, False, (*bench.RAISED, "--progress-interval", "0"))
    bench.post(KIND, names, 2, 0)
    wait("all run", lambda: len(sight.jobs) >= o.jobs, 600, 0.2)
    sight.stop()
    op.stop()
    return names


def run(o: argparse.Namespace, who: tuple[str, Path]) -> int:
    names, tokens = fill(o, who), admit(o.viewers)
    jobs = [f"horovodjobs/{bench.NS}/{n}" for n in names]
    starts = Child(str(Path(__file__).with_name("job_starts.py")))
    agent = agents()
    op = bench.Operator(o.program, who, False, OPTIONS)
    tabs = [*NO_LOG, "/events"] if o.events else NO_LOG
    rounds = []
    wait("all report", lambda: metrics().get("hvd_operator_jobs_reporting", 0) >= o.jobs, 300, 1)
    for _ in range(o.rounds):
        idle = measure(op, starts, o.seconds)
        v = Viewers(PAGE, tokens, jobs, tabs, o.every)
        first = served(v, o.viewers)["served"]
        time.sleep(o.every + 1)  # all have opened their job
        v.report()
        rounds.append(
            {"idle": idle, "busy": measure(op, starts, o.seconds), "page": v.report(), "served": first}
        )
        v.stop()
        print_round(rounds[-1])
    op.stop()
    v = Viewers(PAGE, tokens, jobs, tabs, o.every)
    op = bench.Operator(o.program, who, False, OPTIONS)
    again = served(v, o.viewers)["served"]
    v.stop()
    op.stop()
    agent.stop()
    starts.stop()
    return verdict(o, rounds, again)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program", type=Path)
    p.add_argument("--viewers", type=int, default=200)
    p.add_argument("--jobs", type=int, default=1000)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--rounds", type=int, default=ROUNDS)
    p.add_argument("--every", type=float, default=5, help="seconds between two requests of a viewer")
    p.add_argument("--events", action="store_true", help="a tenth of the requests are for Events")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    who = bench.install(None)["ours"]
    subprocess.run(["ip", "address", "replace", f"{AGENT}/32", "dev", "lo"], check=True)
    daemons = Daemons(100, 16, pod_ip=AGENT)
    try:
        return run(o, who)
    finally:
        bench.clear(KIND)
        daemons.stop()


if __name__ == "__main__":
    sys.exit(main())
