#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests of MPIJobs: Debian's Open MPI and MPICH, by sshd and by the agent. TAP.

usage: mpi.py [TEST ...]

run.sh brings the cluster up with the images of tests/cluster/images/mpi.sh and calls this. Every job
computes pi; its launcher's log has the hosts.
"""

from __future__ import annotations

import json

from cluster import (
    Late,
    Suite,
    apply,
    condition,
    diagnose,
    expect,
    get,
    items,
    kubectl,
    namespace,
    run_suite,
    wait,
)

suite = Suite()
SSH, BARE = "localhost/mpi-ssh:1", "localhost/mpi-bare:1"
AGENT = {"ringmaster.dev/launch": "agent"}
RUN = {  # OMPI_ALLOW_RUN_AS_ROOT and the like are the image's or the user's, as ever
    "OpenMPI": ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "-n", "4", "mpi-pi-openmpi"],
    "MPICH": ["mpiexec.mpich", "-n", "4", "mpi-pi-mpich"],
}
# What users of sshd write before their mpirun: names appear seconds after pods, sshd too, and what fails then
# is a retry, or hangs (MPICH, which also calls back by the launcher's name). The agent needs none of it.
PATIENT = r"""
for host in $(sed 's/[ :].*//' /etc/mpi/hostfile); do
    until getent hosts $host; do sleep 0.2; done
    case $host in $(hostname).*) continue ;; esac
    until ssh $host getent hosts $(hostname); do sleep 0.2; done
done >&2
exec "$@"
"""
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def replica(
    image: str, replicas: int, command: list[str] | None = None, container=None, **pod_spec
) -> dict:
    main = {"name": "main", "image": image, "imagePullPolicy": "Never", **(container or {})}
    if command:
        main["command"] = command
    spec = {"terminationGracePeriodSeconds": 5, "containers": [main], **pod_spec}
    return {"replicas": replicas, "restartPolicy": "Never", "template": {"spec": spec}}


def mpijob(name: str, mpi: str, agent: bool, command=None, workers: int = 2, **spec) -> dict:
    """A job of two workers with two slots each; its image has an sshd only where that is meant."""
    image, command = BARE if agent else SSH, command or RUN[mpi]
    if not agent:
        command = ["sh", "-c", PATIENT, "sh", *command]
    pods = {key: spec.pop(key) for key in ("container", "pod", "sshd") if key in spec}
    shared = {"container": pods.get("container"), **pods.get("pod", {})}
    policy = {"cleanPodPolicy": "Running", **spec.pop("runPolicy", {})}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "annotations": AGENT if agent else {}},
        "spec": {
            "mpiImplementation": mpi,
            "slotsPerWorker": 2,
            "runPolicy": policy,
            "mpiReplicaSpecs": {
                "Launcher": replica(image, 1, command, **shared),
                "Worker": replica(image, workers, pods.get("sshd"), **shared),
            },
            **spec,
        },
    }


def pods_of(name: str, ns: str, role: str) -> list[dict]:
    label = f"training.kubeflow.org/job-name={name},training.kubeflow.org/job-role={role}"
    return items("pods", ns, "-l", label)


def diagnosis(name: str, ns: str) -> str:
    label = f"training.kubeflow.org/job-name={name}"
    logs = ("logs", "-l", label, "--tail", "30", "--all-containers", "--prefix")
    status = ("get", "mpijob", name, "-o", "jsonpath={.status}")
    return diagnose(ns, status, ("get", "pods", "-o", "wide"), ("get", "events"), logs)


def wait_condition(name: str, ns: str, kind: str, seconds: float = 400) -> dict:
    """The job's status once the condition is true; another end of the job fails at once."""

    def look():
        status = (get("mpijob", name, ns) or {}).get("status", {})
        for end in {"Succeeded", "Failed"} - {kind}:
            if condition(status, end).get("status") == "True":
                raise AssertionError(f"job {name} is {end}, not {kind}\n{diagnosis(name, ns)}")
        return condition(status, kind).get("status") == "True" and status

    try:
        return wait(f"job {name} {kind}", look, seconds)
    except Late as late:
        raise Late(f"{late}\n{diagnosis(name, ns)}") from None


def launcher_log(name: str, ns: str) -> str:
    """Of the pod that succeeded: by sshd one before it may have failed, which its Job repeats."""
    for pod in pods_of(name, ns, "launcher"):
        if pod["status"]["phase"] == "Succeeded":
            return kubectl("logs", "-n", ns, pod["metadata"]["name"], "-c", "main")
    return kubectl("logs", "-n", ns, f"job/{name}-launcher", "-c", "main")


def computes_pi(job: dict, ns: str, hosts: str) -> dict:
    """Applies the job, waits for its success and checks on which hosts it ran."""
    name = job["metadata"]["name"]
    apply(job, ns)
    status = wait_condition(name, ns, "Succeeded")
    log = launcher_log(name, ns)
    expect(f"pi 3.141592654 size 4 hosts {hosts}\n" in log, f"ranks on {hosts}", log, diagnosis(name, ns))
    return status


def no_retry(name: str, ns: str) -> None:
    job = get("job", f"{name}-launcher", ns) or {}
    if job.get("status", {}).get("failed", 0):
        raise AssertionError(f"a retry of the launcher was burnt\n{diagnosis(name, ns)}")


def two_by_two(name: str) -> str:
    return " ".join(f"{name}-worker-{i}" for i in (0, 0, 1, 1))


# --- the four ways ----------------------------------------------------------------------
@suite.test
def open_mpi_by_sshd() -> None:
    ns = namespace("e2e-mpi-ssh")
    job = mpijob("pi", "OpenMPI", False, runPolicy={"cleanPodPolicy": "None"})
    status = computes_pi(job, ns, two_by_two("pi"))
    kinds = [c["type"] for c in status["conditions"]]
    expect(kinds == ["Created", "Running", "Succeeded"], "conditions in upstream's order", status)
    expect(condition(status, "Running")["status"] == "False", "no longer Running", status)
    expect(bool(status.get("startTime") and status.get("completionTime")), "both times", status)
    expect(status["replicaStatuses"]["Launcher"].get("succeeded") == 1, "the launcher succeeded", status)
    events = [e for e in items("events", ns) if e["involvedObject"]["kind"] == "MPIJob"]
    reasons = {e["reason"] for e in events}
    expect(
        {"MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"} <= reasons, "upstream's events", str(reasons)
    )
    worker = pods_of("pi", ns, "worker")[0]
    command = worker["spec"]["containers"][0].get("command")
    expect(command == ["/usr/sbin/sshd", "-De"], "a worker without command runs sshd", worker["spec"])


@suite.test
def mpich_by_sshd() -> None:
    ns = namespace("e2e-mpich-ssh")
    computes_pi(mpijob("pi", "MPICH", False), ns, two_by_two("pi"))


def without_ssh(name: str, ns: str) -> None:
    expect(get("secret", f"{name}-ssh", ns) is None, "there is no key")
    for pod in pods_of(name, ns, "worker") + pods_of(name, ns, "launcher"):
        spec = json.dumps(pod["spec"])
        expect("sshd" not in spec and "ssh-auth" not in spec, "neither sshd nor key in a pod", spec)


@suite.test
def open_mpi_by_the_agent() -> None:
    ns = namespace("e2e-mpi-agent")
    computes_pi(mpijob("pi", "OpenMPI", True), ns, two_by_two("pi"))
    no_retry("pi", ns)
    without_ssh("pi", ns)


@suite.test
def mpich_by_the_agent() -> None:
    ns = namespace("e2e-mpich-agent")
    computes_pi(mpijob("pi", "MPICH", True), ns, two_by_two("pi"))
    no_retry("pi", ns)
    without_ssh("pi", ns)


@suite.test
def an_sshd_command_is_the_agent_s_too() -> None:
    """The same YAML as for mpi-operator, sshd's command and probe included, on an image that has none."""
    ns = namespace("e2e-mpi-same")
    job = mpijob("pi", "OpenMPI", True, sshd=["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"])
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["readinessProbe"] = {"tcpSocket": {"port": 2222}, "initialDelaySeconds": 2}
    computes_pi(job, ns, two_by_two("pi"))


# --- users ------------------------------------------------------------------------------
MPIUSER = {"runAsUser": 1000, "runAsGroup": 1000}
NON_ROOT = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@suite.test
def another_user_by_sshd() -> None:
    ns = namespace("e2e-mpi-user-ssh")
    job = mpijob(
        "pi",
        "OpenMPI",
        False,
        sshd=["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"],
        sshAuthMountPath="/home/mpiuser/.ssh",
        container={"securityContext": MPIUSER},
    )
    computes_pi(job, ns, two_by_two("pi"))


@suite.test
def a_restricted_namespace_by_the_agent() -> None:
    """Open MPI wants an entry of its user in /etc/passwd, MPICH not even that."""
    ns = namespace("e2e-mpi-user-agent", enforce="restricted")
    for name, mpi, user in ("open", "OpenMPI", 1000), ("mpich", "MPICH", 12345):
        job = mpijob(
            name,
            mpi,
            True,
            pod={"securityContext": {**NON_ROOT, "runAsUser": user, "runAsGroup": user}},
            container={"securityContext": RESTRICTED},
        )
        computes_pi(job, ns, two_by_two(name))
        no_retry(name, ns)


# --- the launcher -----------------------------------------------------------------------
@suite.test
def the_launcher_is_a_worker() -> None:
    ns = namespace("e2e-mpi-both")
    for name, mpi, agent in ("ssh", "OpenMPI", False), ("agent", "OpenMPI", True), ("mpich", "MPICH", True):
        hosts = f"{name}-launcher {name}-launcher {name}-worker-0 {name}-worker-0"
        job = mpijob(name, mpi, agent, workers=1, runLauncherAsWorker=True)
        computes_pi(job, ns, hosts)
        if agent:
            no_retry(name, ns)


@suite.test
def a_late_worker_costs_no_retry() -> None:
    ns = namespace("e2e-mpi-late")
    late = {
        "name": "late",
        "image": BARE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "case $(hostname) in *-worker-1) sleep 12;; esac"],
    }
    for name, mpi in ("open", "OpenMPI"), ("mpich", "MPICH"):
        job = mpijob(name, mpi, True, pod={"initContainers": [late]})
        launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
        launcher["containers"] = [
            dict(launcher["containers"][0], env=[{"name": "HVD_START_TIMEOUT", "value": "40"}])
        ]
        computes_pi(job, ns, two_by_two(name))
        no_retry(name, ns)
        expect("hvd-rsh: waiting for host " in launcher_log(name, ns), "it says for whom it waits")


@suite.test
def a_failure_is_the_launcher_s() -> None:
    ns = namespace("e2e-mpi-fails")
    for name, agent in ("ssh", False), ("agent", True):
        command = [*RUN["OpenMPI"], "1000", "abort", "7"]
        policy = {"backoffLimit": 0} if agent else {"backoffLimit": 3}
        apply(mpijob(name, "OpenMPI", agent, command, runPolicy=policy), ns)
        status = wait_condition(name, ns, "Failed")
        reason = condition(status, "Failed")["reason"]
        expect(reason.startswith("BackoffLimitExceeded"), "the launcher Job's reason", status)
        last = pods_of(name, ns, "launcher")[-1]["status"]["containerStatuses"][0]["state"]
        expect(last.get("terminated", {}).get("exitCode") == 7, "mpirun ended with the rank's code", last)


@suite.test
def our_horovodrun_in_the_launcher() -> None:
    """By the same agents: no ssh, no mpirun."""
    ns = namespace("e2e-mpi-horovodrun")
    command = ["/opt/ringmaster/bin/horovodrun", "-np", "4", "--token-file", "/etc/ringmaster/token",
               "--hostfile", "/etc/mpi/hostfile", "sh", "-c", "echo rank $HOROVOD_RANK on $(hostname)"]  # fmt: skip
    apply(mpijob("hvd", "OpenMPI", True, command), ns)
    wait_condition("hvd", ns, "Succeeded")
    no_retry("hvd", ns)
    log = launcher_log("hvd", ns)
    for rank in range(4):
        expect(f"rank {rank} on hvd-worker-{rank // 2}" in log, f"rank {rank} ran", log)


# --- the end ----------------------------------------------------------------------------
@suite.test
def pods_stay_or_go_as_the_policy_says() -> None:
    ns = namespace("e2e-mpi-clean")
    for policy, left in ("None", 2), ("Running", 0), ("All", 0):
        for name, agent in (f"ssh-{policy.lower()}", False), (f"agent-{policy.lower()}", True):
            job = mpijob(name, "OpenMPI", agent, runPolicy={"cleanPodPolicy": policy})
            computes_pi(job, ns, two_by_two(name))
            wait(
                f"{left} workers of {name}", lambda n=name, k=left: len(pods_of(n, ns, "worker")) == k, 120
            )
            if left:
                running = [p["status"]["phase"] for p in pods_of(name, ns, "worker")]
                expect(running == ["Running"] * 2, "they run on", str(running))
    for pod in pods_of("agent-none", ns, "worker"):  # process 1 ends at once and in order
        kubectl("delete", "pod", pod["metadata"]["name"], "-n", ns, "--timeout=60s")


if __name__ == "__main__":
    run_suite(suite)
