#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests on the two-node cluster, in TAP. usage: e2e.py [TEST ...]

run.sh brings the cluster up, installs the operator as shipped and calls this. Each test has a
namespace of its own, so that one can be repeated alone while the cluster stays.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import re
import signal
from datetime import datetime

import ends
import live
import page
import plugin
import roles
import waits
from cluster import (
    ROOT,
    SEED,
    Refused,
    Suite,
    apply,
    condition,
    environment,
    expect,
    get,
    hold_back,
    horovodjob,
    in_this_cluster,
    items,
    kubectl,
    namespace,
    processes,
    release,
    run_suite,
    says,
    status_of,
    wait,
    wait_state,
    workers,
)

suite = Suite()
choose = random.Random(SEED)
restarts_before = 0  # of the operators' containers, when the run began
kills = 0  # of operators, by tests of this run


def operator_pods() -> list[dict]:
    return json.loads(
        kubectl("get", "pods", "-A", "-o", "json", "-l", "app.kubernetes.io/name=hvd-operator")
    )["items"]


def leader_now() -> dict | None:
    """The operator's pod whose name is the first part of the Lease's holder."""
    pods = operator_pods()
    lease = get("lease", "hvd-operator", pods[0]["metadata"]["namespace"]) or {}
    holder = lease.get("spec", {}).get("holderIdentity") or ""
    return next((p for p in pods if holder.startswith(p["metadata"]["name"] + "_")), None)


def operator_pod() -> dict:
    """The one that leads."""
    pods = operator_pods()
    expect(len(pods) == 2, "two operator pods", [p["metadata"]["name"] for p in pods])
    return wait("a leader", leader_now, 120)


def operator_pid() -> int:
    name = operator_pod()["metadata"]["name"]
    found = [
        p for p in processes("hvd-operator") if in_this_cluster(p) and f"HOSTNAME={name}" in environment(p)
    ]
    expect(len(found) == 1, f"one hvd-operator process in pod {name}", str(found))
    return found[0]


def operator_restarts() -> int:
    return sum(p["status"]["containerStatuses"][0]["restartCount"] for p in operator_pods())


def only_our_kills() -> None:
    """A kubelet reports a restart late, maybe after the job's end."""
    wait("our kills are counted", lambda: operator_restarts() - restarts_before >= kills, 120)
    expect(operator_restarts() - restarts_before == kills, f"{kills} restarts", str(operator_restarts()))


def demo(ns: str, state: str, *more_args: str) -> dict:
    """Applies the shipped example, with more arguments for the script; waits for its end."""
    example = ROOT / "manifests/examples/horovodjob.yaml"
    docs = json.loads(kubectl("create", "--dry-run=client", "-o", "json", "-n", ns, "-f", str(example)))
    container = docs["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["args"] = container.get("args", []) + list(more_args)
    name = docs["metadata"]["name"]
    apply({k: docs[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": {"name": name}}, ns)
    return wait_state(name, ns, state, seconds=300)


def accuracy(log: str) -> float:
    found = re.findall(r"accuracy[^0-9]*([01]\.\d+)", log)
    expect(bool(found), "the log has the held-out accuracy", log)
    return float(found[-1])


# --- the demo ---------------------------------------------------------------------------
@suite.test
def the_demo_job_learns_all_ten_digits() -> None:
    ns = namespace("e2e-demo")
    status = demo(ns, "Succeeded")
    for kind in ("Created", "Succeeded"):
        expect(condition(status, kind).get("status") == "True", f"condition {kind}", status)
    expect(condition(status, "Running").get("status") == "False", "Running is over", status)
    expect(
        status["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 2, "failed": 0},
        "replicaStatuses",
        status,
    )
    expect(status.get("observedGeneration") == 1, "observedGeneration", status)
    expect("startTime" in status and "completionTime" in status, "times", status)
    log = kubectl("logs", "demo-worker-0", "-n", ns)
    expect(accuracy(log) >= 0.97, "held-out accuracy is at least 0.97", log)
    expect("identical weights" in log, "both workers hold identical weights", log)
    nodes = {p["spec"]["nodeName"] for p in workers("demo", ns)}
    expect(nodes == {"n0", "n1"}, "one worker on each node", str(nodes))


@suite.test
def kubectl_get_and_events_show_the_job_s_history() -> None:
    ns = "e2e-demo"
    head, row = kubectl("get", "horovodjob", "demo", "-n", ns).splitlines()
    expect(
        head.split() == ["NAME", "STATE", "WORKERS", "PROGRESS", "ETA", "RESTARTS", "REPLACEMENTS", "AGE"],
        "printer columns",
        head,
    )
    expect(row.split()[:3] == ["demo", "Succeeded", "0/2"], "printed row", row)
    readme = (ROOT / "operator/README.md").read_text()
    shown = re.search(r"^    (NAME .*)$", readme, re.MULTILINE)[1]
    expect(shown.split() == head.split(), "operator/README.md shows the same columns", shown)
    expect("demo" in kubectl("get", "hvdjob", "-n", ns), "the short name works")
    reasons = [e["reason"] for e in items("events", ns) if e["involvedObject"]["kind"] == "HorovodJob"]
    for reason in ("JobRunning", "JobSucceeded", "Goodput"):
        expect(reasons.count(reason) == 1, f"one event {reason}", str(reasons))


def seconds(time: str) -> int:
    return int(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp())


@suite.test
def the_goodput_is_what_the_pods_times_say() -> None:
    """Kubernetes has whole seconds, of the clocks of several programs."""
    ns = "e2e-demo"
    job = json.loads(kubectl("get", "horovodjob", "demo", "-n", ns, "-o", "json"))
    g, start = job["status"]["goodput"], seconds(job["metadata"]["creationTimestamp"])
    expect(g["time"] == job["status"]["completionTime"], "until the end", job["status"])
    expect(seconds(g["startTime"]) == start, "from its creation", job)
    expect(sum(g["seconds"].values()) == seconds(g["time"]) - start, "the parts add up", g)
    pods = workers("demo", ns)
    ended = [p["status"]["containerStatuses"][0]["state"]["terminated"] for p in pods]
    run = max(seconds(e["startedAt"]) for e in ended)
    end = max(seconds(e["finishedAt"]) for e in ended)
    bound = max(seconds(condition(p["status"], "PodScheduled")["lastTransitionTime"]) for p in pods)
    running = ("starting", "meeting", "training", "stalled", "repeated")
    for parts, wanted in ((("queued",), bound - start), (("pulling",), run - bound), (running, end - run)):
        found = sum(g["seconds"].get(p, 0) for p in parts)
        expect(abs(found - wanted) <= 2, f"{parts}: {wanted} s", g, pods)


@suite.test
def the_token_is_nowhere_but_in_its_secret() -> None:
    ns = "e2e-demo"
    data = (get("secret", "demo-token", ns) or {}).get("data", {})
    expect(len(data) == 1, "Secret demo-token has one key", str(list(data)))
    encoded = next(iter(data.values()))
    token = base64.b64decode(encoded)
    expect(len(token) >= 32, "the token has 32 bytes or more", str(len(token)))
    pod = operator_pod()
    seen = {
        "the operator's log": kubectl("logs", "-n", pod["metadata"]["namespace"], pod["metadata"]["name"]),
        "the agents' logs": "".join(
            kubectl("logs", "-n", ns, p["metadata"]["name"], "--all-containers")
            for p in workers("demo", ns)
        ),
        "pods, events and the job": kubectl(
            "get", "pods,events,horovodjobs,services", "-n", ns, "-o", "json"
        ),
    }
    needles = {encoded, token.hex(), token.decode("latin1").strip()}
    for where, text in seen.items():
        expect(not any(n in text for n in needles), f"no token in {where}")


@suite.test
def without_averaging_the_digits_are_not_learnt() -> None:
    ns = namespace("e2e-alone")
    demo(ns, "Failed", "--no-average")  # the script itself says that its target was missed
    log = kubectl("logs", "demo-worker-0", "-n", ns)
    expect(accuracy(log) < 0.65, "held-out accuracy is below 0.65", log)


# --- failures ---------------------------------------------------------------------------
# Every rank trains; at step 5 one exits in the given way, and all other ranks then fail with the
# resulting error.
FAILING = """
import os, sys, torch, horovod.torch as hvd
hvd.init()
for step in range(100000):
    if step == 5 and hvd.rank() == int(sys.argv[1]):
        print("rank", hvd.rank(), "goes by", *sys.argv[2:], flush=True)
        if sys.argv[2] == "exit":
            os._exit(int(sys.argv[3]))
        os.kill(os.getpid(), int(sys.argv[3]))
    hvd.allreduce(torch.ones(4), name="x")
"""


def first_failure(ns: str, how: str, number: int) -> None:
    rank = choose.randrange(4)
    print(f"# rank {rank} goes by {how} {number}")
    apply(horovodjob("fails", ["python3", "-c", FAILING, str(rank), how, str(number)], slots=2), ns)
    status = wait_state("fails", ns, "Failed")
    failure, message = status.get("failure", {}), condition(status, "Failed").get("message", "")
    pod = f"fails-worker-{rank // 2}"
    node = next(p["spec"]["nodeName"] for p in workers("fails", ns) if p["metadata"]["name"] == pod)
    wanted = {"rank": rank, "pod": pod, "node": node, "exitCode" if how == "exit" else "signal": number}
    seen = {k: failure.get(k) for k in wanted}
    expect(seen == wanted, f"status.failure names the first: {wanted}", status)
    for part in (
        f"rank {rank}",
        pod,
        node,
        f"code {number}" if how == "exit" else signal.Signals(number).name,
    ):
        expect(part in message, f"the condition's message says '{part}'", message)
    expect(
        f"rank {rank} goes by {how}" in failure.get("output", ""),
        "status.failure.output has the rank's last lines",
        failure,
    )


@suite.test
def the_first_rank_that_exits_3_is_named() -> None:
    first_failure(namespace("e2e-exit"), "exit", 3)


@suite.test
def the_first_rank_that_a_signal_kills_is_named() -> None:
    first_failure(
        namespace("e2e-signal"),
        "signal",
        choose.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS]),
    )


@suite.test
def a_deleted_worker_is_replaced_and_named() -> None:
    ns = namespace("e2e-deleted")
    apply(horovodjob("gone", ["sleep", "1000"]), ns)
    wait_state("gone", ns, "Running")
    kubectl("delete", "pod", "gone-worker-1", "-n", ns, "--wait=false")
    wait("it is replaced", lambda: status_of("gone", ns).get("replacements") == 1, 180)
    status = wait_state("gone", ns, "Running")
    expect(status.get("restarts") == 0, "it does not count", status)
    expect(status.get("failure", {}).get("pod") == "gone-worker-1", "failure.pod", status)
    expect("was deleted" in status["failure"]["message"], "and why", status)


@suite.test
def a_worker_deleted_before_the_start_is_recreated_while_the_rest_waits() -> None:
    ns = namespace("e2e-early")
    job = horovodjob("early", ["true"], workers=3)
    hold_back(job, "*-worker-2")
    apply(job, ns)

    def uids() -> dict[str, str]:
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in items("pods", ns)}

    wait("workers 0 and 1 meet", lambda: says(ns, "early-worker-0", "worker connected worker=1"), 180)
    before = uids()
    gone = before["early-worker-1"]
    kubectl("delete", "pod", "early-worker-1", "-n", ns, "--wait=false")
    wait("it is recreated", lambda: uids().get("early-worker-1", gone) != gone, 180)
    expect(status_of("early", ns)["state"] == "Pending", "nothing has begun")
    release(ns, "early-worker-2")
    status = wait_state("early", ns, "Succeeded")
    now = uids()
    same = ("early-worker-0", "early-worker-2")
    expect(all(now[p] == before[p] for p in same), "the other pods stayed", before, now)
    expect((status["restarts"], status["replacements"]) == (0, 0), "no restart", status)


# --- the operator -----------------------------------------------------------------------
@suite.test
def a_killed_operator_still_ends_the_job_right() -> None:
    global kills
    ns = namespace("e2e-killed")
    script = "while [ ! -e /tmp/go ]; do sleep 0.2; done"
    apply(horovodjob("goes-on", ["sh", "-c", script]), ns)
    wait_state("goes-on", ns, "Running")
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in workers("goes-on", ns)}
    pid = operator_pid()
    os.kill(pid, signal.SIGKILL)
    kills += 1
    wait("the operator's process gone", lambda: pid not in processes("hvd-operator"), 60)
    # The job ends while the operator is away or just back: both are right.
    for name in before:
        kubectl("exec", "-n", ns, name, "--", "touch", "/tmp/go")
    wait_state("goes-on", ns, "Succeeded")
    after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in workers("goes-on", ns)}
    expect(after == before, "the same two pods, nothing doubled", before, after)
    reasons = [e["reason"] for e in items("events", ns) if e["involvedObject"]["kind"] == "HorovodJob"]
    expect(all(reasons.count(r) <= 1 for r in reasons), "no event twice", str(reasons))


@suite.test
def a_rolling_update_of_the_operators_touches_no_job() -> None:
    global restarts_before
    ns = namespace("e2e-update")
    command = ["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.2; done"]
    apply(horovodjob("goes-on", command), ns)
    wait_state("goes-on", ns, "Running")
    before = {p["metadata"]["uid"]: restart_counts(p) for p in workers("goes-on", ns)}
    old = {p["metadata"]["name"] for p in operator_pods()}
    only_our_kills()
    home = operator_pod()["metadata"]["namespace"]
    kubectl("rollout", "restart", "deployment/hvd-operator", "-n", home)
    apply(horovodjob("meanwhile", command), ns)
    kubectl("rollout", "status", "deployment/hvd-operator", "-n", home, "--timeout=240s", timeout=300)
    wait(
        "the old operators are gone",
        lambda: not old & {p["metadata"]["name"] for p in operator_pods()},
        120,
    )
    restarts_before = operator_restarts() - kills  # of the new ones
    check = ("/usr/bin/hvd-operator", "--check")
    told = kubectl("exec", "-n", home, "deployment/hvd-operator", "--", *check, timeout=300)
    expect(" acts" in told and "failed: " not in told, "the documented check passes", told)
    wait_state("meanwhile", ns, "Running")
    after = {p["metadata"]["uid"]: restart_counts(p) for p in workers("goes-on", ns)}
    expect(after == before, "the pods that ran were not touched", before, after)
    for name in ("goes-on", "meanwhile"):
        for pod in workers(name, ns):
            kubectl("exec", "-n", ns, pod["metadata"]["name"], "--", "touch", "/tmp/go")
        wait_state(name, ns, "Succeeded")
        events = [e["reason"] for e in items("events", ns) if e["involvedObject"]["name"] == name]
        expect(
            sorted(events) == ["Goodput", "JobRunning", "JobSucceeded"],
            f"{name}: each event once",
            str(events),
        )


@suite.test
def a_job_that_ends_and_disappears_without_an_operator_does_not_run_again() -> None:
    global restarts_before
    ns = namespace("e2e-gap")
    apply(horovodjob("done", ["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.2; done"]), ns)
    wait_state("done", ns, "Running")
    only_our_kills()
    home = operator_pod()["metadata"]["namespace"]
    n = len(operator_pods())
    kubectl("scale", "deployment/hvd-operator", "-n", home, "--replicas=0")
    wait("no operator runs", lambda: not operator_pods(), 120)

    def have_ended() -> bool:
        for name in ("done-worker-0", "done-worker-1"):
            with contextlib.suppress(Refused):  # its container may end before exec does
                kubectl("exec", "-n", ns, name, "--", "touch", "/tmp/go")
        return {p["status"]["phase"] for p in workers("done", ns)} == {"Succeeded"}

    wait("both have ended", have_ended, 120)
    kubectl("delete", "pods", "--all", "-n", ns, "--wait=false")
    wait(
        "one is kept",
        lambda: [p["metadata"]["name"] for p in workers("done", ns)] == ["done-worker-0"],
        120,
    )
    kubectl("scale", "deployment/hvd-operator", "-n", home, f"--replicas={n}")
    kubectl("rollout", "status", "deployment/hvd-operator", "-n", home, "--timeout=240s", timeout=300)
    restarts_before = operator_restarts() - kills  # of the new ones
    status = wait_state("done", ns, "Succeeded")
    expect((status["restarts"], status["replacements"]) == (0, 0), "it did not run again", status)
    wait("the last pod is gone", lambda: not workers("done", ns), 120)


@suite.test
def the_status_page_through_kubectl_hvd_page() -> None:
    global restarts_before
    only_our_kills()
    home = operator_pod()["metadata"]["namespace"]
    kubectl("apply", "-k", str(ROOT / "manifests/overlays/page"))
    kubectl("rollout", "status", "deployment/hvd-operator", "-n", home, "--timeout=240s", timeout=300)
    wait("the old operators are gone", lambda: len(operator_pods()) == 2, 120)
    restarts_before = operator_restarts() - kills  # of the new ones
    page.a_user_follows_a_job(lambda: wait("a leader", leader_now, 120))


def restart_counts(pod: dict) -> list[int]:
    status = pod["status"]
    found = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
    return [c["restartCount"] for c in found]


@suite.test
def the_restricted_example_runs_where_it_says() -> None:
    ns = namespace("e2e-example", enforce="restricted")
    kubectl("apply", "-n", ns, "-f", str(ROOT / "manifests/examples/restricted.yaml"))
    wait_state("restricted", ns, "Succeeded")
    for i in range(2):
        log = kubectl("logs", "-n", ns, f"restricted-worker-{i}")
        expect(f"user 12345 rank {i}" in log, f"worker {i} ran as 12345", log)


roles.tests(suite)
ends.tests(suite)
waits.tests(suite)
plugin.tests(suite)
live.tests(suite)


@suite.test
def the_operator_ended_only_by_our_own_kills() -> None:
    only_our_kills()


the_operator_ended_only_by_our_own_kills.is_about_others = True  # alone it would see nothing


if __name__ == "__main__":
    restarts_before = operator_restarts()
    run_suite(suite)
