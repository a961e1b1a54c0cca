# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests of how pods end, by real kubelets, and of what the operator makes of it; for e2e.py."""

from __future__ import annotations

from cluster import (
    Suite,
    apply,
    condition,
    expect,
    horovodjob,
    items,
    kubectl,
    namespace,
    status_of,
    wait,
    wait_state,
    workers,
)

# rank 3 alone ignores SIGTERM, so that its pod ends when the other has long told why
PROBED = """
[ $HOROVOD_RANK = 3 ] && trap "" TERM
[ $HOROVOD_RANK = 2 ] && sleep 4 && touch /tmp/dead
while :; do sleep 1; done
"""
PROBE = {"exec": {"command": ["test", "!", "-e", "/tmp/dead"]}, "periodSeconds": 1, "failureThreshold": 1}
PROBE["timeoutSeconds"] = 60  # a probe that is late on a busy machine has not failed


def tests(suite: Suite) -> None:
    @suite.test
    def a_deadline_ends_what_runs_in_pods_that_are_kept() -> None:
        ns = namespace("e2e-deadline")
        job = horovodjob("late", ["sh", "-c", "echo begun; sleep 1000"])
        job["spec"]["runPolicy"] = {"cleanPodPolicy": "None", "activeDeadlineSeconds": 45}
        apply(job, ns)
        wait_state("late", ns, "Running")
        old = {p["metadata"]["uid"] for p in workers("late", ns)}
        status = wait_state("late", ns, "Failed")
        expect(condition(status, "Failed")["reason"] == "DeadlineExceeded", "reason", status)
        wait(
            "the pods have ended",
            lambda: all(p["status"]["phase"] == "Failed" for p in workers("late", ns)),
            180,
        )
        pods = workers("late", ns)
        expect({p["metadata"]["uid"] for p in pods} == old, "they are the same", pods)
        expect(
            all(p["status"].get("reason") == "DeadlineExceeded" for p in pods), "by their kubelets", pods
        )
        for i in range(2):
            said = kubectl("logs", "-n", ns, f"late-worker-{i}", "-c", "main")
            expect("begun" in said, "the log stays", said)
        now = wait_state("late", ns, "Failed")
        expect(condition(now, "Failed") == condition(status, "Failed"), "so does the reason", now)

    @suite.test
    def the_pod_that_failed_stays_with_its_log() -> None:
        """By the default cleanPodPolicy. The other pod often reports first, while this one still seems to run."""
        ns = namespace("e2e-guilty")
        fail = "echo rank $HOROVOD_RANK; [ $HOROVOD_RANK = 1 ] && echo no module >&2 && exit 3; sleep 1000"
        job = horovodjob("guilty", ["sh", "-c", fail])
        job["spec"]["runPolicy"] = {}
        apply(job, ns)
        status = wait_state("guilty", ns, "Failed")
        expect(status["failure"]["pod"] == "guilty-worker-1", "it is named", status)
        expect(status["message"].endswith("): no module"), "with its last line", status["message"])
        wait(
            "no pod runs",
            lambda: all(p["status"]["phase"] == "Failed" for p in workers("guilty", ns)),
            180,
        )
        expect("rank 1" in kubectl("logs", "-n", ns, "guilty-worker-1", "-c", "main"), "its log is there")

    @suite.test
    def a_missing_config_map_is_named_and_its_arrival_starts_the_job() -> None:
        """The kubelet says so only in Events of the pod."""
        ns = namespace("e2e-mount")
        volumes = [{"name": "data", "configMap": {"name": "data"}}]
        mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        apply(horovodjob("mount", ["true"], volumes=volumes, container=mount), ns)
        why = 'waits for volume data: configmap "data" not found (since '
        wait("the job says why", lambda: why in status_of("mount", ns).get("message", ""), 180)
        reasons = [e["reason"] for e in items("events", ns) if e["involvedObject"]["kind"] == "HorovodJob"]
        expect("PodsNotStarted" in reasons, "an Event says it, too", str(reasons))
        kubectl("create", "configmap", "data", "-n", ns, "--from-literal=a=b")
        wait_state("mount", ns, "Succeeded")

    @suite.test
    def a_probe_s_kill_counts_if_another_pod_reports_it_first() -> None:
        ns = namespace("e2e-probe")
        job = horovodjob("probed", ["sh", "-c", PROBED], slots=2, container={"livenessProbe": PROBE})
        job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = 10
        apply(job, ns)
        status = wait_state("probed", ns, "Failed")
        expect(status["replacements"] == 0, "no restart that does not count", status)
        expect(status["failure"]["pod"] == "probed-worker-1", "the pod is named", status)

    @suite.test
    def a_failure_on_the_host_s_network_names_the_pod() -> None:
        ns = namespace("e2e-host-network")
        fail = "echo rank $HOROVOD_RANK; [ $HOROVOD_RANK = 2 ] && exit 7; sleep 1000"
        apply(horovodjob("wide", ["sh", "-c", fail], slots=2, hostNetwork=True), ns)
        status = wait_state("wide", ns, "Failed")
        node = next(
            p["spec"]["nodeName"] for p in workers("wide", ns) if p["metadata"]["name"] == "wide-worker-1"
        )
        seen = {k: status["failure"].get(k) for k in ("rank", "pod", "node", "exitCode")}
        expect(seen == {"rank": 2, "pod": "wide-worker-1", "node": node, "exitCode": 7}, "named", status)
