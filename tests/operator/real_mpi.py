# SPDX-License-Identifier: Apache-2.0
"""MPIJobs on a real API server with Kubernetes' own Job controller; part of real_test.py.
This program plays the kubelet: pods run and end when it says so.
"""

from __future__ import annotations

import json

from api import condition, ended, expect, manifest, wait
from real_world import api, current, replace, start, suite

MPIJOBS = "/apis/kubeflow.org/v2beta1/namespaces/{ns}/mpijobs"
BATCH = "/apis/batch/v1/namespaces/{ns}/jobs"
LAUNCHER = {"containers": [{"name": "train", "image": "i", "command": ["mpirun"]}]}
WORKER = {"containers": [{"name": "train", "image": "i"}]}


def mpijob(
    workers: int = 2, policy: dict | None = None, annotations: dict | None = None, name: str = "pi", **spec
) -> dict:
    worker = {"replicas": workers, "template": {"spec": WORKER}}
    spec["mpiReplicaSpecs"] = {"Launcher": {"template": {"spec": LAUNCHER}}, "Worker": worker}
    job = manifest("kubeflow.org/v2beta1", "MPIJob", name, spec={"runPolicy": policy or {}, **spec})
    job["metadata"]["annotations"] = annotations or {}
    return job


def make(ns: str, job: dict) -> dict:
    return api.call("POST", MPIJOBS.format(ns=ns), job)


def get(path: str, ns: str, name: str) -> dict | None:
    return api.find(f"{path.format(ns=ns)}/{name}")


def status(ns: str, name: str = "pi") -> dict:
    return (get(MPIJOBS, ns, name) or {}).get("status", {})


def edit(ns: str, spec: dict, name: str = "pi") -> None:
    api.patch(f"{MPIJOBS.format(ns=ns)}/{name}", {"spec": spec})


def launcher(ns: str) -> dict | None:
    return get(BATCH, ns, "pi-launcher")


def is_true(ns: str, kind: str) -> bool:
    return condition(status(ns), kind).get("status") == "True"


def until(ns: str, kind: str, seconds: float = 120) -> dict:
    try:
        wait(f"condition {kind}", lambda: is_true(ns, kind), seconds)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{json.dumps(status(ns), indent=1)}") from None
    return status(ns)


def pods(ns: str, role: str) -> list[dict]:
    return [
        p
        for p in api.items(ns, "pods")
        if p["metadata"]["labels"].get("training.kubeflow.org/job-role") == role
        and "deletionTimestamp" not in p["metadata"]
    ]


def play(ns: str, phase: str, *roles: str) -> None:
    """Every pod of these roles that has not finished is in that phase."""
    end = {} if phase == "Running" else ended(int(phase != "Succeeded"), at="2026-01-01T00:00:01Z")
    for role in roles:
        for pod in pods(ns, role):
            if pod["status"]["phase"] in ("Pending", "Running") and pod["status"]["phase"] != phase:
                api.set_pod(ns, pod["metadata"]["name"], phase, **end)


def run(ns: str, workers: int = 2) -> dict:
    """Runs all pods and waits for condition Running."""
    wait("workers", lambda: len(pods(ns, "worker")) == workers)
    play(ns, "Running", "worker")
    wait("the launcher", lambda: pods(ns, "launcher"))
    play(ns, "Running", "launcher")
    return until(ns, "Running")


@suite.test
def a_suspended_job_gives_its_pods_back_and_resumes() -> None:
    ns = api.namespace("t-mpi-suspends")
    make(ns, mpijob(launcherCreationPolicy="WaitForWorkersReady"))
    wait("workers", lambda: len(pods(ns, "worker")) == 2)
    expect(launcher(ns) is None, "the launcher waits")
    run(ns)
    edit(ns, {"runPolicy": {"suspend": True}})
    until(ns, "Suspended")
    wait("pods are gone", lambda: not api.items(ns, "pods"))
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"zone": "z"}, **LAUNCHER}}
    edit(ns, {"runPolicy": {"suspend": False}, "mpiReplicaSpecs": {"Launcher": {"template": template}}})
    wait("workers again", lambda: len(pods(ns, "worker")) == 2)
    expect((launcher(ns) or {})["spec"]["suspend"], "the launcher waits again")
    run(ns)
    made = (launcher(ns) or {})["spec"]["template"]
    expect(made["spec"]["nodeSelector"] == {"zone": "z"}, "nodeSelector", made)
    expect(made["metadata"]["labels"]["a"] == "b", "labels", made)


@suite.test
def a_changed_spec_reaches_the_service() -> None:
    ns = api.namespace("t-mpi-service")
    make(ns, mpijob(policy={"suspend": True}))
    until(ns, "Suspended")
    edit(ns, {"runLauncherAsWorker": True})
    wait(
        "addresses before readiness",
        lambda: (api.get(ns, "services", "pi") or {})["spec"].get("publishNotReadyAddresses"),
    )


@suite.test
def annotations_delete_the_launcher_and_the_job() -> None:
    ns = api.namespace("t-mpi-ttl")
    extras = {"ringmaster.dev/ttl": "job", "ringmaster.dev/cleanup": "launcher"}
    make(ns, mpijob(1, {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 12}, extras))
    run(ns, 1)
    play(ns, "Succeeded", "launcher")
    until(ns, "Succeeded")
    wait("the launcher is gone", lambda: launcher(ns) is None and not pods(ns, "launcher"))
    expect(get(MPIJOBS, ns, "pi") is not None, "before the job is")
    wait("so is the job", lambda: get(MPIJOBS, ns, "pi") is None)


@suite.test
def the_launcher_s_time_to_live_starts_when_its_end_is_stored() -> None:
    ns = api.namespace("t-mpi-launcher-ttl")
    make(ns, mpijob(1, {"ttlSecondsAfterFinished": 1}))
    run(ns, 1)
    expect("ttlSecondsAfterFinished" not in launcher(ns)["spec"], "not before", launcher(ns)["spec"])
    play(ns, "Succeeded", "launcher")
    until(ns, "Succeeded")
    wait("the launcher is gone", lambda: launcher(ns) is None)
    api.delete(ns, "pods", "pi-worker-0", 0)  # the job is looked at
    expect(get(MPIJOBS, ns, "pi") is not None, "the job stays")
    expect(launcher(ns) is None, "and runs no second time")


@suite.test
def an_evicted_worker_ends_the_job_and_its_launcher() -> None:
    ns = api.namespace("t-mpi-evicted")
    make(ns, mpijob(policy={"cleanPodPolicy": "Running"}))
    run(ns)
    api.patch_pod(ns, "pi-worker-1", {"phase": "Failed", "reason": "Evicted", "message": "disk"})
    seen = until(ns, "Failed")
    expect(condition(seen, "Failed")["reason"] == "MPIJobEvicted", "reason", seen)
    expect("completionTime" in seen, "it is finished", seen)
    wait("clean-up", lambda: [p["metadata"]["name"] for p in pods(ns, "worker")] == ["pi-worker-1"])
    wait(
        "the launcher ends",
        lambda: condition(launcher(ns)["status"], "Failed").get("reason") == "DeadlineExceeded",
    )


@suite.test
def a_deleted_launcher_is_recreated_after_its_pod_has_finished() -> None:
    ns = api.namespace("t-mpi-launcher-deleted")
    make(ns, mpijob(1))
    run(ns, 1)
    pod = pods(ns, "launcher")[0]["metadata"]["name"]
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    path = f"/api/v1/namespaces/{ns}/pods/{pod}"
    api.patch(path, hold)  # the kubelet's grace period
    api.call("DELETE", f"{BATCH.format(ns=ns)}/pi-launcher?propagationPolicy=Background")
    wait("its pod is ending", lambda: not pods(ns, "launcher"), 60)
    api.delete(ns, "pods", "pi-worker-0", 0)  # so that the job is looked at
    wait("the worker is recreated", lambda: len(pods(ns, "worker")) == 1)
    expect(launcher(ns) is None, "no second launcher yet")
    api.patch_pod(ns, pod, {"phase": "Failed"})
    wait("another launcher", lambda: launcher(ns))
    api.patch(path, {"metadata": {"finalizers": None}})
    run(ns, 1)
    play(ns, "Succeeded", "launcher")
    until(ns, "Succeeded")


@suite.test
def a_template_that_is_refused_fails_the_job() -> None:
    ns = api.namespace("t-mpi-refused")
    job = mpijob()
    job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"] = {"containers": [{"name": "Not A Name"}]}
    make(ns, job)
    seen = until(ns, "Failed")
    expect("spec.containers[0].name" in condition(seen, "Failed")["message"], "with its sentence", seen)


@suite.test
def a_job_that_mpi_operator_started_continues() -> None:
    """Its launcher lacks the label that our watch of Jobs selects."""
    ns = api.namespace("t-mpi-taken-over")
    current().stop()
    uid = make(ns, mpijob(1))["metadata"]["uid"]
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "pi", "uid": uid}
    owner["controller"] = True
    meta = {"name": "pi-launcher", "labels": {"app": "pi"}, "ownerReferences": [owner]}
    labels = {"training.kubeflow.org/job-name": "pi", "training.kubeflow.org/job-role": "launcher"}
    labels["training.kubeflow.org/operator-name"] = "mpi-operator"
    template = {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", **LAUNCHER}}
    api.call("POST", BATCH.format(ns=ns), {"metadata": meta, "spec": {"template": template}})
    replace(start())
    run(ns, 1)
    play(ns, "Succeeded", "launcher")
    until(ns, "Succeeded")
