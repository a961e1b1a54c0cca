# SPDX-License-Identifier: Apache-2.0
"""A new operator takes over jobs in every state, and touches none of them."""

from __future__ import annotations

import json

from api import expect, wait
from bad_yaml import plain, plain_mpi
from common import api, make_namespace, suite, world

NS = "packaging-upgrade"
MPIJOBS = f"/apis/kubeflow.org/v2beta1/namespaces/{NS}/mpijobs"
BATCH = f"/apis/batch/v1/namespaces/{NS}/jobs"


def job(name: str, **run_policy: str) -> dict:
    body = plain(name)
    body["spec"]["runPolicy"] = run_policy
    return body


def play(name: str, phase: str, code: int = 0) -> None:
    """The kubelet's part, for both workers."""
    wait(f"pods of {name}", lambda: sum(n.startswith(f"{name}-worker-") for n in api.pods(NS)) == 2)
    for i in (0, 1):
        api.set_pod(NS, f"{name}-worker-{i}", "Running")
    wait(f"{name} runs", lambda: api.status(NS, name).get("state") == "Running")
    if phase == "Running":
        return
    at = "2026-01-01T00:01:00Z"
    ended = {"terminated": {"exitCode": code, "reason": "Error", "startedAt": at, "finishedAt": at}}
    for i in (0, 1):
        api.set_pod(NS, f"{name}-worker-{i}", phase, **ended)
    wait(f"{name} has ended", lambda: api.status(NS, name).get("state") == phase)


def seen() -> dict[str, str]:
    """All that the operator may write, without what the API server counts by itself."""
    kinds = ("horovodjobs", "pods", "services", "secrets", "configmaps", "events")
    out = {}
    for kind in kinds:
        for o in api.items(NS, kind):
            out[f"{kind} {o['metadata']['name']}"] = json.dumps(o, indent=1, sort_keys=True)
    for path in (MPIJOBS, BATCH):
        for o in api.call("GET", path)["items"]:
            out[f"{path} {o['metadata']['name']}"] = json.dumps(o, indent=1, sort_keys=True)
    return out


@suite.test
def a_new_operator_touches_no_job() -> None:
    make_namespace(NS)
    world.run()
    api.make(NS, job("waits"))
    api.make(NS, job("runs"))
    api.make(NS, job("ended", cleanPodPolicy="None"))
    api.make(NS, job("failed", cleanPodPolicy="None"))
    api.call("POST", MPIJOBS, plain_mpi("mpi"))
    wait("the launcher of mpi", lambda: api.call("GET", BATCH)["items"])
    play("runs", "Running")
    play("ended", "Succeeded")
    play("failed", "Failed", 3)
    wait("waits is told", lambda: api.status(NS, "waits").get("state") == "Pending")
    wait("mpi is told", lambda: api.call("GET", MPIJOBS + "/mpi").get("status", {}).get("conditions"))
    wait("all is settled", settled(), 30)
    before = seen()
    for end in ("in good order", "at once"):
        if end == "at once":
            world.operator.kill()
        world.stop()
        world.run()
        kinds = ("ringmaster.dev/v1beta1/horovodjobs", "kubeflow.org/v2beta1/mpijobs")
        jobs = sum(len(api.call("GET", "/apis/" + kind)["items"]) for kind in kinds)
        wait("the new one has looked at every job", lambda jobs=jobs: world.looks() >= jobs)
        wait("and is done with them", settled(), 30)
        after = seen()
        changed = [k for k in before.keys() | after.keys() if before.get(k) != after.get(k)]
        expect(not changed, f"ended {end}: nothing was made, changed or deleted", *changed)
    # and it does its work: the job that runs comes to its end
    for i in (0, 1):
        at = "2026-01-01T00:02:00Z"
        ended = {"terminated": {"exitCode": 0, "startedAt": at, "finishedAt": at}}
        api.set_pod(NS, f"runs-worker-{i}", "Succeeded", **ended)
    wait(
        "the job that ran is told to have succeeded", lambda: api.status(NS, "runs")["state"] == "Succeeded"
    )


def settled():
    """Nothing has changed between a number of looks at all objects."""
    looks: list[dict[str, str]] = []

    def look() -> bool:
        looks.append(seen())
        return len(looks) > 8 and all(x == looks[-1] for x in looks[-8:])

    return look
