# SPDX-License-Identifier: Apache-2.0
"""hvd-operator when memory is out, or names are not resolved, by the faults of hvd-operator-faults. Part
of fake_test.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from api import expect, wait
from fake_access import Access
from fake_world import World, fetch, free_port, suite


class Faulty(World):
    program = "hvd-operator-faults"

    def becomes(self, *states: str) -> None:
        """If libcurl had no memory, the operator exits and is started again."""

        def seen() -> bool:
            if self.operator.ended():
                expect('stops cause="libcurl: Out of memory"' in self.log(), "with a sentence", self.log())
                self.operator = self.begin()
            return self.state() in states

        wait(f"the job is {states[0]}", seen)


def once_without_memory(text: str, n: int, act) -> str:
    """The n-th allocation after an event with text fails; act(world) is the rest. Returns the log."""
    port = free_port()
    runs = 'hvd_operator_jobs{kind="HorovodJob",state="Running"} 1'
    with Faulty(env={"HVD_NO_MEMORY": f"{text}:{n}"}, port=port) as w:
        w.serves_job()
        # or the pod's watch may be ahead of the job's, and the pod be one of a job that has never run
        wait("the operator has received it", lambda: runs in fetch(port, "/metrics")[1])
        act(w)
        return w.log()


def at_each_point(text: str, points: range, least: int, act) -> None:
    with ThreadPoolExecutor(4) as pool:
        logs = list(pool.map(lambda n: once_without_memory(text, n, act), points))
    told = [log for log in logs if "Cannot allocate memory" in log]
    print(f"# {len(told)} of {len(logs)} watches ended for it")
    if len(told) < least:
        raise AssertionError("the faults hit nothing\n" + logs[0])


@suite.test
def no_event_of_a_pod_is_lost_without_memory() -> None:
    def act(w: Faulty) -> None:
        pod = w.fake.objects["pods"]["ns/j0-worker-0"]
        w.fake.put("pods", dict(pod, status={"phase": "Failed", "reason": "OutOfTheBlue"}))
        w.becomes("Failed")

    at_each_point("OutOfTheBlue", range(100, 160, 3), 3, act)


@suite.test
def no_deletion_of_a_pod_is_lost_without_memory() -> None:
    def act(w: Faulty) -> None:
        pod = dict(
            w.fake.objects["pods"]["ns/j0-worker-0"], status={"phase": "Running", "reason": "Vanished"}
        )
        w.fake.put("pods", pod, "DELETED")
        w.becomes("Restarting", "Pending")

    at_each_point("Vanished", range(5), 2, act)


class Nameless(Access):
    """Its server's name is one that no name server answers for."""

    program = "hvd-operator-faults"

    def begin(self, env=None):
        return super().begin({"HVD_HANGING_NAME": "kube.invalid"})


@suite.test
def a_hanging_name_server_delays_nothing_else() -> None:
    port = free_port()
    times = {"lease-duration": "4s", "renew-deadline": "1s", "retry-period": "200ms"}
    extra = [
        "--leader-elect",
        f"--http-port={port}",
        *(f"--leader-elect-{k}={v}" for k, v in times.items()),
    ]
    with Nameless(server="https://kube.invalid:6443", extra=extra) as w:
        wait("a request has timed out", lambda: "Resolving timed out" in w.log())
        for _ in range(3):
            expect(fetch(port, "/healthz")[0] == 200, "it still answers", w.log())
