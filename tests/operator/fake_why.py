# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: why a job does not run, from what the API server refuses and from objects that no watch shows:
the PodGroup of pods without a node, Kueue's Workload of a suspended job. How often they are requested.
"""

from __future__ import annotations

import json
import threading

from api import expect, wait
from fake_world import OPEN, World, mpijob, refuse, suite

LACK = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
NO_VICTIMS = (
    " no new claims to deallocate, preemption: 0/3 nodes are available: 3 No preemption victims found."
)
GANG = (
    "1/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; Pending: 1 "
    "Schedulable, 1 Unschedulable. Origin reason is j0-worker-1: 0/3 nodes are unavailable: 3 Insufficient cpu."
)
QUOTA = (
    'pods "j0-worker-1" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=8, used: '
    "requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu=16"
)
KUEUE = (
    "couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in flavor a100, "
    "8 more needed"
)
LONG_AGO = "2026-01-01T00:00:00Z"


def message(w: World, name: str = "j0") -> str:
    return w.get("horovodjobs", name).get("status", {}).get("message", "")


def created(w: World, name: str) -> str:
    """The message of an MPIJob's condition Created."""
    conditions = w.get("mpijobs", name).get("status", {}).get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "Created"), "")


def without_node(w: World, *names: str) -> None:
    """As the scheduler reports it, long ago."""
    for name in names:
        pod = w.get("pods", name)
        pod["metadata"]["creationTimestamp"] = LONG_AGO
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod["status"] = {
            "phase": "Pending",
            "conditions": [condition | {"message": LACK + NO_VICTIMS}],
        }
        w.fake.put("pods", pod)


def gets(w: World, plural: str) -> int:
    """Requests of one object, without lists and watches."""
    with w.fake.changed:
        return sum(1 for m, p, q in w.fake.requests if (m, p) == ("GET", plural) and not q)


def lists(w: World) -> int:
    return w.fake.count("GET", "workloads")


def group_says(w: World, name: str, text: str) -> None:
    wait("the PodGroup", lambda: f"ns/{name}" in w.fake.objects["podgroups"])
    condition = {"type": "Unschedulable", "status": "True", "message": text}
    w.fake.put(
        "podgroups", w.get("podgroups", name) | {"status": {"phase": "Inqueue", "conditions": [condition]}}
    )


@suite.test
def a_quota_names_the_pod_and_the_numbers() -> None:
    def hook(w, h, method, plural, query):
        if method != "POST" or plural != "pods" or not full:
            return False
        w.fake.answer(h, 403, json.dumps({"code": 403, "message": QUOTA}))
        return True

    full = [True]
    with World(hook) as w:
        wait("why", lambda: "the API server refuses worker 0's pod: quota team:" in message(w))
        expect(message(w).endswith("requests.nvidia.com/gpu used 16 of 16, it needs 8"), message(w))
        full.clear()
        w.serves_job()
        wait("no word of it", lambda: message(w) == "all 2 workers run")


@suite.test
def pods_refused_side_by_side_are_named_in_their_order() -> None:
    """Whichever answer comes first, the status stays the same."""
    second = threading.Event()
    times = []

    def hook(w, h, method, plural, query):
        if method != "POST" or plural != "pods":
            return False
        times.append(1)
        if len(times) == 1:
            second.wait(60)
        w.fake.answer(h, 403, json.dumps({"code": 403, "message": QUOTA}))
        second.set()
        return True

    with World(hook) as w:
        wait("why", lambda: message(w).startswith("the API server refuses worker 0's pod: quota team:"))


@suite.test
def a_pod_group_says_what_its_gang_lacks() -> None:
    with World(extra=["--gang-scheduling=volcano", *OPEN]) as w:
        w.wait_pods()
        group_says(w, "j0", GANG)
        expect(gets(w, "podgroups") == 0, "pods that are not refused by a scheduler need nothing")
        without_node(w, "j0-worker-0", "j0-worker-1")
        why = "PodGroup j0 waits: 1 of 2 pods do not fit (Volcano: 0/3 nodes are unavailable: 3 Insufficient cpu)"
        wait("why", lambda: message(w) == why)
        w.set_pod("j0-worker-0", phase="Running")
        w.job_runs("other")  # the change was seen
        wait("the other one waits", lambda: message(w).startswith("1 of 2 workers run; PodGroup j0"))
        expect(gets(w, "podgroups") == 1, "not again so soon", str(gets(w, "podgroups")))
        w.serves_job()
        expect(gets(w, "podgroups") == 1, "nothing for a job that runs", str(gets(w, "podgroups")))


@suite.test
def an_mpijob_says_why_in_its_first_condition() -> None:
    def job(fake) -> None:
        fake.put("mpijobs", mpijob("m"))

    with World(jobs=0, before=job, extra=["--gang-scheduling=my-scheduler", *OPEN]) as w:
        w.wait_pods(name="m")
        wait("the PodGroup", lambda: "ns/m" in w.fake.objects["podgroups"])
        without_node(w, "m-worker-0", "m-worker-1")
        why = (
            "MPIJob ns/m is created; PodGroup m waits: its 3 pods must fit at once (scheduler: 0/3 nodes are "
            "available: 3 Insufficient nvidia.com/gpu)"
        )
        wait("why", lambda: created(w, "m") == why)
        expect(gets(w, "podgroups") == 1, "once", str(gets(w, "podgroups")))
        w.run_pods(name="m")
        wait("no word of it", lambda: created(w, "m") == "MPIJob ns/m is created.")


@suite.test
def without_the_right_to_read_the_pod_group_the_scheduler_s_words_count() -> None:
    times = []

    def hook(w, h, method, plural, query):
        if method != "GET" or plural != "podgroups" or query:
            return False
        times.append(1)
        w.fake.answer(h, 403, '{"code": 403, "message": "podgroups is forbidden"}')
        return True

    with World(hook, extra=["--gang-scheduling=volcano", *OPEN]) as w:
        w.wait_pods()
        without_node(w, "j0-worker-0", "j0-worker-1")
        why = f"all 2 workers wait for the scheduler: {LACK[:-1]}"
        wait("why", lambda: message(w) == why and times)
        w.serves_job()
        expect(len(times) == 1, "not again", str(len(times)))


def suspended(queue: str) -> dict:
    body = World.job("j0")
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    body["spec"]["runPolicy"] = {"suspend": True}
    condition = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "m"}
    body["status"] = {"state": "Suspended", "conditions": [condition | {"lastTransitionTime": LONG_AGO}]}
    return body


def workload(fake, job: str, uid: str) -> None:
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": KUEUE}
    fake.put(
        "workloads",
        {
            "metadata": {"name": f"job-{job}-1234", "labels": {"kueue.x-k8s.io/job-uid": uid}},
            "spec": {"queueName": "team-a", "active": True},
            "status": {"conditions": [condition]},
        },
    )


@suite.test
def a_suspended_job_says_what_kueue_waits_for() -> None:
    def job(fake) -> None:
        body = fake.put("horovodjobs", suspended("team-a"))
        workload(fake, "j0", body["metadata"]["uid"])
        workload(fake, "other", "another-uid")

    with World(jobs=0, before=job) as w:
        why = (
            "suspended by Kueue: the Workload in queue team-a is not admitted: insufficient unused quota for "
            "nvidia.com/gpu in flavor a100, 8 more needed"
        )
        wait("why", lambda: message(w) == why)
        w.job_runs("later")
        expect(lists(w) == 1, "once, and nothing for a job that runs", str(lists(w)))
        w.change("horovodjobs", "j0", runPolicy__suspend=False)
        w.serves_job()
        expect(lists(w) == 1, "nothing any more", str(lists(w)))


@suite.test
def a_suspended_mpijob_says_what_kueue_waits_for() -> None:
    def job(fake) -> None:
        body = mpijob("m")
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
        body["spec"]["runPolicy"] = {"suspend": True}
        conditions = [
            {
                "type": "Created",
                "status": "True",
                "reason": "MPIJobCreated",
                "message": "MPIJob ns/m is created.",
            },
            {
                "type": "Suspended",
                "status": "True",
                "reason": "MPIJobSuspended",
                "message": "MPIJob suspended",
            },
        ]
        times = {"lastTransitionTime": LONG_AGO, "lastUpdateTime": LONG_AGO}
        body["status"] = {"conditions": [c | times for c in conditions]}
        workload(fake, "m", fake.put("mpijobs", body)["metadata"]["uid"])

    def running(w: World) -> str:
        conditions = w.get("mpijobs", "m")["status"].get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "Running"), "")

    with World(jobs=0, before=job) as w:
        start = (
            "MPIJob ns/m is suspended; suspended by Kueue: the Workload in queue team-a is not admitted: "
        )
        wait("why", lambda: running(w).startswith(start))
        expect(lists(w) == 1, "once", str(lists(w)))
        expect(created(w, "m") == "MPIJob ns/m is created.", created(w, "m"))


@suite.test
def without_kueue_or_its_rights_a_suspended_job_says_what_is_known() -> None:
    plain = "the job is suspended by spec.runPolicy.suspend"
    for code in 403, 404:
        hook = refuse("GET", "workloads", *[(code, "no")] * 100)
        with World(hook, jobs=0, before=lambda fake: fake.put("horovodjobs", suspended("q"))) as w:
            wait("it asked", lambda hook=hook: hook.times)
            wait("why", lambda w=w: message(w) == f"{plain}; its label names Kueue's queue q")
            w.job_runs("later")
            expect(len(hook.times) == 1, "not again", str(len(hook.times)))
    with World(jobs=0, before=lambda fake: fake.put("horovodjobs", suspended("q"))) as w:
        wait("no Workload", lambda: message(w).startswith(f"{plain}; Kueue has no Workload for it"))
    with World(jobs=0, before=lambda fake: fake.put("horovodjobs", suspended(""))) as w:
        wait("why", lambda: message(w) == plain)
        w.job_runs("later")
        expect(lists(w) == 0, "no label, no request", str(lists(w)))
