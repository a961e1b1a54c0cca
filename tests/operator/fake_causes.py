# SPDX-License-Identifier: Apache-2.0
"""The status of a job whose GPU failed, from the reports that its pods leave; part of fake_test.py."""

from __future__ import annotations

import time

from api import condition, ended, expect, wait
from fake_world import World, fetch, free_port, launched, mpijob, refuse, suite

XID = "XID 79 (GPU has fallen off the bus) on GPU 0 (PCI 0000:3B:00.0) of rank 1 (host j0-worker-1)"
HINT = ": the GPU or its slot: power, heat or PCIe, drain the host"
LAST = f"HorovodInternalError: rank 1 (host b, pid 7): {XID}{HINT}; work on the GPU cannot end\n"
ENDED = "2026-01-01T00:00:30Z"


def line(rank: int, host: str, why: str, at: int = 1767225630000000) -> str:
    return f'ringmaster-failure/1 rank={rank} host={host} exit=1 signal=0 at={at} why="{why}"\n'


def fails(w: World, name: str, text: str, code: int = 1) -> None:
    """The pod's container has ended and left text."""
    container = w.get("pods", name)["spec"]["containers"][0]["name"]
    states = [{"name": container, "state": ended(code, text, at=ENDED)}]
    w.set_pod(name, phase="Failed", containerStatuses=states)


def is_heard(w: World, port: int, like: dict) -> None:
    """The operator has received all pod events so far. Watches of different kinds have no common order."""
    meta = {"name": "later", "labels": like["metadata"]["labels"]}
    w.fake.put("pods", {"metadata": meta, "status": {"phase": "Pending"}})
    n = len(w.fake.objects["pods"])
    wait("all pods are known", lambda: f"\nhvd_operator_pods {n}\n" in fetch(port, "/metrics")[1])


def failure(w: World) -> dict:
    def told() -> dict | None:
        return w.fake.objects["horovodjobs"]["ns/j0"].get("status", {}).get("failure")

    return wait("the failure is reported", told)


def launcher_pod(w: World) -> dict:
    """Of MPIJob m, as the Job controller creates it."""
    w.run_pods(name="m")
    batch = wait("the launcher's Job", lambda: w.fake.objects["jobs"].get("ns/m-launcher"))
    uid, template = batch["metadata"]["uid"], batch["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "m-launcher", "uid": uid}
    meta = {"name": "m-launcher-x", "ownerReferences": [owner | {"controller": True}]}
    meta["labels"] = template["metadata"].get("labels", {}) | {"controller-uid": uid}
    return w.fake.put("pods", {"metadata": meta, "spec": template["spec"]})


@suite.test
def a_gpu_that_failed_is_the_jobs_failure() -> None:
    """All agents leave the same report; the worker that exited first is not the one whose GPU failed."""
    with World() as w:
        w.serves_job()
        text = line(1, "j0-worker-1", XID + HINT) + LAST
        fails(w, "j0-worker-0", text)
        fails(w, "j0-worker-1", text)
        told = failure(w)
        expect(told["rank"] == 1, "the rank", told)
        expect(told["pod"] == "j0-worker-1", "its pod", told)
        expect(
            told["message"] == f"rank 1 on j0-worker-1 exited with code 1: {XID}{HINT}",
            "the sentence",
            told,
        )
        wait("it has failed", lambda: w.state() == "Failed")
        status = w.fake.objects["horovodjobs"]["ns/j0"]["status"]
        expect(XID in condition(status, "Failed")["message"], "the condition says so", status)


@suite.test
def a_launchers_last_lines_name_the_gpu() -> None:
    """mpirun leaves no report; the end of its log, which the kubelet keeps, has the rank's message."""
    with World(jobs=0, before=lambda fake: fake.put("horovodjobs", launched("j0", "mpirun"))) as w:
        w.run_pods()
        launcher = wait(
            "the launcher", lambda: next((k for k in w.fake.objects["pods"] if "launcher" in k), None)
        )
        fails(w, launcher.removeprefix("ns/"), "some lines\n" + LAST + "mpirun has ended\n")
        told = failure(w)
        expect(told["message"].endswith(f": {XID}{HINT}"), "the sentence", told)


@suite.test
def an_mpijobs_condition_names_the_gpu() -> None:
    """From horovodrun's report, and from the output that mpirun passed on."""
    for text, wanted in (
        (line(1, "m-worker-1", XID + HINT) + LAST, f"rank 1 on m-worker-1 exited with code 1: {XID}{HINT}"),
        ("some lines\n" + LAST, XID + HINT),
        ("nothing of a GPU\n", None),
    ):
        port = free_port()
        with World(jobs=0, before=lambda fake: fake.put("mpijobs", mpijob("m")), port=port) as w:
            pod = launcher_pod(w)
            fails(w, "m-launcher-x", text)
            is_heard(w, port, pod)
            reached = {
                "reason": "BackoffLimitExceeded",
                "message": "Job has reached the specified backoff limit",
            }
            failed = {"type": "Failed", "status": "True"} | reached
            w.fake.put(
                "jobs", w.get("jobs", "m-launcher") | {"status": {"failed": 1, "conditions": [failed]}}
            )

            def seen(w=w) -> dict | None:
                return condition(w.get("mpijobs", "m").get("status", {}), "Failed")

            message = wait("it has failed", seen)["message"]
            if wanted:
                expect(message.endswith("backoff limit: " + wanted), "the condition says so", message)
            else:
                expect("rank" not in message and "XID" not in message, "nothing is said", message)


@suite.test
def a_launcher_that_is_restarted_is_reported() -> None:
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'\n"
    with World(jobs=0, before=lambda fake: fake.put("mpijobs", mpijob("m"))) as w:
        launcher_pod(w)
        again = {
            "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}
        }
        last = {"terminated": {"exitCode": 1, "message": text}}
        container = {"name": "c", "state": again, "lastState": last, "restartCount": 3}
        w.set_pod("m-launcher-x", phase="Running", containerStatuses=[container])

        def told() -> list[str]:
            events = w.fake.objects["events"].values()
            return [e["message"] for e in events if e["reason"] == "LauncherRestarted"]

        wait("the Event", told)
        why = "container c exited with code 1: ModuleNotFoundError: No module named 'torch'; restart 3"
        expect(told() == ["Pod m-launcher-x: " + why], "what happened", str(told()))


def event_of(w: World, name: str, pod: str, message: str, kind: str = "Warning") -> None:
    about = {"kind": "Pod", "name": pod, "uid": w.get("pods", pod)["metadata"]["uid"]}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    meta = {"name": name}
    body = {
        "metadata": meta,
        "involvedObject": about,
        "type": kind,
        "message": message,
        "lastTimestamp": now,
    }
    w.fake.put("events", body)


def bind(w: World, pod: str, waiting: str) -> None:
    """As the scheduler does, long ago, and as the kubelet reports it."""
    now = w.get("pods", pod)
    now["spec"]["nodeName"] = "n1"
    state = {"waiting": {"reason": waiting}}
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    statuses = [{"name": "c", "state": state}]
    now["status"] = {"phase": "Pending", "conditions": [bound], "containerStatuses": statuses}
    w.fake.put("pods", now)


def message(w: World) -> str:
    return w.get("horovodjobs", "j0").get("status", {}).get("message", "")


def reasons(w: World) -> list[str]:
    about = "HorovodJob"
    return [e["reason"] for e in w.fake.objects["events"].values() if e["involvedObject"]["kind"] == about]


@suite.test
def events_of_a_pod_say_why_it_does_not_start() -> None:
    event = 'MountVolume.SetUp failed for volume "v" : configmap "v" not found'
    why = 'worker 0 (node n1) waits for volume v: configmap "v" not found (since 2026-01-01T00:00:00Z)'
    with World() as w:
        w.wait_pods()
        event_of(w, "pulled", "j0-worker-0", "image pulled", "Normal")
        event_of(w, "other", "j0-worker-1", "of the other pod")
        event_of(w, "why", "j0-worker-0", event)
        bind(w, "j0-worker-0", "ContainerCreating")
        wait("why", lambda: why in message(w))
        wait("an Event, too", lambda: "PodsNotStarted" in reasons(w))
        asked = w.fake.count("GET", "events")
        bind(w, "j0-worker-0", "PodInitializing")  # a change is no reason to ask again so soon
        w.job_runs("other")
        again = w.fake.count("GET", "events")
        expect(asked >= 1 and again <= asked + 1, "not again at once", str(again))
        expect(why in message(w), "the reason stays")
        w.serves_job()
        expect(reasons(w).count("PodsNotStarted") == 1, "once", str(reasons(w)))


@suite.test
def without_the_right_to_read_events_the_job_is_served() -> None:
    hook = refuse("GET", "events", *[(403, "events is forbidden")] * 100)
    with World(hook) as w:
        w.wait_pods()
        bind(w, "j0-worker-0", "ContainerCreating")
        wait("it asked", lambda: hook.times)
        w.serves_job()
        expect(len(hook.times) <= 2, "not again at once", str(len(hook.times)))
