#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Failures of the operator, the API server and the connection between them: no job is lost and nothing is
created twice. In TAP. usage: chaos_test.py [--soak SECONDS] [TEST ...]; chaos.sh starts the cluster.

That nothing is made twice is read from the API server's audit log: each pod, Service, Secret and Job of a job
was created exactly once in its life. The operator is the one of manifests/, by its rights; hvd-operator-faults
where it is to crash at a chosen write.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from api import Operator, Refused, Suite, expect, install, wait
from chaos_world import (
    LOG,
    RUN,
    WORKERS,
    Clock,
    HorovodJob,
    Kind,
    Line,
    MPIJob,
    created,
    operator,
    patient,
    paused,
    restart,
)

suite = Suite()
SIDE_BY_SIDE = 6


def made_once(ns: str, n_jobs: int, n_kills: int = 0, losses: Counter | None = None) -> None:
    """A killed API server loses the audit of the requests in progress: at most of one plan. losses: how often a job
    lost pods that had not ended: each time its pods may be created once more."""
    losses = losses or Counter()
    made, unanswered = created(ns)
    pods = [what for what in {*made, *unanswered} if what.startswith("pods ")]
    wanted = n_jobs * WORKERS
    least = wanted - n_kills * SIDE_BY_SIDE * WORKERS
    expect(least <= len(pods) <= wanted, f"{ns}: {wanted} pods were made, {n_kills} kills", str(made))
    job = {what: what.split()[-1].rpartition("-worker-")[0] for what in pods}
    twice = {what: n for what, n in made.items() if n > 1 + losses[job.get(what, "")]}
    expect(not twice, f"{ns}: nothing was made twice", str(twice))


# --- the operator is killed at its n-th write ---------------------------------------------------
def one_crash(kind_of: type[Kind], fails: bool, when: str, number: int) -> bool:
    """A job whose operator crashes once, and another operator. False: there was no such write."""
    kind = kind_of(patient())
    api = kind.api
    ns = api.namespace(f"crash-{kind_of.__name__.lower()}-{'f' if fails else 's'}-{when}-{number}")
    kind.make(ns, "j", fails)

    def settled() -> bool:
        if not kind.step(ns, "j", fails):
            return False
        left = [p for p in api.items(ns, "pods") if "deletionTimestamp" not in p["metadata"]]
        workers = [p for p in left if p["metadata"]["name"] in kind.workers("j")]
        return len(workers) == kind.left(fails)

    first = operator(KUBECONFIG, "--namespace", ns, crash=f"{when}:{number}")
    try:
        wait("the end or the crash", lambda: first.ended() or settled(), 60)
    finally:
        has_crashed = first.ended()
        first.stop()
    second = operator(KUBECONFIG, "--namespace", ns)
    try:
        wait(f"the end after crash {when}:{number}", settled, 60)
        wait("the events", lambda: set(kind.once[fails]) <= set(kind.reasons(ns)))
    finally:
        second.stop()
    reasons = kind.reasons(ns)
    expect(max(reasons.values()) == 1, f"{ns}: each event once", str(reasons))
    made_once(ns, 1)
    return has_crashed


def every_crash(kind: type[Kind], fails: bool) -> None:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for when in ("before", "after"):
            first, n = 1, 0
            while n == first - 1:  # until there was no such write
                more = range(first, first + SIDE_BY_SIDE)
                had = list(pool.map(lambda i, when=when: one_crash(kind, fails, when, i), more))
                n += had.index(False) if False in had else len(had)
                first += SIDE_BY_SIDE
                expect(n < 60, "the number of writes is bounded")
            print(f"# {when}: {n} writes", flush=True)
            expect(n >= 8, "a job takes 8 writes and more", str(n))


for each in (HorovodJob, MPIJob):
    for end in ("succeeds", "fails"):
        job = f"{'a' if each is HorovodJob else 'an'}_{each.__name__.lower()}_that_{end}"
        suite.add(f"a_crash_around_any_write_of_{job}_changes_nothing", every_crash, each, end == "fails")


# --- the world around it breaks ---------------------------------------------------------------
class Storm:
    """Jobs of a kind that are created while things break, and a thread that plays their kubelet."""

    def __init__(self, kind: type[Kind], name: str):
        self.kind_of, self.kind = kind, kind(patient())
        self.ns = self.kind.api.namespace(f"storm-{kind.__name__.lower()}-{name}")
        self.line = Line(self.kind.api.server)
        self.clock = Clock(self.ns)
        self.operator = self.begin()
        self.names: list[str] = []
        self.over: set[str] = set()
        self.n_kills = 0  # of the API server
        self.losses: Counter = Counter()  # of pods, by job
        self.may_end, self.is_done, self.trouble = False, False, ""
        self.player = threading.Thread(target=self.play, daemon=True)
        self.player.start()

    def begin(self) -> Operator:
        config = self.line.kubeconfig(KUBECONFIG)
        options = ("--namespace", self.ns, "--watch-idle-timeout", "3s")
        return operator(config, *options, clock=self.clock)

    def play(self) -> None:
        kind = self.kind_of(patient())
        try:
            while not self.is_done:
                for name in list(self.names):
                    if name not in self.over and kind.step(self.ns, name, False, self.may_end):
                        self.over.add(name)
                time.sleep(0.05)
        except Exception as e:  # told by the test's own thread
            self.trouble = repr(e)

    def make(self, n: int) -> None:
        for _ in range(n):
            name = f"j{len(self.names)}"
            self.kind.make(self.ns, name)
            self.names.append(name)

    def n_running(self) -> int:
        found = [self.kind.status(self.ns, n) for n in self.names]
        return sum(
            any(c["type"] == "Running" and c["status"] == "True" for c in s.get("conditions", []))
            for s in found
        )

    def wait(self, what: str, look, seconds: float = 90) -> None:
        wait(what, lambda: look() or self.trouble or self.operator.ended(), seconds)
        expect(not self.trouble, self.trouble)
        expect(not self.operator.ended(), f"the operator still runs; its log is {LOG}")

    def all_run(self) -> None:
        self.wait("all jobs run", lambda: self.n_running() == len(self.names))

    def end(self) -> None:
        self.may_end = True
        self.wait("all jobs are over", lambda: len(self.over) == len(self.names))
        for name in self.names:
            status = self.kind.status(self.ns, name)
            states = {c["type"]: c["status"] for c in status["conditions"]}
            expect(states.get("Succeeded") == "True", f"{name} succeeded", str(states))
            expect(status.get("restarts", 0) == 0, f"{name}: no restart counts", str(status))
        made_once(self.ns, len(self.names), self.n_kills, self.losses)

    def stop(self) -> None:
        self.is_done = True
        self.player.join(70)
        self.operator.stop()
        self.line.stop()


def storm(kind: type[Kind], name: str, disturb) -> None:
    """disturb() runs while jobs are being created, while they run, and while they finish."""
    s = Storm(kind, name)
    try:
        s.make(3)
        disturb(s)
        s.make(3)
        s.all_run()
        disturb(s)
        s.may_end = True
        disturb(s)
        s.make(1)
        s.end()
    finally:
        s.stop()


def away(s: Storm) -> None:
    s.n_kills += 1
    restart("kube-apiserver")


def killed_etcd(s: Storm) -> None:
    restart("etcd")


def stopped_etcd(s: Storm) -> None:
    with paused("etcd"):
        time.sleep(3)  # how long it is paused


def cut(s: Storm) -> None:
    s.line.cut()
    s.make(1)
    time.sleep(1)  # how long the line is cut
    s.line.mend()


def silent(s: Storm) -> None:
    s.line.silence()
    s.make(1)


def lost_node(s: Storm) -> None:
    """It had one worker of each job. A HorovodJob without it may run again until all its workers have ended."""
    i = len(s.names) % WORKERS
    for name in s.names:
        pods = [s.kind.pod(s.ns, w) for w in s.kind.workers(name)]
        runs = any(pod and pod["status"].get("phase") != "Succeeded" for pod in pods)
        lost = s.kind.lose(s.ns, s.kind.workers(name)[i])
        s.losses[name] += lost or (runs and s.kind_of is HorovodJob)


def jumping_clock(s: Storm) -> None:
    s.clock.jump()


for each, name, disturb, what in (
    (HorovodJob, "restart", away, "the_api_server_is_restarted"),
    (HorovodJob, "etcd", stopped_etcd, "etcd_is_paused"),
    (HorovodJob, "etcd-killed", killed_etcd, "etcd_is_killed"),
    (HorovodJob, "cut", cut, "the_line_to_the_api_server_is_cut"),
    (HorovodJob, "silent", silent, "connections_go_silent"),
    (HorovodJob, "node", lost_node, "a_node_is_lost"),
    (MPIJob, "node", lost_node, "a_node_is_lost"),
    (HorovodJob, "clock", jumping_clock, "the_clock_is_set_ahead_and_back"),
    (MPIJob, "clock", jumping_clock, "the_clock_is_set_ahead_and_back"),
    (MPIJob, "cut", cut, "the_line_to_the_api_server_is_cut"),
    (MPIJob, "silent", silent, "connections_go_silent"),
):
    suite.add(f"{what}_under_{each.__name__.lower()}s", storm, each, name, disturb)


@suite.test
def a_restart_does_not_wait_for_the_hour_that_the_clock_was_set_back() -> None:
    """The second restart that counts waits for 20 s: longer than this machine is ever busy."""
    s = Storm(HorovodJob, "wait")
    body = s.kind.body("j", fails=False)
    body["spec"]["runPolicy"]["backoffLimit"] = 2

    def status() -> dict:
        return s.kind.status(s.ns, "j")

    def is_in(state: str, restarts: int) -> bool:
        return (status().get("state"), status().get("restarts")) == (state, restarts)

    try:
        s.clock.jump()
        s.kind.api.call("POST", s.kind.path.format(ns=s.ns), body)
        s.names.append("j")
        for n in (1, 2):
            s.all_run()
            s.kind.end(s.ns, "j", fails=True)
            s.wait("it waits", lambda n=n: is_in("Restarting", n))
        s.clock.jump()
        ahead_s = datetime.fromisoformat(status()["nextRestartTime"]).timestamp() - time.time()
        expect(ahead_s > s.clock.AHEAD_S - 120, "that time is an hour away", status())
        s.wait("it runs again", lambda: is_in("Running", 2))
    finally:
        s.stop()


def soak(seconds: float, seed: int) -> None:
    """All failures at random, also kills of the operator, for a long time."""
    chance = random.Random(seed)
    print(f"# seed {seed}", flush=True)
    end = time.monotonic() + seconds
    n = 0
    while time.monotonic() < end:
        kind = chance.choice(KINDS)
        s = Storm(kind, f"soak-{n}")
        n += 1
        try:
            for _ in range(chance.randint(2, 6)):
                s.make(chance.randint(0, 5))
                time.sleep(chance.random())
                chance.choice(DISTURBANCES)(s)
                s.may_end = s.may_end or chance.random() < 0.4
            s.end()
        finally:
            s.stop()
        print(f"# {kind.__name__}: {len(s.names)} jobs, {end - time.monotonic():.0f} s to go", flush=True)


def killed(s: Storm) -> None:
    s.operator.kill()
    s.make(1)
    s.operator = s.begin()


def gone(s: Storm) -> None:
    """While no operator runs, jobs end and their pods are deleted, as by the garbage collector of a node."""
    s.operator.kill()
    time.sleep(2)  # how long there is none
    for name in s.names if s.kind_of is HorovodJob else []:
        found = [s.kind.pod(s.ns, w) for w in s.kind.workers(name)]
        if all(pod and pod["status"].get("phase") == "Succeeded" for pod in found):
            for w in s.kind.workers(name):
                with contextlib.suppress(Refused):
                    s.kind.api.delete(s.ns, "pods", w)
    s.operator = s.begin()


KINDS = [HorovodJob, MPIJob]
DISTURBANCES = [away, stopped_etcd, killed_etcd, cut, silent, killed, gone, lost_node, jumping_clock]

if __name__ == "__main__":
    KUBECONFIG = install(patient(), RUN)
    if sys.argv[1:2] == ["--soak"]:
        seconds = float(sys.argv[2])
        seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 31)

        def jobs_outlive_everything_at_random() -> None:
            soak(seconds, seed)

        suite.tests = [jobs_outlive_everything_at_random]
        sys.exit(suite.main([]))
    sys.exit(suite.main(sys.argv[1:]))
