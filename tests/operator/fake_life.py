# SPDX-License-Identifier: Apache-2.0
"""What becomes of a HorovodJob whose spec is edited badly, and of its pods at its end; part of fake_test.py."""

from __future__ import annotations

import json

from api import condition, expect, wait
from fake_world import World, suite


def edit(w: World, change) -> None:
    """A user's edit of job j0."""
    job = json.loads(json.dumps(w.fake.objects["horovodjobs"]["ns/j0"]))
    job["metadata"]["generation"] += 1
    change(job["spec"])
    w.fake.put("horovodjobs", job)


def status(w: World) -> dict:
    return w.fake.objects["horovodjobs"]["ns/j0"].get("status", {})


def bad(spec: dict) -> None:
    spec["newer"] = 1
    spec["replicaSpecs"]["Worker"]["replicas"] = 4


def good(spec: dict) -> None:
    spec.pop("newer")
    spec["replicaSpecs"]["Worker"]["replicas"] = 2


@suite.test
def a_refused_edit_does_not_end_a_job_that_was_just_scaled() -> None:
    with World() as w:
        w.goes_on()
        edit(w, lambda spec: spec["replicaSpecs"]["Worker"].update(replicas=3))
        wait("it is Pending", lambda: w.state() == "Pending")
        edit(w, bad)
        wait(
            "its refusal is told",
            lambda: "spec.newer:" in condition(status(w), "Running").get("message", ""),
        )
        expect(w.state() == "Pending", "it is Pending", status(w))
        w.run_pods(3)
        wait("it runs", lambda: w.state() == "Running")
        expect("ns/j0-worker-3" not in w.fake.objects["pods"], "at the size that was taken")


@suite.test
def a_refused_edit_does_not_end_a_suspended_job_and_holds_it() -> None:
    with World() as w:
        w.goes_on()
        edit(w, lambda spec: spec.update(runPolicy={"suspend": True}))
        wait("it is Suspended", lambda: w.state() == "Suspended")
        edit(w, bad)
        wait(
            "its refusal is told",
            lambda: condition(status(w), "Created").get("reason") == "InvalidSpec",
        )
        edit(w, lambda spec: spec["runPolicy"].update(suspend=False))
        wait("it was looked at", lambda: status(w)["observedGeneration"] == 4)
        expect(w.state() == "Suspended", "it is not resumed", status(w))
        wait("its pods are gone", lambda: not w.fake.objects["pods"])
        edit(w, good)
        w.goes_on()


@suite.test
def a_deadline_ends_what_runs_in_pods_that_are_kept() -> None:
    def before(fake):
        job = World.job("j0")
        job["spec"]["runPolicy"] = {"cleanPodPolicy": "None", "activeDeadlineSeconds": 1}
        fake.put("horovodjobs", job)

    with World(jobs=0, before=before) as w:
        w.run_pods()
        wait("it has failed", lambda: w.state() == "Failed")
        expect(condition(status(w), "Failed")["reason"] == "DeadlineExceeded", "reason", status(w))
        pods = w.fake.objects["pods"]
        wait(
            "kubelets are told to end them",
            lambda: all(p["spec"].get("activeDeadlineSeconds") == 1 for p in pods.values()),
        )
        expect(len(pods) == 2 and not w.fake.count("DELETE", "pods"), "and no pod is deleted")
