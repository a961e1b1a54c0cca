# SPDX-License-Identifier: Apache-2.0
"""Several operators on a real API server, under the shipped rights: which one acts, and when another takes
over. Part of real_test.py. The writes of each are counted by its own metrics.
"""

from __future__ import annotations

import contextlib
import re
import time

from api import ended, expect, wait
from fake_world import fetch, free_port
from real_world import LOG, api, current, job, rival, running, state, suite

LEASE = "/apis/coordination.k8s.io/v1/namespaces/ringmaster/leases/hvd-operator"
WRITES = re.compile(
    r'^hvd_operator_api_requests_total\{method="(?:POST|PATCH|DELETE)".* (\d+)$', re.MULTILINE
)


class Rival:
    def __init__(self, *args: str):
        self.port = free_port()
        self.process = rival(
            "--leader-elect", "--lock-namespace=ringmaster", "--http-port", str(self.port), *args
        )

    def metrics(self) -> str:
        return fetch(self.port, "/metrics")[1]

    def leads(self) -> bool:
        return "\nhvd_operator_leader 1" in self.metrics()

    def writes(self) -> int:
        return sum(int(n) for n in WRITES.findall(self.metrics()))


@suite.test
def sigterm_stops_the_operator_with_code_0() -> None:
    code = current().stop()
    expect(code == 0, "exit code 0 after SIGTERM", str(code))
    text = LOG.read_text()
    secrets = [
        s
        for s in api.call("GET", "/api/v1/secrets")["items"]
        if s["metadata"]["name"] == "j-token" and "data" in s
    ]
    expect(bool(secrets), "there are tokens to look for")
    expect(not any(v in text for s in secrets for v in s["data"].values()), "no token in the log")


@contextlib.contextmanager
def two():
    a = Rival()
    b = None
    try:
        wait("a leads", a.leads)
        b = Rival()
        wait("b is ready", lambda: fetch(b.port, "/readyz")[0] == 200)
        yield a, b
    finally:
        for one in (a, b):
            if one and not one.process.ended():
                one.process.kill()


def finish(ns: str) -> None:
    for name in api.pods(ns):
        api.set_pod(ns, name, "Succeeded", **ended(0, reason="Completed"))
    state(ns, "Succeeded")


@suite.test
def one_acts_and_hands_over_within_a_second() -> None:
    """The best of three counts: others may have the processors."""
    took = [hand_over(0)]
    while min(took) >= 1 and len(took) < 3:
        took.append(hand_over(len(took)))
    print(f"# handed over in {min(took) * 1000:.0f} ms")
    expect(min(took) < 1, "within a second", str(took))


def hand_over(turn: int) -> float:
    """How long it takes."""
    with two() as (a, b):
        ns = api.namespace(f"t-elect-handover-{turn}")
        api.make(ns, job())
        running(ns)
        state(ns, "Running")
        expect(b.writes() == 0 < a.writes(), "only the leader writes", str((a.writes(), b.writes())))
        start = time.monotonic()
        expect(a.process.stop() == 0, "a ends well")
        wait("b leads", b.leads)
        took = time.monotonic() - start
        finish(ns)
        spec = api.call("GET", LEASE)["spec"]
        expect(spec["leaseTransitions"] >= 1 and spec["leaseDurationSeconds"] == 15, "the Lease", spec)
        expect(b.process.stop() == 0, "b ends well")
        expect(api.call("GET", LEASE)["spec"].get("holderIdentity", "") == "", "it is free")
        return took


@suite.test
def a_running_mpi_operator_is_reported() -> None:
    ns = api.namespace("mpi-operator")
    path = "/apis/coordination.k8s.io/v1/namespaces/mpi-operator/leases"
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 15}
    api.call("POST", path, {"metadata": {"name": "mpi-operator", "namespace": ns}, "spec": spec})
    one = Rival("--leader-elect-retry-period=100ms", "--leader-elect-renew-deadline=2s")

    def is_reported(alive: int, renewed: bool) -> bool:
        if renewed:
            spec["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
            api.patch(f"{path}/mpi-operator", {"spec": spec})
        return f"\nhvd_operator_mpi_operator_alive {alive}\n" in one.metrics()

    try:
        wait("it leads", one.leads)
        wait("a renewed Lease is reported", lambda: is_reported(1, True))
        log = one.process.log.read_text()
        expect("mpi-operator runs, too" in log, "in the log", log[-800:])
        wait("and that it is no more", lambda: is_reported(0, False))
    finally:
        api.call("DELETE", f"{path}/mpi-operator")
        one.process.kill()
