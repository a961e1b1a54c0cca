#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests of elastic jobs: lost pods, changes of size, spares, lost operators and launchers. TAP.

usage: elastic.py [TEST ...]

run.sh brings the cluster up and calls this. Every job trains; each process writes its rank, process id and
pod to the log at the start and in each new world, and rank 0 its steps.
"""

from __future__ import annotations

import json
import re
import time

from cluster import (
    IMAGE,
    ROOT,
    Refused,
    Suite,
    apply,
    expect,
    get,
    horovodjob,
    items,
    kubectl,
    manifest,
    namespace,
    run_suite,
    status_of,
    wait,
    wait_state,
)

suite = Suite()
SCRIPT = ROOT / "tests/e2e/elastic_train.py"
WORLD = re.compile(r"world of (\d+): rank (\d+) pid (\d+) on (\S+) step (\d+)")
STEP = re.compile(r"step (\d+) of a world of (\d+)")


def script(ns: str) -> dict:
    """The ConfigMap with the script, and what mounts it."""
    kubectl("create", "configmap", "train", "-n", ns, f"--from-file=train.py={SCRIPT}")
    return {"name": "train", "configMap": {"name": "train"}}


def elastic(ns: str, name: str, workers: int, policy=None, **pod_spec) -> dict:
    volume = script(ns)
    mount = {"volumeMounts": [{"name": "train", "mountPath": "/train"}]}
    command = ["python3", "-u", "/train/train.py", "100000"]
    job = horovodjob(name, command, workers, container=mount, volumes=[volume], **pod_spec)
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4, **(policy or {})}
    return job


class Watched:
    """A running job, by its launcher's log and its pods."""

    def __init__(self, ns: str, name: str, launcher: str | None = None):
        self.ns, self.name, self.launcher = ns, name, launcher or f"{name}-launcher-0"

    def log(self) -> str:
        try:
            return kubectl("logs", "-n", self.ns, self.launcher)
        except Refused:
            return ""

    def worlds(self) -> dict[int, dict[str, int]]:
        """The processes of the last world by pod, by its size; complete ones only."""
        last: dict[int, dict[str, int]] = {}
        for size, _, pid, host, _ in WORLD.findall(self.log()):
            last.setdefault(int(size), {})[host] = int(pid)
        return last

    def trains(self, size: int, after: int = 0, seconds: float = 120) -> int:
        """Waits until a world of that size has trained beyond a step; returns the step."""

        def look():
            steps = [(int(s), int(n)) for s, n in STEP.findall(self.log())]
            return steps and steps[-1][1] == size and steps[-1][0] > after and steps[-1][0]

        return wait(f"{self.name} trains in a world of {size}", look, seconds)

    def processes(self, size: int) -> dict[str, int]:
        """pod: process id, of the present world, which has that size."""
        lines = [(int(m[0]), m[3], int(m[2])) for m in WORLD.findall(self.log())]
        found: dict[str, int] = {}
        for n, host, pid in reversed(lines):
            if n == size and host not in found and len(found) < size:
                found[host] = pid
        return found

    def pods(self) -> dict[str, str]:
        """worker pod: its uid."""
        return {
            p["metadata"]["name"]: p["metadata"]["uid"]
            for p in items("pods", self.ns)
            if "-worker-" in p["metadata"]["name"]
        }

    def stays(self, before: dict[str, int], after: dict[str, int]) -> None:
        """The processes that are in both worlds are the same."""
        both = before.keys() & after.keys()
        expect(
            both and all(before[p] == after[p] for p in both),
            "survivors keep their processes",
            (before, after),
        )


def running(name: str, workers: int, policy=None, **pod_spec) -> tuple[str, Watched]:
    """A job that runs, in a namespace of this name."""
    ns = namespace(name)
    apply(elastic(ns, "el", workers, policy, **pod_spec), ns)
    wait_state("el", ns, "Running")
    return ns, Watched(ns, "el")


def events(ns: str, reason: str) -> list[str]:
    return [e["message"] for e in items("events", ns) if e["reason"] == reason]


@suite.test
def a_deleted_worker_is_replaced_and_other_workers_stay() -> None:
    ns, job = running("e2e-elastic-loss", 3)
    step = job.trains(3)
    pods, was = job.pods(), job.processes(3)
    begin = time.monotonic()
    kubectl("delete", "pod", "-n", ns, "el-worker-1", "--wait=false")
    step = job.trains(2, step)
    print(f"# trains without it {time.monotonic() - begin:.1f} s after kubectl delete")
    job.stays(was, job.processes(2))
    step = job.trains(3, step)
    print(f"# trains with its successor {time.monotonic() - begin:.1f} s after kubectl delete")
    now = job.pods()
    changed = [p for p in pods if now.get(p) != pods[p]]
    expect(changed == ["el-worker-1"], "only the lost pod is another one", changed)
    job.stays({p: was[p] for p in was if p != "el-worker-1"}, job.processes(3))
    status = status_of("el", ns)
    seen = {k: status.get(k) for k in ("state", "restarts", "replacements", "workerReplacements")}
    expect(
        seen == {"state": "Running", "restarts": 0, "replacements": 0, "workerReplacements": 1},
        "the job was not restarted",
        seen,
    )
    lost = events(ns, "WorkerLost")
    expect(len(lost) == 1 and "el-worker-1" in lost[0], "one Event", lost)
    parts = status["goodput"]["seconds"]
    expect(parts.get("down", 0) == 0, "a lost worker is no down time", parts)
    stop(job)


def condition(ns: str, name: str, kind: str) -> dict:
    return next((c for c in status_of(name, ns).get("conditions", []) if c["type"] == kind), {})


@suite.test
def progress_and_a_stall_of_an_elastic_job_are_in_its_status() -> None:
    ns, job = running("e2e-elastic-progress", 2)
    job.trains(2)
    wait("progress", lambda: status_of("el", ns).get("progress", {}).get("step", 0) > 0, 120)
    pod, pid = next((p, i) for p, i in job.processes(2).items() if p == "el-worker-1")
    kubectl("exec", "-n", ns, pod, "--", "kill", "-STOP", str(pid))
    begin = time.monotonic()
    stalled = wait(
        "Stalled", lambda: (c := condition(ns, "el", "Stalled")).get("reason") == "Stopped" and c, 120
    )
    print(f"# Stalled {time.monotonic() - begin:.1f} s after SIGSTOP: {stalled['message']}")
    node = get("pod", pod, ns)["spec"]["nodeName"]
    expect(pod in stalled["message"] and node in stalled["message"], "it names pod and node", stalled)
    kubectl("exec", "-n", ns, pod, "--", "kill", "-CONT", str(pid))
    wait("it continues", lambda: condition(ns, "el", "Stalled").get("status") == "False", 120)
    stop(job)


def stop(job: Watched) -> None:
    """Ends the training, and the job with success."""
    kubectl("exec", "-n", job.ns, f"{job.name}-worker-0", "--", "touch", "/tmp/end")
    status = wait_state(job.name, job.ns, "Succeeded")
    expect("launcher" in status["message"], "its launcher has succeeded", status["message"])


@suite.test
def a_worker_that_is_announced_to_go_leaves_at_a_commit() -> None:
    ns, job = running("e2e-elastic-drain", 2, terminationGracePeriodSeconds=30)
    step = job.trains(2)
    kubectl("delete", "pod", "-n", ns, "el-worker-1", "--wait=false")
    step = job.trains(1, step)
    log = job.log()
    expect("a host has left" in log and "the world is broken" not in log, "nothing broke", log[-3000:])
    job.trains(2, step)
    stop(job)


@suite.test
def the_example_trains_to_its_end_while_it_is_scaled() -> None:
    ns = namespace("e2e-elastic-example")
    kubectl("apply", "-n", ns, "-f", str(ROOT / "manifests/examples/elastic.yaml"))
    job = Watched(ns, "elastic")
    wait_state("elastic", ns, "Running")
    step = job.trains(2)
    scale(ns, "elastic", 3)
    job.trains(3, step)
    wait_state("elastic", ns, "Succeeded")
    expect("step 600 of a world of 3" in job.log(), "the last step", job.log()[-400:])


def scale(ns: str, name: str, n: int) -> None:
    kubectl("scale", "horovodjob", name, "-n", ns, f"--replicas={n}")


@suite.test
def a_job_is_scaled_while_it_trains_and_operators_die() -> None:
    ns, job = running("e2e-elastic-scale", 2)
    step, was = job.trains(2), job.processes(2)
    for n in (4, 1, 3):
        begin = time.monotonic()
        scale(ns, "el", n)
        if n == 1:
            kubectl("delete", "pods", "-A", "-l", "app.kubernetes.io/name=hvd-operator", "--force")
        step = job.trains(n, step, 180)
        print(f"# trains in a world of {n} after {time.monotonic() - begin:.1f} s")
        now = job.processes(n)
        job.stays(was, now)
        was = now
    status = status_of("el", ns)
    seen = {k: status.get(k) for k in ("state", "restarts", "replacements", "workerReplicas")}
    expect(
        seen == {"state": "Running", "restarts": 0, "replacements": 0, "workerReplicas": 3},
        "the job was not restarted",
        seen,
    )
    refused = ""
    try:
        scale(ns, "el", 5)
    except Refused as e:
        refused = str(e)
    expect("from minReplicas to maxReplicas" in refused, "a size out of bounds is refused", refused)
    try:
        patch = '{"spec":{"elasticPolicy":{"maxReplicas":9}}}'
        kubectl("patch", "horovodjob", "el", "-n", ns, "--type=merge", "-p", patch)
    except Refused as e:
        refused = str(e)
    expect("elasticPolicy cannot be changed while" in refused, "and other bounds", refused)
    stop(job)


@suite.test
def a_spare_takes_the_place_of_a_lost_worker() -> None:
    ns, job = running("e2e-elastic-spare", 2, {"spares": 1})
    job.trains(2)
    wait(
        "the spare pod runs", lambda: len(job.pods()) == 3 and status_of("el", ns)["workers"] == "3/3", 120
    )
    wait("the spare's process is ready", lambda: job.log().count("imports are done") == 3, 60)
    kubectl("delete", "pod", "-n", ns, "el-worker-1", "--grace-period=0", "--force")
    both = ["el-worker-0", "el-worker-2"]
    wait("the spare is in the world", lambda: sorted(job.processes(2)) == both, 120)
    job.trains(2, job.trains(2))
    sizes = {int(n) for _, n in STEP.findall(job.log())}
    expect(sizes == {2}, "the world was never smaller", sizes)
    stop(job)


@suite.test
def a_worker_that_does_not_work_on_a_node_is_moved_to_another_one() -> None:
    ns = namespace("e2e-elastic-move")
    likes = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": likes}]
        }
    }
    of = elastic(ns, "el", 2, affinity=affinity)
    main = of["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    main.setdefault("env", []).extend(
        [
            {"name": "FAIL_ON", "value": "el-worker-1 n1"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ]
    )
    apply(of, ns)
    job = Watched(ns, "el")
    job.trains(1, 0, 180)
    was = job.processes(1)
    job.trains(2, 0, 300)
    job.stays(was, job.processes(2))
    lost = events(ns, "WorkerLost")
    expect(len(lost) == 2, "two pods retire", lost)
    expect(all("el-worker-1 exited with code 1" in text for text in lost), "by their failure", lost)
    expect([text for text in lost if text.endswith("not on n1 if another node has room")], "an Event", lost)
    expect(
        get("pod", "el-worker-1", ns)["spec"]["nodeName"] == "n0", "the third is on the other node", lost
    )
    retired = status_of("el", ns).get("retiredWorkers")
    expect(retired == [{"index": 1, "node": "n1", "count": 2}], "the status has the node", retired)
    stop(job)


def scale_operators(n: int) -> None:
    found = kubectl("get", "deployments", "-A", "-l", "app.kubernetes.io/name=hvd-operator", "-o", "json")
    for d in json.loads(found)["items"]:
        meta = d["metadata"]
        kubectl("scale", "deployment", meta["name"], "-n", meta["namespace"], f"--replicas={n}")
    label = "app.kubernetes.io/name=hvd-operator"
    wait(f"{n} operators", lambda: len(operators_that_run(label)) == n, 120)


def operators_that_run(label: str) -> list[dict]:
    pods = json.loads(kubectl("get", "pods", "-A", "-l", label, "-o", "json"))["items"]
    return [p for p in pods if p["status"].get("phase") == "Running"]


def step_on(ns: str, pod: str) -> int:
    """The step that its process has reached; 0 while the file is being written."""
    return int(kubectl("exec", "-n", ns, pod, "--", "cat", "/tmp/step").strip() or 0)


def lose_launcher(ns: str, job: Watched) -> int:
    """Deletes it while no operator runs; returns a step that was reached without it."""
    scale_operators(0)
    try:
        kubectl("delete", "pod", "-n", ns, job.launcher, "--wait=false")
        wait(
            "the launcher has ended, and is kept",
            lambda: get("pod", job.launcher, ns)["status"]["phase"] == "Failed",
            60,
        )
        at = wait("a step", lambda: step_on(ns, "el-worker-0"), 30)
        return wait("the ranks train", lambda: (s := step_on(ns, "el-worker-0")) > at + 20 and s, 60)
    finally:
        scale_operators(2)


@suite.test
def a_launcher_is_replaced_while_the_ranks_train() -> None:
    ns, job = running("e2e-elastic-launcher", 2)
    job.trains(2)
    pods, was = job.pods(), job.processes(2)
    step = lose_launcher(ns, job)
    begin = time.monotonic()
    wait("the next one adopts the processes", lambda: job.log().count("a process is adopted") == 2, 120)
    print(f"# the next launcher leads {time.monotonic() - begin:.1f} s after the operator runs")
    step = job.trains(2, step)
    expect(job.pods() == pods, "the workers keep their pods", (pods, job.pods()))
    for pod, pid in was.items():
        kubectl("exec", "-n", ns, pod, "--", "test", "-d", f"/proc/{pid}")
    kubectl("delete", "pod", "-n", ns, "el-worker-1", "--wait=false")
    step = job.trains(1, step)
    job.stays(was, job.processes(1))
    job.trains(2, step)
    job.stays({"el-worker-0": was["el-worker-0"]}, job.processes(2))
    status = status_of("el", ns)
    counts = ("restarts", "replacements", "workerReplacements", "launcherReplacements")
    seen = [status.get(k) for k in ("state", *counts)]
    expect(seen == ["Running", 0, 0, 1, 1], "the job was not restarted", status)
    lost = events(ns, "LauncherLost")
    expect(len(lost) == 1 and "el-launcher-0" in lost[0], "one Event", lost)
    stop(job)


@suite.test
def an_mpijob_with_a_discovery_script_loses_a_worker() -> None:
    ns = namespace("e2e-elastic-mpi")
    kubectl("apply", "-k", str(ROOT / "manifests/crd/mpijob"))
    volume = script(ns)
    main = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": "train", "mountPath": "/train"}],
    }
    run = [
        "/opt/ringmaster/bin/horovodrun", "--verbose", "-np", "2", "--min-np", "1", "--max-np", "2",
        "--token-file", "/etc/ringmaster/token", "--host-discovery-script", "/etc/mpi/discover_hosts.sh",
        "python3", "-u", "/train/train.py", "100000",
    ]  # fmt: skip

    def role(n: int, container: dict) -> dict:
        spec = {"terminationGracePeriodSeconds": 2, "containers": [container], "volumes": [volume]}
        return {"replicas": n, "restartPolicy": "Never", "template": {"spec": spec}}

    job = manifest("kubeflow.org/v2beta1", "MPIJob", "el", spec={
        "slotsPerWorker": 1,
        "mpiReplicaSpecs": {"Launcher": role(1, main | {"command": run}), "Worker": role(2, main)},
    })  # fmt: skip
    job["metadata"]["annotations"] = {"ringmaster.dev/launch": "agent"}
    apply(job, ns)
    launcher = wait(
        "the launcher's pod",
        lambda: [p["metadata"]["name"] for p in items("pods", ns) if "launcher" in p["metadata"]["name"]],
        120,
    )
    watched = Watched(ns, "el", launcher[0])
    step, was = watched.trains(2), watched.processes(2)
    kubectl("delete", "pod", "-n", ns, "el-worker-1", "--wait=false")
    step = watched.trains(1, step)
    step = watched.trains(2, step)
    watched.stays({"el-worker-0": was["el-worker-0"]}, watched.processes(2))
    kubectl("exec", "-n", ns, "el-worker-0", "--", "touch", "/tmp/end")

    def done() -> bool:
        conditions = (get("mpijob", "el", ns) or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == "Succeeded" and c["status"] == "True" for c in conditions)

    wait("the MPIJob has succeeded", done, 60)


if __name__ == "__main__":
    run_suite(suite)
