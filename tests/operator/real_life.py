# SPDX-License-Identifier: Apache-2.0
"""The life of a HorovodJob on a real API server: restart, suspension, scaling, deadline and time to
live; part of real_test.py, which calls tests() and plays the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable

from api import JOBS, Api, Operator, Refused, Suite, condition, expect, wait


class Stage:
    """The API server, the operator and the helpers of real_test.py."""

    api: Api
    start: Callable[..., Operator]
    current: Callable[[], Operator]
    replace: Callable[[Operator], None]
    job: Callable[..., dict]
    running: Callable[..., dict[str, str]]
    all_there: Callable[..., dict[str, str]]
    state: Callable[..., dict]
    ended: Callable[..., dict]
    report: Callable[..., str]


stage = Stage()


def sweep(ns: str) -> dict[str, str]:
    """The kubelet's part of a deletion: pods that are asked to go, go. The others."""
    for pod in stage.api.items(ns, "pods"):
        if "deletionTimestamp" in pod["metadata"]:
            try:
                stage.api.delete(ns, "pods", pod["metadata"]["name"], grace=0)
            except Refused as e:
                expect(e.code == 404, "one that has ended goes by itself", e)
    return stage.api.pods(ns)


def restarted(ns: str, old: dict[str, str], n: int = 2) -> dict:
    """All pods of before are gone, others are there; the status as it is then."""

    def look() -> bool:
        now = sweep(ns)
        return len(now) == n and not set(now.values()) & set(old.values())

    wait("new pods", look)
    return stage.state(ns, "Pending")


def patch_job(ns: str, spec: dict) -> None:
    stage.api.call("PATCH", JOBS.format(ns=ns) + "/j", {"spec": spec}, "application/merge-patch+json")


def policy(body: dict, **run) -> dict:
    body["spec"].setdefault("runPolicy", {}).update(run)
    return body


def a_deleted_worker_is_replaced_and_named() -> None:
    ns = stage.api.namespace("t-deleted")
    stage.api.make(ns, stage.job())
    old = stage.running(ns)
    stage.state(ns, "Running")
    stage.api.delete(ns, "pods", "j-worker-1")
    status = stage.state(ns, "Restarting")
    expect(status["failure"]["pod"] == "j-worker-1", "pod", status)
    expect(status["failure"]["node"] == "node-1", "node", status)
    status = restarted(ns, old)
    counts = {k: status.get(k) for k in ("generation", "restarts", "replacements", "workerReplicas")}
    expect(
        counts == {"generation": 2, "restarts": 0, "replacements": 1, "workerReplicas": 2}, "counts", status
    )
    expect(status["failure"]["pod"] == "j-worker-1", "the cause stays", status)
    for pod in stage.api.items(ns, "pods"):
        expect(pod["metadata"]["labels"]["ringmaster.dev/generation"] == "2", "of the new generation", pod)
        expect(pod["metadata"]["annotations"]["ringmaster.dev/world"] == "2 2", "and its world", pod)
    stage.running(ns)
    status = stage.state(ns, "Running")
    expect(condition(status, "Restarting")["status"] == "False", "not restarting any more", status)


def a_worker_deleted_while_the_operator_was_away_is_replaced() -> None:
    ns = stage.api.namespace("t-deleted-away")
    stage.api.make(ns, stage.job())
    old = stage.running(ns)
    stage.state(ns, "Running")
    stage.current().kill()
    stage.api.delete(ns, "pods", "j-worker-0", grace=0)
    stage.replace(stage.start())
    status = restarted(ns, old)
    expect(status["failure"]["pod"] == "j-worker-0", "pod", status)
    expect(status["replacements"] == 1, "once", status)


def an_evicted_worker_is_replaced_and_told_in_kubernetes_words() -> None:
    ns = stage.api.namespace("t-evicted")
    stage.api.make(ns, stage.job())
    old = stage.running(ns)
    stage.state(ns, "Running")
    stage.api.patch_pod(
        ns,
        "j-worker-0",
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
            ],
        },
    )
    status = restarted(ns, old)
    expect("low on resource" in status["failure"]["message"], "the kubelet's sentence", status)
    expect(status["restarts"] == 0 and status["replacements"] == 1, "it does not count", status)


def a_job_is_restarted_as_often_as_backoff_limit_says() -> None:
    ns = stage.api.namespace("t-backoff")
    rules = [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]
    stage.api.make(ns, policy(stage.job(), backoffLimit=1, failureRules=rules))
    old = stage.running(ns)
    stage.state(ns, "Running")
    failure = stage.ended(7, stage.report(1, "j-worker-1", 1767225660000400, 7))
    stage.api.set_pod(ns, "j-worker-1", "Failed", **failure)
    status = restarted(ns, old)
    expect(status["restarts"] == 0 and status["replacements"] == 1, "the rule says Ignore", status)
    old = stage.running(ns)
    stage.state(ns, "Running")
    failure = stage.ended(3, stage.report(1, "j-worker-1", 1767225660000400))
    stage.api.set_pod(ns, "j-worker-1", "Failed", **failure)
    status = stage.state(ns, "Restarting")
    message = condition(status, "Restarting")["message"]
    for part in ("restart 1 of 1 in 10 s", "rank 1 on j-worker-1", "code 3"):
        expect(part in message, f"the message says {part}", message)
    expect(status["nextRestartTime"], "and when", status)
    stage.current().kill()  # what it must know is in the status
    stage.replace(stage.start())
    status = restarted(ns, old)
    expect(status["restarts"] == 1 and status["generation"] == 3, "counted once", status)
    stage.running(ns)
    stage.state(ns, "Running")
    failure = stage.ended(3, stage.report(0, "j-worker-0", 1767225660000500))
    stage.api.set_pod(ns, "j-worker-0", "Failed", **failure)
    status = stage.state(ns, "Failed")
    failed = condition(status, "Failed")
    expect(failed["reason"] == "WorkerFailed", "reason", status)
    expect(failed["message"].startswith("after 1 restart: rank 0 on j-worker-0"), "how often", status)


def a_suspended_job_has_no_pods_and_begins_anew() -> None:
    ns = stage.api.namespace("t-suspend")
    stage.api.make(ns, policy(stage.job(), suspend=True))
    status = stage.state(ns, "Suspended")
    expect(not stage.api.pods(ns) and not stage.api.get(ns, "secrets", "j-token"), "nothing was made")
    expect("startTime" not in status and status["workerReplicas"] == 0, "not started", status)
    patch_job(ns, {"runPolicy": {"suspend": False}})
    old = stage.running(ns)
    status = stage.state(ns, "Running")
    expect(condition(status, "Suspended")["status"] == "False", "resumed", status)
    secret = stage.api.get(ns, "secrets", "j-token")["metadata"]["uid"]
    patch_job(ns, {"runPolicy": {"suspend": True}})
    status = stage.state(ns, "Suspended")
    wait("no pod is left", lambda: not sweep(ns))
    expect(stage.api.get(ns, "secrets", "j-token")["metadata"]["uid"] == secret, "the Secret stays")
    patch_job(ns, {"runPolicy": {"suspend": False}})
    status = restarted(ns, old)
    expect(status["generation"] == 2 and status["restarts"] == 0, "the next generation", status)
    expect("startTime" in status, "its time begins anew", status)


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
    for name in stage.all_there(ns):
        pod = stage.api.get(ns, "pods", name)
        for part, wanted in PLACES.items():
            for key, value in wanted.items():
                seen = pod[part].get(key)
                holds = (
                    all(v in seen for v in value)
                    if isinstance(value, list)
                    else value.items() <= seen.items()
                )
                expect(holds, f"{name}: {part}.{key} is {value}", seen)


def a_suspended_job_takes_where_its_pods_may_run() -> None:
    """As Kueue does it: written in one update with the end of the suspension, taken away with its begin."""
    ns = stage.api.namespace("t-kueue")
    stage.api.make(ns, policy(stage.job(), suspend=True))
    patch_job(ns, with_worker(PLACES, suspend=False))  # perhaps before the operator has seen it
    expect_places(ns)
    wait("it is seen", lambda: stage.api.status(ns, "j").get("state") == "Pending")
    for what, spec in {
        "nodeSelector": with_worker({"spec": {"nodeSelector": {"zone": "y"}}}),
        "labels": with_worker({"metadata": {"labels": {"a": "b"}}}),
        "one field for another": with_worker({"spec": {"nodeSelector": None, "nodeName": "n"}}),
    }.items():
        told = refused(ns, spec)
        expect("template cannot be changed while the job runs" in told, f"{what} of a job that runs", told)
        expect(told.count("cannot be changed") == 1, "one sentence", told)
    old = stage.api.pods(ns)
    patch_job(ns, with_worker(NO_PLACES, suspend=True))
    stage.state(ns, "Suspended")
    patch_job(ns, with_worker({"spec": {"nodeSelector": {"zone": "x"}}}))
    patch_job(ns, with_worker({"spec": {"nodeSelector": {"zone": "y"}}}, suspend=False))
    restarted(ns, old)
    for name in stage.api.pods(ns):
        pod = stage.api.get(ns, "pods", name)
        expect(pod["spec"]["nodeSelector"] == {"zone": "y"}, "the new place", pod["spec"])
        expect("schedulingGates" not in pod["spec"], "and no gate", pod["spec"])
        expect("kueue.x-k8s.io/podset" not in pod["metadata"]["labels"], "nor label", pod["metadata"])


def what_runs_is_fixed_even_while_it_is_suspended() -> None:
    ns = stage.api.namespace("t-suspended-fixed")
    stage.api.make(ns, policy(stage.job(), suspend=True))
    stage.state(ns, "Suspended")
    other = [{"name": "train", "image": "other", "command": ["c", "x"]}]
    told = refused(ns, with_worker({"spec": {"containers": other}}))
    expect("containers cannot be changed after the job is created" in told, "containers", told)


def every_role_of_a_suspended_job_takes_a_place() -> None:
    """A worker and a chief, a server, an evaluator; a launcher is in the next job."""
    ns = stage.api.namespace("t-kueue-roles")
    template = stage.job()["spec"]["replicaSpecs"]["Worker"]["template"]
    serving = {"spec": {"containers": [{"name": "train", "image": "i"}]}}
    tensorflow, launched = policy(stage.job(), suspend=True), policy(stage.job("l"), suspend=True)
    roles = ("Chief", "PS", "Evaluator")
    tensorflow["spec"]["framework"] = "tensorflow"
    tensorflow["spec"]["replicaSpecs"].update({role: {"template": template} for role in roles})
    launched["spec"]["replicaSpecs"].update(
        {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": serving}}
    )
    stage.api.make(ns, tensorflow)
    stage.api.make(ns, launched)
    for name, more in (("j", roles), ("l", ("Launcher",))):
        at, mime = JOBS.format(ns=ns) + f"/{name}", "application/merge-patch+json"
        sets = {
            role: {"template": {"spec": {"nodeSelector": {"zone": role}}}} for role in (*more, "Worker")
        }
        stage.api.call("PATCH", at, {"spec": {"runPolicy": {"suspend": False}, "replicaSpecs": sets}}, mime)
        for role in sets:
            pod = wait(
                f"{role} of {name}",
                lambda name=name, role=role: stage.api.get(ns, "pods", f"{name}-{role.lower()}-0"),
            )
            expect(pod["spec"]["nodeSelector"] == {"zone": role}, f"{role} has its place", pod["spec"])
        wait("it is seen", lambda name=name: stage.api.status(ns, name).get("state") == "Pending")
        for role in sets:
            told = ""
            try:
                again = {role: {"template": {"spec": {"nodeSelector": {"zone": "other"}}}}}
                stage.api.call("PATCH", at, {"spec": {"replicaSpecs": again}}, mime)
            except Refused as e:
                told = str(e)
            expect(
                f"{role}.template" in told and told.count("cannot be changed") == 1,
                f"{role} is fixed",
                told,
            )


def what_somebody_deletes_of_a_job_that_runs_is_made_again() -> None:
    ns = stage.api.namespace("t-mend")
    body = stage.job()
    template = body["spec"]["replicaSpecs"]["Worker"]["template"]
    body["spec"]["replicaSpecs"] = {
        "Launcher": {"template": template},
        "Worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "train", "image": "i"}]}}},
    }
    stage.api.make(ns, body)
    for name in stage.all_there(ns):
        stage.api.set_pod(ns, name, "Running")
    stage.state(ns, "Running")
    pods = stage.api.pods(ns)
    for plural, name in (("services", "j"), ("configmaps", "j-hosts")):
        old = stage.api.get(ns, plural, name)["metadata"]["uid"]
        stage.api.delete(ns, plural, name)

        def is_new(plural=plural, name=name, old=old) -> bool:
            now = stage.api.get(ns, plural, name)
            return bool(now) and now["metadata"]["uid"] != old

        wait(f"{plural}/{name} again", is_new)
    expect(stage.api.pods(ns) == pods, "the pods go on")
    expect(stage.api.status(ns, "j")["state"] == "Running", "and so does the job")


def a_deadline_ends_a_job_and_its_time_to_live_deletes_it() -> None:
    ns = stage.api.namespace("t-deadline")
    stage.api.make(
        ns, policy(stage.job(clean="Running"), activeDeadlineSeconds=10, ttlSecondsAfterFinished=10)
    )
    stage.running(ns)
    status = stage.state(ns, "Failed")
    expect(condition(status, "Failed")["reason"] == "DeadlineExceeded", "reason", status)
    wait("running pods are deleted", lambda: not sweep(ns))
    wait("the job is gone", lambda: not stage.api.get(ns, "horovodjobs", "j"))
    expect("TTLExpired" in stage.api.reasons(ns), "an Event was there first", stage.api.reasons(ns))


def a_deadline_ends_what_runs_in_pods_that_are_kept() -> None:
    ns = stage.api.namespace("t-deadline-none")
    stage.api.make(ns, policy(stage.job(clean="None"), activeDeadlineSeconds=2))
    pods = stage.running(ns)
    status = stage.state(ns, "Failed")
    expect(condition(status, "Failed")["reason"] == "DeadlineExceeded", "reason", status)

    def is_stopped(name: str) -> bool:
        return stage.api.get(ns, "pods", name)["spec"].get("activeDeadlineSeconds") == 1

    wait("kubelets are told to end them", lambda: all(is_stopped(name) for name in pods))
    for name in pods:
        stage.api.set_pod(ns, name, "Failed", **stage.ended(143))
    patch_job(ns, {"runPolicy": {"ttlSecondsAfterFinished": 3600}})
    wait("it was seen", lambda: stage.api.status(ns, "j").get("observedGeneration") == 2)
    expect(stage.api.pods(ns) == pods, "the same pods are there", stage.api.pods(ns))
    now = stage.state(ns, "Failed")
    expect(condition(now, "Failed") == condition(status, "Failed"), "the reason stays", now)


def a_scaled_job_keeps_its_pods() -> None:
    ns = stage.api.namespace("t-scale")
    stage.api.make(ns, stage.job())
    old = stage.running(ns)
    stage.state(ns, "Running")
    scale = JOBS.format(ns=ns) + "/j/scale"
    stage.api.call("PATCH", scale, {"spec": {"replicas": 4}}, "application/merge-patch+json")
    pods = stage.all_there(ns, 4)
    expect(all(pods[n] == u for n, u in old.items()), "the first two are the same", old, pods)

    def worlds():
        return [
            p["metadata"]["annotations"]["ringmaster.dev/world"]
            for p in stage.api.items(ns, "pods")
            if "deletionTimestamp" not in p["metadata"]
        ]

    wait("all are told", lambda: worlds() == ["2 4"] * 4)
    stage.running(ns, 4)
    status = stage.state(ns, "Running")
    expect(status["workers"] == "4/4" and status["restarts"] == 0, "no restart is counted", status)
    seen = stage.api.call("GET", scale)
    expect(seen["status"]["replicas"] == 4, "the scale subresource", seen)
    expect("ringmaster.dev/job-name=j" in seen["status"]["selector"], "and its selector", seen)
    stage.api.call("PATCH", scale, {"spec": {"replicas": 1}}, "application/merge-patch+json")
    wait("all are told of the smaller world", lambda: worlds() == ["3 1"] * 4)
    for i in 3, 2, 1:
        stage.api.set_pod(
            ns, f"j-worker-{i}", "Succeeded", **stage.ended(0, reason="Completed")
        )  # as their agents do
    wait("it runs", lambda: stage.api.status(ns, "j").get("workers") == "1/1")
    status = stage.api.status(ns, "j")
    expect(status["state"] == "Running" and status["generation"] == 3, "on its own", status)
    wait("the others are gone", lambda: list(sweep(ns)) == ["j-worker-0"])
    expect(stage.api.pods(ns)["j-worker-0"] == old["j-worker-0"], "worker 0 was kept")
    expect(stage.state(ns, "Running")["restarts"] == 0, "surplus pods' ends are no failure")


def tests(suite: Suite) -> None:
    for test in (
        a_deleted_worker_is_replaced_and_named,
        a_worker_deleted_while_the_operator_was_away_is_replaced,
        an_evicted_worker_is_replaced_and_told_in_kubernetes_words,
        a_job_is_restarted_as_often_as_backoff_limit_says,
        a_suspended_job_has_no_pods_and_begins_anew,
        a_suspended_job_takes_where_its_pods_may_run,
        what_runs_is_fixed_even_while_it_is_suspended,
        every_role_of_a_suspended_job_takes_a_place,
        what_somebody_deletes_of_a_job_that_runs_is_made_again,
        a_deadline_ends_a_job_and_its_time_to_live_deletes_it,
        a_deadline_ends_what_runs_in_pods_that_are_kept,
        a_scaled_job_keeps_its_pods,
    ):
        suite.test(test)
