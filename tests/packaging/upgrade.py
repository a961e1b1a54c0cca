# SPDX-License-Identifier: Apache-2.0
"""A new operator takes over jobs in every state, and touches none of them."""

from __future__ import annotations

import json

from api import expect, wait
from bad_yaml import plain
from common import api, make_namespace, suite, world

NS = "packaging-upgrade"


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
    return out


@suite.test
def a_new_operator_touches_no_job() -> None:
    make_namespace(NS)
    world.run()
    api.make(NS, job("waits"))
    api.make(NS, job("runs"))
    api.make(NS, job("ended", cleanPodPolicy="None"))
    api.make(NS, job("failed", cleanPodPolicy="None"))
    play("runs", "Running")
    play("ended", "Succeeded")
    play("failed", "Failed", 3)
    wait("waits is told", lambda: api.status(NS, "waits").get("state") == "Pending")
    wait("all is settled", settled(), 30)
    before = seen()
    for end in ("in good order", "at once"):
        if end == "at once":
            world.operator.kill()
        world.stop()
        world.run()
        jobs = len(api.call("GET", "/apis/ringmaster.dev/v1beta1/horovodjobs")["items"])
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
