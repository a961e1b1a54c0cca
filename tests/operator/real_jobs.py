# SPDX-License-Identifier: Apache-2.0
"""Objects, states and clean-up of a HorovodJob on a real API server; part of real_test.py."""

from __future__ import annotations

import time

from api import CORE, condition, expect, manifest, wait
from real_world import all_there, api, current, job, replace, start, suite


# --- life cycle -------------------------------------------------------------------------
@suite.test
def a_deleted_job_is_left_alone_and_can_be_recreated() -> None:
    ns = api.namespace("t-again")
    api.make(ns, job())
    first = all_there(ns)
    api.delete(ns, "horovodjobs", "j")
    # Kubernetes' garbage collector looks for new kinds, such as ours, each 30 s only.
    wait("garbage collection", lambda: not api.pods(ns) and not api.get(ns, "secrets", "j-token"))
    api.make(ns, job())
    second = all_there(ns)
    expect(not set(first.values()) & set(second.values()), "new pods", first, second)
    wait("it is Pending", lambda: api.status(ns, "j").get("state") == "Pending")


@suite.test
def with_tensorflow_an_image_may_start_by_itself() -> None:
    """With horovod it may not: "no command" in bad_yaml.py."""
    ns = api.namespace("t-command")
    body = job()
    template = {"spec": {"containers": [{"name": "train", "image": "i"}]}}
    roles = {role: {"template": template} for role in ("Worker", "Chief", "PS", "Evaluator")}
    body["spec"] = {"framework": "tensorflow", "replicaSpecs": roles}
    api.make(ns, body)
    wait("its pods", lambda: len(api.pods(ns)) == 4)
    seen = api.get(ns, "pods", "j-chief-0")["spec"]["containers"][0]
    expect("command" not in seen and seen["env"][0]["name"] == "TF_CONFIG", "the image's own", seen)


@suite.test
def a_pod_that_does_not_start_says_why_in_the_job() -> None:
    """The test plays scheduler and kubelet, which reports a missing ConfigMap only as an Event."""
    ns = api.namespace("t-explain")
    api.make(ns, job())
    about = {"kind": "Pod", "namespace": ns, "name": "j-worker-0", "uid": all_there(ns)["j-worker-0"]}
    said = 'MountVolume.SetUp failed for volume "data" : configmap "data" not found'
    why = 'worker 0 (node n1) waits for volume data: configmap "data" not found (since '
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    event = manifest(
        "v1", "Event", "why", involvedObject=about, type="Warning", message=said, lastTimestamp=now
    )
    api.call("POST", CORE.format(ns=ns) + "events", event)
    for pod in "j-worker-0", "j-worker-1":
        binding = manifest("v1", "Binding", pod, target={"kind": "Node", "name": "n1"})
        api.call("POST", CORE.format(ns=ns) + f"pods/{pod}/binding", binding)
    wait("the job says why", lambda: why in api.status(ns, "j").get("message", ""), 90)
    expect("PodsNotStarted" in api.reasons(ns), "an Event says it, too", api.reasons(ns))


@suite.test
def a_taken_name_is_reported_and_retried() -> None:
    ns = api.namespace("t-taken")

    def told(what: str) -> None:
        def look() -> bool:
            created = condition(api.status(ns, "j"), "Created")
            return created.get("reason") == "NameTaken" and what in created["message"]

        wait(f"condition Created names {what}", look)

    def counts() -> list[int]:
        return [e["count"] for e in api.items(ns, "events") if e["reason"] == "NameTaken"]

    container = {"name": "other", "image": "i"}
    other = {"metadata": {"name": "j-worker-1"}, "spec": {"containers": [container]}}
    api.call("POST", CORE.format(ns=ns) + "secrets", {"metadata": {"name": "j-token"}})
    api.make(ns, job())
    told("Secret j-token")
    wait("an event reports it", lambda: counts() == [1])
    expect(not api.pods(ns), "no pod without its Secret")
    current().kill()
    replace(start())
    wait("the same event is counted again", lambda: counts() == [2])
    api.call("POST", CORE.format(ns=ns) + "pods", other)
    api.delete(ns, "secrets", "j-token")
    told("Pod j-worker-1")
    api.delete(ns, "pods", "j-worker-1", grace=0)
    all_there(ns)


@suite.test
def a_full_quota_is_reported_and_retried() -> None:
    ns = api.namespace("t-quota")
    api.call(
        "POST",
        CORE.format(ns=ns) + "resourcequotas",
        {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}},
    )
    wait("the quota is in force", lambda: api.get(ns, "resourcequotas", "q").get("status", {}).get("hard"))
    api.make(ns, job())
    status = wait(
        "condition Created has it",
        lambda: (
            "exceeded quota" in condition(api.status(ns, "j"), "Created").get("message", "")
            and api.status(ns, "j")
        ),
    )
    expect(status["state"] == "Pending", "not failed", status)
    made = [p["metadata"]["name"] for p in api.items(ns, "pods")]
    refused = 0 if made == ["j-worker-1"] else 1
    why = f"the API server refuses worker {refused}'s pod: quota q: pods used 1 of 1, it needs 1"
    wait("the job says why", lambda: why in api.status(ns, "j").get("message", ""))
    api.delete(ns, "resourcequotas", "q")
    all_there(ns)


# --- the process ------------------------------------------------------------------------
@suite.test
def a_hundred_jobs_are_served_in_little_memory() -> None:
    ns = api.namespace("t-many")
    start = time.monotonic()
    for i in range(100):
        api.make(ns, job(f"j{i}"))
    wait("all pods", lambda: len(api.items(ns, "pods")) == 200)
    wait(
        "all statuses",
        lambda: all(j.get("status", {}).get("state") == "Pending" for j in api.items(ns, "horovodjobs")),
    )
    print(
        f"# 100 jobs of 2 workers in {time.monotonic() - start:.1f} s, peak RSS {current().rss_kib()} KiB"
    )
    expect(current().rss_kib() < 20 * 1024, "under 20 MiB", str(current().rss_kib()))
