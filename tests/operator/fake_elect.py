# SPDX-License-Identifier: Apache-2.0
"""Several operators on one fake API server: which one acts, and when another takes over. Each has a token of
its own, by which the fake's hook distinguishes them. Part of fake_test.py.
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

from api import Operator, expect, wait
from fake_access import EXEC, Access
from fake_world import BIN, World, fetch, free_port, refuse, suite

LEASE = 6.0  # seconds, of --leader-elect-lease-duration; a busy machine stops a process for two
TIMES = [
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=200ms",
]


class Rivals(World):
    """Operators a and b on one fake; writes has (time, who, method, kind) of all but the Lease's."""

    def __init__(self, hook=None, env=None):
        self.writes: list[tuple[float, str, str, str]] = []
        self.away = False  # nobody can reach the Lease
        self.extra = hook
        self.ports = {"a": free_port(), "b": free_port()}
        super().__init__(self.seen, jobs=0, extra=self.args("a"), env=env)
        self.operators = {"a": self.operator}
        wait("a leads", lambda: self.leads("a") or self.operator.ended())
        self.start("b")

    def args(self, who: str) -> list[str]:
        return [
            "--leader-elect",
            "--lock-namespace=ns-of-lease",
            f"--leader-elect-lease-duration={LEASE}s",
            "--leader-elect-renew-deadline=4s",
            "--leader-elect-retry-period=200ms",
            "--http-port",
            str(self.ports[who]),
        ]

    def start(self, who: str) -> None:
        kubeconfig = self.dir / f"kubeconfig-{who}"
        kubeconfig.write_text(
            (self.dir / "kubeconfig").read_text().replace("cluster: k}", "cluster: k, user: u}")
            + f"users: [{{name: u, user: {{token: {who}}}}}]\n"
        )
        self.operators[who] = Operator(BIN / "hvd-operator", kubeconfig, self.log_of(who), *self.args(who))
        wait(f"{who} is ready", lambda: fetch(self.ports[who], "/readyz")[0] == 200)

    def log_of(self, who: str) -> Path:
        return self.dir / f"log-{who}"

    def seen(self, w, h, method, plural, query) -> bool:
        who = h.headers.get("Authorization", "Bearer a").split()[1]
        if plural == "leases":
            if self.away:
                self.fake.answer(h, 503, '{"message": "etcd is away"}')
            return self.away
        if method != "GET":
            self.writes.append((time.monotonic(), who, method, plural))
        return bool(self.extra and self.extra(w, h, method, plural, query))

    def leads(self, who: str) -> bool:
        return "\nhvd_operator_leader 1" in fetch(self.ports[who], "/metrics")[1]

    def __exit__(self, kind, *rest):
        for who, op in self.operators.items():
            if op is not self.operator:
                op.stop()
            if kind and self.log_of(who).exists():
                print("# " + self.log_of(who).read_text().replace("\n", f"\n# {who}: "))
        super().__exit__(kind, *rest)

    def wrote(self, since: float = 0) -> set[str]:
        return {who for at, who, _, _ in self.writes if at >= since}


class Halting(Rivals):
    """Operator a stops itself when its third write has its connection and has not been sent."""

    program = "hvd-operator-faults"

    def __init__(self):
        super().__init__(env={"HVD_CRASH": "stop:3"})


@suite.test
def a_write_held_up_by_a_stop_of_the_process_is_not_sent() -> None:
    with Halting() as w:
        w.fake.put("horovodjobs", w.job("j0"))
        wait("b leads", lambda: w.leads("b"))
        before = [x for x in w.writes if x[1] == "a"]
        expect(len(before) == 2, "a stopped before its third write", w.writes)
        w.run_pods()
        wait("the job runs", lambda: w.state() == "Running")
        again = time.monotonic()
        w.operators["a"].process.send_signal(signal.SIGCONT)
        wait("a has noticed", lambda: "no longer leading" in w.log())
        w.job_runs("j1")
        expect(w.wrote(again) == {"b"}, "a wrote nothing", w.writes)
        log = w.log()
        expect("not the leader" in log, "the log has it", log)


@suite.test
def a_leader_that_cannot_renew_stops_writing_and_continues_later() -> None:
    with Rivals() as w:
        w.job_runs("j0")
        w.operators["b"].stop()
        w.away = True
        wait("a leads no more", lambda: not w.leads("a"))
        since = time.monotonic()
        w.fake.put("horovodjobs", w.job("j1"))
        wait(
            "a's cache is updated",
            lambda: (
                'hvd_operator_jobs{kind="HorovodJob",state="Pending"} 1'
                in fetch(w.ports["a"], "/metrics")[1]
            ),
        )
        expect(w.wrote(since) == set(), "nothing is written", str(w.writes))
        w.away = False
        w.serves_job("j1")
        expect(not w.operators["a"].ended(), "it is the same process")
        expect("etcd is away" in w.log(), "the log says why")


@suite.test
def writes_in_flight_fail_when_the_lease_is_lost() -> None:
    """A write whose answer does not come must not keep a sync alive over the end of the lease."""
    held = threading.Event()

    def hook(w, h, method, plural, query):
        if method == "POST" and plural == "pods" and not held.is_set():
            w.away = True
            wait("the operator gives up", lambda: not w.leads("a"), 20)  # a request ends after 30
            held.set()
            w.away = False
        return False

    with Rivals(hook) as w:
        w.operators["b"].stop()
        w.fake.put("horovodjobs", w.job("j0"))
        wait("the pod was asked for", held.is_set)
        w.run_pods()
        wait("the job runs", lambda: w.state() == "Running")
        expect("not the leader" in w.log(), "the log has it")


@suite.test
def a_lease_refused_with_401_is_sent_again_before_waiting_requests() -> None:
    """Even in the pause of a 429, which would outlast the Lease."""
    paused, refused, renewed = [], [], []

    def hook(w, h, method, plural, query):
        if method == "POST" and plural == "secrets" and not paused:
            paused.append(1)
            w.fake.answer(h, 429, '{"message": "slow down"}', Retry_After="14")
            return True
        if method == "PUT" and plural == "leases" and paused:
            if not refused:
                refused.append(time.monotonic())
                w.fake.answer(h, 401, '{"reason": "Unauthorized", "message": "Unauthorized"}')
                return True
            renewed.append(time.monotonic())
        return False

    with Access(
        "{tokenFile: token}", hook=hook, files={"token": "t"}, extra=["--leader-elect", *TIMES]
    ) as w:
        wait("the Lease is renewed", lambda: renewed)
        expect(renewed[0] - refused[0] < 4, "at once", renewed[0] - refused[0])
        w.serves_job()
        expect("no longer leading" not in w.log(), "it led all the time", w.log())


@suite.test
def undetected_dead_connections_do_not_cost_the_lease() -> None:
    """A router has forgotten them: what is sent on them is never answered."""
    unanswered, answered = [], []

    def hook(w, h, method, plural, query):
        if h.connection in unanswered:
            with w.fake.changed:
                w.fake.changed.wait_for(lambda: w.fake.stopping, 20)
            return True
        if unanswered and plural == "leases" and method == "PUT":
            answered.append(time.monotonic())
        return False

    with World(hook, jobs=6, extra=["--leader-elect", *TIMES]) as w:
        w.serves_job()
        wait("all jobs have pods", lambda: w.fake.count("POST", "pods") == 12)
        unanswered.extend(w.fake.connections)
        begun = time.monotonic()
        wait("the Lease is renewed", lambda: answered)
        took = answered[0] - begun
        print(f"# renewed after {took:.1f} s")
        wait("renewals continue", lambda: len(answered) > 3)
        log = w.log()
        expect("no longer leading" not in log, "it led all the time", log)


@suite.test
def a_lease_request_that_waits_for_a_plug_in_times_out() -> None:
    script = """#!/bin/sh
while [ ! -e "$(dirname "$0")/ready" ]; do sleep 0.1; done
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'
"""
    with Access(f"{{exec: {EXEC}}}", files={"get": script}, extra=["--leader-elect", *TIMES]) as w:
        wait("it is logged", lambda: "timed out before there were credentials" in w.log())
        expect(not w.fake.requests, "nothing was sent", w.fake.requests)
        (w.dir / "ready").touch()
        w.serves_job()


@suite.test
def readyz_reports_a_forbidden_lease() -> None:
    port = free_port()

    hook = refuse("GET", "leases", *[(403, "leases is forbidden")] * 999)
    with World(hook, port=port, extra=["--leader-elect"]) as w:
        wait("not ready", lambda: "leases is forbidden" in fetch(port, "/readyz")[1])
        expect(fetch(port, "/healthz")[0] == 200, "healthy")
        expect(w.fake.count("POST", "secrets") == 0, "and nothing is done")
