# SPDX-License-Identifier: Apache-2.0
"""A HorovodJob with elasticPolicy on the test cluster (tests/cluster), which has two nodes; for chaos.py.

    rank       a process that trains, SIGKILL
    agent      an hvd-agent of a worker pod, SIGKILL: the pod's first process, or one of the job
    pod        a worker pod, kubectl delete: its ranks leave at a commit
    force      the same with --force
    launcher   the launcher pod, kubectl delete
    operator   an operator pod or all of them, kubectl delete --force
    node       a node is powered off: silence, no FIN. It comes back later

Records are in a folder of this machine, which all pods mount. The cluster is taken down if it did not run
before. Needs root.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("RM_RUN", "/tmp/ringmaster-chaos")
sys.path.append(os.path.join(HERE, "../e2e"))
import disturb  # noqa: E402
from cluster import (  # noqa: E402
    ROOT,
    RUN,
    Refused,
    apply,
    diagnosis,
    horovodjob,
    items,
    kubectl,
    namespace,
    status_of,
)
from watch import Followed, kill, processes  # noqa: E402

NS, NAME = "elastic-chaos", "chaos"
LAUNCHER = f"{NAME}-launcher-0"
OPERATORS = ("-A", "-l", "app.kubernetes.io/name=hvd-operator")
CLUSTER = str(ROOT / "tests/cluster")
PEER_TIMEOUT_S = 10
OFF_S = (5, 60)
LOOK_S = 2
MOST = 4


class KubeJob(Followed):
    def __init__(self, folder, job):
        super().__init__(folder)
        self._state, self._looked = "", 0.0
        apply(job, namespace(NS))

    def is_running(self):
        """As kubectl said a moment ago."""
        if time.monotonic() > self._looked + LOOK_S:
            with contextlib.suppress(Refused):
                self._state = status_of(NAME, NS).get("state", "")
            self._looked = time.monotonic()
        return self._state not in ("Succeeded", "Failed")

    def status(self):
        return 0 if self._state == "Succeeded" else 1

    def write_log(self):
        parts = [json.dumps(status_of(NAME, NS), indent=1), diagnosis(NAME, NS), log_of(LAUNCHER)]
        with contextlib.suppress(Refused):
            parts.append(kubectl("logs", *OPERATORS[1:], "-n", operators()[0][0], "--tail", "-1"))
        with open(self.log, "w", encoding="utf-8") as f:
            f.write("\n\n".join(parts))

    def tail(self, n=60):
        self.write_log()
        return super().tail(n)

    def end(self):
        self.write_log()
        kubectl("delete", "horovodjob", NAME, "-n", NS, "--ignore-not-found", timeout=240)


class Platform(disturb.Driver):
    weights = {"rank": 6, "agent": 1, "pod": 2, "force": 2, "launcher": 1, "operator": 1, "node": 1}
    defaults = {"scale": "2,4,1,3", "hold": 20, "every": 5, "patience": 45, "deadline": 400, "pace": 0.04}

    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.off = {}  # node: when it is powered on
        self.coming = {}  # node: the program that powers it on
        self.n_logs = 0
        self.keeps_cluster = (RUN / "owner").exists()

    def begin(self):
        subprocess.run([ROOT / "tests/demo/bring-up.sh"], check=True)

    def start(self, name, *options):
        own = os.path.join(self.folder, name)
        n = self.args.scale[0] if self.args.scale else 2
        shared = [
            {"name": "records", "hostPath": {"path": self.folder}},
            {"name": "script", "hostPath": {"path": HERE}},
        ]
        mounts = [
            {"name": "records", "mountPath": self.folder},
            {"name": "script", "mountPath": HERE, "readOnly": True},
        ]
        command = ["python3", "-u", *self.train(own, *options)]
        job = horovodjob(
            NAME,
            command,
            n,
            container={"volumeMounts": mounts},
            volumes=shared,
            terminationGracePeriodSeconds=10,
        )
        job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": MOST}
        job["spec"]["horovod"] = {"peerTimeoutSeconds": PEER_TIMEOUT_S}
        return KubeJob(own, job)

    def scale(self, n):
        kubectl("scale", "horovodjob", NAME, "-n", NS, f"--replicas={n}")

    def stays(self, name, n):
        host = self.job.processes.get(name, {}).get("host", "")
        return int(host.rsplit("-", 1)[1]) < n if f"{NAME}-worker-" in host else True

    def victims(self, kind):
        try:
            return super().victims(kind) if kind == "rank" else list(getattr(self, f"{kind}_victims")())
        except Refused:
            return []

    def pods(self):
        """{name: pod} of those that nobody has deleted yet."""
        pods = {p["metadata"]["name"]: p for p in items("pods", NS)}
        return {n: p for n, p in sorted(pods.items()) if "deletionTimestamp" not in p["metadata"]}

    def workers(self):
        return {n: p for n, p in self.pods().items() if f"{NAME}-worker-" in n}

    def names_in(self, *uids):
        """Records of the processes in these pods."""
        return frozenset(name for pid, name in self.job.writers().items() if name and pod_uid(pid) in uids)

    def agent_victims(self):
        pods = {p["metadata"]["uid"]: name for name, p in self.workers().items()}
        for pid, argv in sorted(processes()):
            uid = pod_uid(pid) if os.path.basename(argv[0]) == "hvd-agent" else None
            if uid in pods:
                name = f"process {pid} of {pods[uid]}"
                yield disturb.Victim(name, self.names_in(uid), lambda pid=pid: kill(pid))

    def delete_victims(self, *how):
        for name, pod in self.workers().items():
            if how or pod["spec"].get("nodeName") not in self.off:
                yield disturb.Victim(
                    name, self.names_in(pod["metadata"]["uid"]), lambda name=name: delete(name, *how)
                )

    def pod_victims(self):
        return self.delete_victims()

    def force_victims(self):
        return self.delete_victims("--grace-period=0", "--force")

    def launcher_victims(self):
        there = LAUNCHER in self.pods()
        return [disturb.Victim(LAUNCHER, frozenset(), self.lose_launcher)] if there else []

    def lose_launcher(self):
        self.n_logs += 1
        with open(os.path.join(self.job.folder, f"launcher-{self.n_logs}"), "w", encoding="utf-8") as f:
            f.write(log_of(LAUNCHER))
        delete(LAUNCHER)

    def operator_victims(self):
        force = ("--grace-period=0", "--force", "--wait=false")
        one = [(name, (name, "-n", ns)) for ns, name in operators()]
        return [
            disturb.Victim(name, frozenset(), lambda words=words: kubectl("delete", "pods", *words, *force))
            for name, words in [*one, ("all", OPERATORS)]
        ]

    def node_victims(self):
        """A pod that loses its sandbox while it starts stays so for ever with restartPolicy Never: kubelets
        do not create another one. So a node is struck when all its pods run."""
        if self.off:
            return
        on = {"n0": [], "n1": []}
        for pod in self.pods().values():
            on.get(pod["spec"].get("nodeName"), []).append(pod)
        for node, pods in on.items():
            if all(pod["status"]["phase"] == "Running" for pod in pods):
                takes = self.names_in(*(pod["metadata"]["uid"] for pod in pods))
                yield disturb.Victim(node, takes, lambda node=node: self.power_off(node))

    def power_off(self, node):
        self.off[node] = time.monotonic() + self.random.uniform(*OFF_S)
        subprocess.run([f"{CLUSTER}/power", "off", node], check=True)

    def tick(self):
        for node, at in list(self.off.items()):
            if node in self.coming and self.coming[node].poll() is not None:
                if self.coming.pop(node).returncode:
                    raise AssertionError(f"node {node} does not come back")
                del self.off[node]
            elif node not in self.coming and time.monotonic() >= at:
                self.coming[node] = subprocess.Popen([f"{CLUSTER}/power", "on", node])

    def heal(self):
        self.off = dict.fromkeys(self.off, 0)
        while self.off:
            self.tick()
            time.sleep(0.1)

    def end(self):
        if not self.keeps_cluster:
            subprocess.run([f"{CLUSTER}/down"], check=False)


def operators():
    """[(namespace, name)]"""
    found = json.loads(kubectl("get", "pods", *OPERATORS, "-o", "json"))["items"]
    return sorted((p["metadata"]["namespace"], p["metadata"]["name"]) for p in found)


def delete(pod, *how):
    with contextlib.suppress(Refused):  # somebody was faster
        kubectl("delete", "pod", pod, "-n", NS, "--wait=false", *how)


def log_of(pod):
    try:
        return kubectl("logs", "-n", NS, pod)
    except Refused as e:
        return str(e)


def pod_uid(pid):
    """Of the pod of a process; None: it is in none."""
    with contextlib.suppress(OSError):
        found = re.search(r"/pod([0-9a-f-]{36})", Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii"))
        return found and found[1]
    return None
