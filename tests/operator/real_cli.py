# SPDX-License-Identifier: Apache-2.0
"""kubectl hvd with the real kubectl on a real API server; part of real_test.py.

The scene is also what tests/cli replays. To record it again, with the cluster of run.sh up and HVD_RECORD set to
its kubectl: real_test.py the_scene_can_be_recorded.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from api import CORE, ended, expect, manifest, wait
from real_world import BIN, RUN, all_there, api, job, report, state, suite

ROOT = Path(__file__).resolve().parents[2]
NS = "team"
RECORDER = ROOT / "tests/cli"
HOSTILE = "\x1b[31mred\x1b[0m \u202eleft"


def hvd(*args: str, ok: bool = True, folder: Path = RUN / "bin") -> str:
    """Runs the plug-in with the real kubectl; its output and errors."""
    done = subprocess.run(
        [str(BIN / "kubectl-hvd"), *args],
        env=os.environ
        | {"KUBECONFIG": str(RUN / "admin.kubeconfig"), "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    expect((done.returncode == 0) == ok, "its exit status", args, done)
    return done.stdout + done.stderr


def event(ns: str, name: str, pod: str, uid: str, reason: str, message: str, at: str) -> None:
    about = {"kind": "Pod", "namespace": ns, "name": pod, "uid": uid}
    body = manifest(
        "v1", "Event", name, involvedObject=about, type="Warning", reason=reason, message=message
    )
    api.call(
        "POST",
        CORE.format(ns=ns) + "events",
        body | {"lastTimestamp": at, "firstTimestamp": at, "count": 1},
    )


def now() -> str:
    return subprocess.run(
        ["date", "-u", "+%Y-%m-%dT%H:%M:%SZ"], capture_output=True, text=True, check=True
    ).stdout.strip()


def a_job_that_trains(ns: str) -> None:
    body = job("train", workers=2)
    body["spec"]["slotsPerWorker"] = 2
    body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "HOROVOD_TIMELINE", "value": "/tmp/timeline.json"}
    ]
    api.make(ns, body)
    wait("its pods", lambda: api.get(ns, "pods", "train-worker-1"))
    for i in (0, 1):
        api.bind(ns, f"train-worker-{i}", f"gpu-{i}")
        api.set_pod(ns, f"train-worker-{i}", "Running")
    state(ns, "Running", "train")


def a_job_that_waits(ns: str) -> None:
    api.make(ns, job("waits", workers=3))
    wait("its pods", lambda: api.get(ns, "pods", "waits-worker-2"))
    uid = api.get(ns, "pods", "waits-worker-2")["metadata"]["uid"]
    api.bind(ns, "waits-worker-0", "gpu-0")
    api.set_pod(ns, "waits-worker-0", "Running")
    full = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": full}
    api.patch_pod(ns, "waits-worker-1", {"conditions": [refused]})
    api.bind(ns, "waits-worker-2", "gpu-1")
    pull = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}}
    api.set_pod(ns, "waits-worker-2", "Pending", **pull)
    event(ns, "waits-1", "waits-worker-2", uid, "Failed", 'Failed to pull image "i": not found', now())
    wait("the job says why", lambda: "Insufficient" in api.status(ns, "waits").get("message", ""))


def a_job_that_failed(ns: str) -> None:
    api.make(ns, job("broken", workers=1))
    wait("its pod", lambda: api.get(ns, "pods", "broken-worker-0"))
    api.bind(ns, "broken-worker-0", "gpu-0")
    api.set_pod(ns, "broken-worker-0", "Running")
    state(ns, "Running", "broken")
    text = report(0, "gpu-0", 1767225660000000) + HOSTILE + "\n"
    api.set_pod(ns, "broken-worker-0", "Failed", **ended(3, text))
    state(ns, "Failed", "broken")


def scene(ns: str) -> None:
    """Jobs in all states that the commands show differently."""
    api.namespace(ns)
    asleep = job("asleep")
    asleep["spec"]["runPolicy"] = {"suspend": True}
    api.make(ns, asleep)
    queued = job("queued")
    queued["spec"]["runPolicy"] = {"suspend": True}
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    api.make(ns, queued)
    container = {"name": "l", "image": "i", "command": ["horovodrun", "x"]}
    launched = job("launched", workers=1)
    roles = launched["spec"]["replicaSpecs"]
    del roles["Worker"]["template"]["spec"]["containers"][0]["command"]
    roles["Launcher"] = {"template": {"spec": {"containers": [container]}}}
    api.make(ns, launched)
    flow = job("flow", workers=1)
    flow["spec"]["framework"] = "tensorflow"
    api.make(ns, flow)
    mpi = {"containers": [{"name": "mpi", "image": "i", "command": ["mpirun", "x"]}]}
    sets = {r: {"replicas": 1, "template": {"spec": mpi}} for r in ("Launcher", "Worker")}
    api.call(
        "POST",
        f"/apis/kubeflow.org/v2beta1/namespaces/{ns}/mpijobs",
        manifest("kubeflow.org/v2beta1", "MPIJob", "mpi", spec={"mpiReplicaSpecs": sets}),
    )
    a_job_that_trains(ns)
    a_job_that_waits(ns)
    a_job_that_failed(ns)
    wait(
        "all have a status",
        lambda: api.status(ns, "flow").get("state") and api.status(ns, "queued").get("state"),
    )


@suite.test
def kubectl_hvd_shows_and_changes_jobs() -> None:
    ns = "t-hvd"
    scene(ns)
    shown = hvd("list", "-n", ns)
    expect(
        len(shown.splitlines()) == 9 and "Suspended" in shown and "MPIJob" in shown,
        "a line for each",
        shown,
    )
    expect("broken" in hvd("list", "-A"), "all namespaces")
    expect("not found" in hvd("list", "-n", ns, "train", "nobody", ok=False), "a name that is unknown")
    shown = hvd("status", "-n", ns, "broken")
    expect(
        "rank 0" in shown and "last line of rank 0" in shown and "\x1b" not in shown, "the failure", shown
    )
    shown = hvd("explain", "-n", ns, "waits")
    order = [shown.find(word) for word in ("Insufficient nvidia.com/gpu", "Back-off pulling", "not found")]
    expect(-1 not in order and order == sorted(order), "causes in order", shown)
    expect("2-3" in hvd("hosts", "-n", ns, "train"), "ranks of worker 1")
    expect("JobRunning" in hvd("events", "-n", ns, "train"), "events")
    expect(
        "train" in hvd("list", "-n", ns, "-o", "jsonpath={.items[*].metadata.name}"), "kubectl's jsonpath"
    )
    shown = hvd("list", "-n", ns, "--as", "nobody", ok=False)
    expect(
        "has no right" in shown and len(shown.splitlines()) == 1, "a refused right in one sentence", shown
    )


@suite.test
def kubectl_hvd_changes_what_it_says() -> None:
    ns = "t-hvd-change"
    api.namespace(ns)
    api.make(ns, job())
    all_there(ns)
    hvd("scale", "-n", ns, "j", "3")
    wait("the third worker", lambda: api.get(ns, "pods", "j-worker-2"))
    hvd("suspend", "-n", ns, "j")
    state(ns, "Suspended")
    wait("no pods", lambda: not api.pods(ns))
    expect("already" in hvd("suspend", "-n", ns, "j"), "no second patch")
    hvd("resume", "-n", ns, "j")
    before = all_there(ns, 3)
    hvd("restart", "-n", ns, "j")
    after = all_there(ns, 3)
    expect(not set(before.values()) & set(after.values()), "all pods are new", before, after)
    expect(api.status(ns, "j")["restarts"] == 0, "no restart is counted", api.status(ns, "j"))
    expect(
        "no such" in hvd("scale", "-n", ns, "j", "3", "--rank", "1", ok=False),
        "an option of another command",
    )


if os.environ.get("HVD_RECORD"):

    @suite.test
    def the_scene_can_be_recorded() -> None:
        scene(NS)
        (RECORDER / "recorded.json").unlink(missing_ok=True)
        for line in (RECORDER / "calls").read_text().splitlines():
            subprocess.run(
                [str(BIN / "kubectl-hvd"), *line.split()],
                env=os.environ
                | {"KUBECONFIG": str(RUN / "admin.kubeconfig"), "PATH": f"{RECORDER}:{os.environ['PATH']}"},
                check=False,
                timeout=60,
            )
