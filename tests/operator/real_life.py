# SPDX-License-Identifier: Apache-2.0
"""The life of a HorovodJob on a real API server: restart, suspension, scaling, deadline and time to
live; part of real_test.py, which plays the kubelet.
"""

from __future__ import annotations

from datetime import datetime

from api import JOBS, Refused, condition, ended, expect, wait
from real_world import (
    all_there,
    api,
    current,
    job,
    no_operator,
    replace,
    report,
    running,
    runs,
    start,
    state,
    suite,
)


def sweep(ns: str) -> dict[str, str]:
    """The kubelet's part of a deletion: removes pods that are being deleted. Returns the rest."""
    for pod in api.items(ns, "pods"):
        if "deletionTimestamp" in pod["metadata"]:
            try:
                api.delete(ns, "pods", pod["metadata"]["name"], grace=0)
            except Refused as e:
                expect(e.code == 404, "one that has ended goes by itself", e)
    return api.pods(ns)


def restarted(ns: str, old: dict[str, str], n: int = 2) -> dict:
    """Waits until all previous pods are replaced. Returns the status."""

    def look() -> bool:
        now = sweep(ns)
        return len(now) == n and not set(now.values()) & set(old.values())

    wait("new pods", look)
    return state(ns, "Pending")


def patch_job(ns: str, spec: dict) -> None:
    api.patch(JOBS.format(ns=ns) + "/j", {"spec": spec})


def policy(body: dict, **run) -> dict:
    body["spec"].setdefault("runPolicy", {}).update(run)
    return body


@suite.test
def a_worker_deleted_while_the_operator_was_away_is_replaced() -> None:
    ns = "t-deleted-away"
    old = runs(ns)
    with no_operator():
        api.delete(ns, "pods", "j-worker-0", grace=0)
    status = restarted(ns, old)
    expect(status["failure"]["pod"] == "j-worker-0", "pod", status)
    expect(status["replacements"] == 1, "once", status)


@suite.test
def a_job_is_restarted_as_often_as_backoff_limit_says() -> None:
    ns = api.namespace("t-backoff")
    rules = [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]
    api.make(ns, policy(job(), backoffLimit=1, failureRules=rules))
    old = running(ns)
    state(ns, "Running")
    failure = ended(7, report(1, "j-worker-1", 1767225660000400, 7))
    api.set_pod(ns, "j-worker-1", "Failed", **failure)
    status = restarted(ns, old)
    expect(status["restarts"] == 0 and status["replacements"] == 1, "the rule says Ignore", status)
    old = running(ns)
    state(ns, "Running")
    failure = ended(3, report(1, "j-worker-1", 1767225660000400))
    api.set_pod(ns, "j-worker-1", "Failed", **failure)
    status = state(ns, "Restarting")
    message = condition(status, "Restarting")["message"]
    for part in ("restart 1 of 1 in 10 s", "rank 1 on j-worker-1", "code 3"):
        expect(part in message, f"the message says {part}", message)
    expect(status["nextRestartTime"], "and when", status)
    current().kill()  # what it must know is in the status
    replace(start())
    status = restarted(ns, old)
    expect(status["restarts"] == 1 and status["generation"] == 3, "counted once", status)
    running(ns)
    state(ns, "Running")
    failure = ended(3, report(0, "j-worker-0", 1767225660000500))
    api.set_pod(ns, "j-worker-0", "Failed", **failure)
    status = state(ns, "Failed")
    failed = condition(status, "Failed")
    expect(failed["reason"] == "WorkerFailed", "reason", status)
    expect(failed["message"].startswith("after 1 restart: rank 0 on j-worker-0"), "how often", status)
    g = status["goodput"]  # as the API server keeps it, through three starts and two operators
    times = [datetime.fromisoformat(g[k].replace("Z", "+00:00")) for k in ("startTime", "time")]
    expect(sum(g["seconds"].values()) == (times[1] - times[0]).total_seconds(), "the parts add up", g)
    expect(g["time"] == status["completionTime"], "until the end", status)


@suite.test
def a_suspended_job_has_no_pods_and_starts_again() -> None:
    ns = api.namespace("t-suspend")
    api.make(ns, policy(job(), suspend=True))
    status = state(ns, "Suspended")
    expect(not api.pods(ns) and not api.get(ns, "secrets", "j-token"), "nothing was made")
    expect("startTime" not in status and status["workerReplicas"] == 0, "not started", status)
    patch_job(ns, {"runPolicy": {"suspend": False}})
    old = running(ns)
    status = state(ns, "Running")
    expect(condition(status, "Suspended")["status"] == "False", "resumed", status)
    secret = api.get(ns, "secrets", "j-token")["metadata"]["uid"]
    patch_job(ns, {"runPolicy": {"suspend": True}})
    status = state(ns, "Suspended")
    wait("no pod is left", lambda: not sweep(ns))
    expect(api.get(ns, "secrets", "j-token")["metadata"]["uid"] == secret, "the Secret stays")
    patch_job(ns, {"runPolicy": {"suspend": False}})
    status = restarted(ns, old)
    expect(status["generation"] == 2 and status["restarts"] == 0, "the next generation", status)
    expect("startTime" in status, "its time starts again", status)


PLACES = {  # what Kueue writes into a template, and takes away again
    "metadata": {
        "labels": {"kueue.x-k8s.io/podset": "worker"},
        "annotations": {"kueue.x-k8s.io/workload": "w"},
    },
    "spec": {
        "nodeSelector": {"zone": "z"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
    },
}
NO_PLACES = {
    "metadata": {
        "labels": {"kueue.x-k8s.io/podset": None},
        "annotations": {"kueue.x-k8s.io/workload": None},
    },
    "spec": {"nodeSelector": None, "tolerations": None, "schedulingGates": None},
}


def with_worker(template: dict, **run) -> dict:
    return {"runPolicy": run, "replicaSpecs": {"Worker": {"template": template}}}


def refused(ns: str, spec: dict) -> str:
    try:
        patch_job(ns, spec)
    except Refused as e:
        return str(e)
    return "it was taken"


def expect_places(ns: str) -> None:
    for name in all_there(ns):
        pod = api.get(ns, "pods", name)
        for part, wanted in PLACES.items():
            for key, value in wanted.items():
                seen = pod[part].get(key)
                holds = (
                    all(v in seen for v in value)
                    if isinstance(value, list)
                    else value.items() <= seen.items()
                )
                expect(holds, f"{name}: {part}.{key} is {value}", seen)


@suite.test
def a_suspended_job_accepts_scheduling_fields() -> None:
    """As Kueue does it: written in the update that ends the suspension, removed in the one that starts it."""
    ns = api.namespace("t-kueue")
    api.make(ns, policy(job(), suspend=True))
    patch_job(ns, with_worker(PLACES, suspend=False))  # perhaps before the operator has seen it
    expect_places(ns)
    wait("it is seen", lambda: api.status(ns, "j").get("state") == "Pending")
    for what, spec in {
        "nodeSelector": with_worker({"spec": {"nodeSelector": {"zone": "y"}}}),
        "labels": with_worker({"metadata": {"labels": {"a": "b"}}}),
        "one field for another": with_worker({"spec": {"nodeSelector": None, "nodeName": "n"}}),
    }.items():
        told = refused(ns, spec)
        expect("template cannot be changed while the job runs" in told, f"{what} of a job that runs", told)
        expect(told.count("cannot be changed") == 1, "one sentence", told)
    old = api.pods(ns)
    patch_job(ns, with_worker(NO_PLACES, suspend=True))
    state(ns, "Suspended")
    patch_job(ns, with_worker({"spec": {"nodeSelector": {"zone": "x"}}}))
    patch_job(ns, with_worker({"spec": {"nodeSelector": {"zone": "y"}}}, suspend=False))
    restarted(ns, old)
    for name in api.pods(ns):
        pod = api.get(ns, "pods", name)
        expect(pod["spec"]["nodeSelector"] == {"zone": "y"}, "the new place", pod["spec"])
        expect("schedulingGates" not in pod["spec"], "and no gate", pod["spec"])
        expect("kueue.x-k8s.io/podset" not in pod["metadata"]["labels"], "nor label", pod["metadata"])


@suite.test
def containers_are_fixed_even_while_a_job_is_suspended() -> None:
    ns = api.namespace("t-suspended-fixed")
    api.make(ns, policy(job(), suspend=True))
    state(ns, "Suspended")
    other = [{"name": "train", "image": "other", "command": ["c", "x"]}]
    told = refused(ns, with_worker({"spec": {"containers": other}}))
    expect("containers cannot be changed after the job is created" in told, "containers", told)


@suite.test
def every_role_of_a_suspended_job_accepts_scheduling_fields() -> None:
    """A worker and a chief, a server, an evaluator; a launcher is in the next job."""
    ns = api.namespace("t-kueue-roles")
    template = job()["spec"]["replicaSpecs"]["Worker"]["template"]
    serving = {"spec": {"containers": [{"name": "train", "image": "i"}]}}
    tensorflow, launched = policy(job(), suspend=True), policy(job("l"), suspend=True)
    roles = ("Chief", "PS", "Evaluator")
    tensorflow["spec"]["framework"] = "tensorflow"
    tensorflow["spec"]["replicaSpecs"].update({role: {"template": template} for role in roles})
    launched["spec"]["replicaSpecs"].update(
        {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": serving}}
    )
    api.make(ns, tensorflow)
    api.make(ns, launched)
    for name, more in (("j", roles), ("l", ("Launcher",))):
        at = JOBS.format(ns=ns) + f"/{name}"
        sets = {
            role: {"template": {"spec": {"nodeSelector": {"zone": role}}}} for role in (*more, "Worker")
        }
        api.patch(at, {"spec": {"runPolicy": {"suspend": False}, "replicaSpecs": sets}})
        for role in sets:
            pod = wait(
                f"{role} of {name}",
                lambda name=name, role=role: api.get(ns, "pods", f"{name}-{role.lower()}-0"),
            )
            expect(pod["spec"]["nodeSelector"] == {"zone": role}, f"{role} has its place", pod["spec"])
        wait("it is seen", lambda name=name: api.status(ns, name).get("state") == "Pending")
        for role in sets:
            told = ""
            try:
                again = {role: {"template": {"spec": {"nodeSelector": {"zone": "other"}}}}}
                api.patch(at, {"spec": {"replicaSpecs": again}})
            except Refused as e:
                told = str(e)
            expect(
                f"{role}.template" in told and told.count("cannot be changed") == 1,
                f"{role} is fixed",
                told,
            )


@suite.test
def a_deadline_ends_a_job_and_its_time_to_live_deletes_it() -> None:
    ns = api.namespace("t-deadline")
    api.make(ns, policy(job(clean="Running"), activeDeadlineSeconds=10, ttlSecondsAfterFinished=10))
    running(ns)
    status = state(ns, "Failed")
    expect(condition(status, "Failed")["reason"] == "DeadlineExceeded", "reason", status)
    wait("running pods are deleted", lambda: not sweep(ns))
    wait("the job is gone", lambda: not api.get(ns, "horovodjobs", "j"))
    expect("TTLExpired" in api.reasons(ns), "an Event was there first", api.reasons(ns))


@suite.test
def a_scaled_job_keeps_its_pods() -> None:
    ns = "t-scale"
    old = runs(ns)
    scale = JOBS.format(ns=ns) + "/j/scale"
    api.patch(scale, {"spec": {"replicas": 4}})
    pods = all_there(ns, 4)
    expect(all(pods[n] == u for n, u in old.items()), "the first two are the same", old, pods)

    def worlds():
        return [
            p["metadata"]["annotations"]["ringmaster.dev/world"]
            for p in api.items(ns, "pods")
            if "deletionTimestamp" not in p["metadata"]
        ]

    wait("all have the new world", lambda: worlds() == ["2 4"] * 4)
    running(ns, 4)
    status = state(ns, "Running")
    expect(status["workers"] == "4/4" and status["restarts"] == 0, "no restart is counted", status)
    seen = api.call("GET", scale)
    expect(seen["status"]["replicas"] == 4, "the scale subresource", seen)
    expect("ringmaster.dev/job-name=j" in seen["status"]["selector"], "and its selector", seen)
    api.patch(scale, {"spec": {"replicas": 1}})
    wait("all have the smaller world", lambda: worlds() == ["3 1"] * 4)
    for i in 3, 2, 1:
        api.set_pod(ns, f"j-worker-{i}", "Succeeded", **ended(0, reason="Completed"))  # as their agents do
    wait("it runs", lambda: api.status(ns, "j").get("workers") == "1/1")
    status = api.status(ns, "j")
    expect(status["state"] == "Running" and status["generation"] == 3, "on its own", status)
    wait("the surplus pods are deleted", lambda: list(sweep(ns)) == ["j-worker-0"])
    expect(api.pods(ns)["j-worker-0"] == old["j-worker-0"], "worker 0 was kept")
    expect(state(ns, "Running")["restarts"] == 0, "surplus pods' ends are no failure")
