# SPDX-License-Identifier: Apache-2.0
"""Objects, states and clean-up of a HorovodJob on a real API server; part of real_test.py."""

from __future__ import annotations

import time

from api import CORE, condition, ended, expect, wait
from real_world import all_there, api, current, job, replace, report, running, start, state, suite


# --- life cycle -------------------------------------------------------------------------
@suite.test
def every_object_is_created_once_and_owned_by_the_job() -> None:
    ns = api.namespace("t-objects")
    uid = api.make(ns, job())["metadata"]["uid"]
    all_there(ns)
    wait("condition Created", lambda: condition(api.status(ns, "j"), "Created").get("status") == "True")
    objects = api.items(ns, "pods") + [api.get(ns, "services", "j"), api.get(ns, "secrets", "j-token")]
    for o in objects:
        owner = o["metadata"]["ownerReferences"][0]
        expect(owner["uid"] == uid and owner["controller"], "owned by the job", o["metadata"])
        expect(o["metadata"]["labels"]["ringmaster.dev/job-name"] == "j", "labelled", o["metadata"])
    expect(objects[-2]["spec"]["clusterIP"] == "None", "the Service is headless")
    expect(objects[-2]["spec"]["publishNotReadyAddresses"], "and publishes early")
    expect(api.reasons(ns) == [], "nothing to tell yet", api.reasons(ns))


@suite.test
def a_job_that_succeeds_goes_through_its_states() -> None:
    ns = api.namespace("t-succeeds")
    api.make(ns, job(clean="None"))
    before = running(ns)
    status = state(ns, "Running")
    expect(status["workers"] == "2/2", "both are ready", status)
    expect(condition(status, "Running")["status"] == "True", "condition Running", status)
    for name in before:
        api.set_pod(ns, name, "Succeeded", **ended(0, reason="Completed"))
    status = state(ns, "Succeeded")
    expect(
        status["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 2, "failed": 0}, "counts", status
    )
    expect(status["observedGeneration"] == 1 and status["completionTime"], "times", status)
    expect(condition(status, "Running")["status"] == "False", "Running is over", status)
    expect(api.pods(ns) == before, "cleanPodPolicy None keeps the pods")
    expect(api.reasons(ns) == ["JobRunning", "JobSucceeded"], "events", api.reasons(ns))


@suite.test
def the_earliest_failure_is_named_and_running_workers_are_stopped() -> None:
    ns = api.namespace("t-fails")
    api.make(ns, job(workers=3, clean="Running"))
    running(ns, 3)
    state(ns, "Running")
    # worker 0 is seen first; worker 2 reports an earlier failure than that of worker 1
    api.set_pod(ns, "j-worker-0", "Failed", **ended(1, report(1, "j-worker-1", 1767225660000500)))
    state(ns, "Failed")
    api.set_pod(ns, "j-worker-2", "Failed", **ended(3, report(2, "j-worker-2", 1767225660000400, 0, 9)))
    status = wait(
        "the earlier cause",
        lambda: api.status(ns, "j").get("failure", {}).get("rank") == 2 and api.status(ns, "j"),
    )
    wanted = {
        "rank": 2,
        "pod": "j-worker-2",
        "node": "node-2",
        "signal": 9,
        "output": "last line of rank 2\n",
        "time": "2026-01-01T00:01:00.000400Z",
    }
    seen = {k: status["failure"].get(k) for k in wanted}
    expect(seen == wanted, "status.failure", status)
    message = condition(status, "Failed")["message"]
    for part in ("rank 2", "j-worker-2", "SIGKILL", "node-2"):
        expect(part in message, f"the message says {part}", message)
    wait(
        "the running worker is asked to stop",
        lambda: (
            not api.get(ns, "pods", "j-worker-1")
            or "deletionTimestamp" in api.get(ns, "pods", "j-worker-1")["metadata"]
        ),
    )
    expect(api.get(ns, "pods", "j-worker-0") is not None, "ended workers keep their logs")


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
