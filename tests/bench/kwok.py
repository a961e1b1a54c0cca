# SPDX-License-Identifier: Apache-2.0
"""The cluster that bench_operator.py measures on: requests as administrator, a scheduler, nodes simulated by
kwok, and readers of /proc and the audit log. Runs inside the control plane's network namespace.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "operator"))
from api import Late, Refused, wait  # noqa: F401  bench_operator.py has them from here

RUN = Path(os.environ["RM_RUN"])
ADDRESS = "172.30.0.1"
TICK = os.sysconf("SC_CLK_TCK")

# A pod that is bound runs at once, and one that is to end is gone at once.
STAGES = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: run}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.podIP, operator: DoesNotExist}
  next:
    statusTemplate: |
      {{ $t := Now }}
      phase: Running
      startTime: {{ Quote $t }}
      hostIP: {{ Quote (NodeIPWith .spec.nodeName) }}
      podIP: {{ Quote (POD_IP) }}
      conditions:
      - {type: Initialized, status: "True", lastTransitionTime: {{ Quote $t }}}
      - {type: ContainersReady, status: "True", lastTransitionTime: {{ Quote $t }}}
      - {type: Ready, status: "True", lastTransitionTime: {{ Quote $t }}}
      initContainerStatuses:
      {{ range .spec.initContainers }}
      - name: {{ .name }}
        image: {{ .image }}
        ready: true
        restartCount: 0
        state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ Quote $t }}, finishedAt: {{ Quote $t }}}}
      {{ end }}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name }}
        image: {{ .image }}
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ Quote $t }}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: end}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next:
    finalizers: {empty: true}
    delete: true
"""


POD_IP = "PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace"  # its own


def context() -> ssl.SSLContext:
    out = ssl.create_default_context(cafile=str(RUN / "pki/ca.crt"))
    out.load_cert_chain(RUN / "pki/admin.crt", RUN / "pki/admin.key")
    return out


TLS = context()


class Api:
    """One connection; each thread has its own."""

    def __init__(self, timeout: float | None = 120):
        self.connection = http.client.HTTPSConnection(ADDRESS, 6443, context=TLS, timeout=timeout)

    def send(self, method: str, path: str, body: dict | str | None = None, kind: str = "json"):
        text = json.dumps(body) if isinstance(body, dict) else body
        headers = {"Content-Type": f"application/{kind}", "Accept": "application/json"}
        self.connection.request(method, path, text, headers)
        return self.connection.getresponse()

    def call(self, method: str, path: str, body: dict | str | None = None, kind: str = "json") -> dict:
        answer = self.send(method, path, body, kind)
        text = answer.read()
        if answer.status >= 400:
            raise Refused(answer.status, f"{method} {path}: {answer.status} {text[:300].decode()}")
        return json.loads(text)

    def apply(self, path: str, body: dict) -> None:
        """Creates what is not there yet."""
        with contextlib.suppress(Refused):
            self.call("POST", path, body)


class Watch(threading.Thread):
    """Calls see(line, now) for each event of path, until stopped. The API server ends the watch of a reader that is
    too slow for it: it is opened again at the last version seen, and counted."""

    VERSION = re.compile(rb'"resourceVersion":"([0-9]+)"')

    def __init__(self, path: str, see):
        super().__init__(daemon=True)
        self.version = Api().call("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
        self.path, self.see, self.is_over, self.error, self.reopened = path, see, False, "", 0
        self.open()
        self.start()

    def open(self) -> None:
        self.api = Api(None)
        self.answer = self.api.send("GET", f"{self.path}?watch=1&resourceVersion={self.version}")

    def run(self) -> None:
        while not self.is_over:
            try:
                while line := self.answer.readline():
                    self.see(line, time.monotonic())
                    if found := self.VERSION.search(line):
                        self.version = found[1].decode()
                if not self.is_over:
                    self.reopened += 1
                    self.open()
            except Exception as e:  # it is reported with the figures, unless it is we who ended it
                self.error = "" if self.is_over else repr(e)
                return

    def stop(self) -> None:
        self.is_over = True
        with contextlib.suppress(OSError, AttributeError):
            self.api.connection.sock.shutdown(2)


# --- processes ----------------------------------------------------------------------------
def cpu(pid: int) -> tuple[float, float]:
    """Seconds in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return int(fields[11]) / TICK, int(fields[12]) / TICK


def memory_mib(pid: int, key: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def machine() -> tuple[float, float]:
    """Seconds of all processors: busy, and in all."""
    t = [int(x) / TICK for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(t) - t[3] - t[4], sum(t)


def cluster_pids() -> dict[int, str]:
    """The control plane, scheduler and kwok: kube-all under whatever name, below this run's folder or in
    its box."""
    out = {}
    here = os.stat("/proc/self/ns/net").st_ino
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.stat(entry / "ns/net").st_ino == here:
                name = Path((entry / "cmdline").read_bytes().split(b"\0")[0].decode()).name
                if name in ("etcd", "kwok") or name.startswith("kube-"):
                    out[int(entry.name)] = name
    return out


class Daemons:
    """A scheduler and kwok, which tests/cluster/up --control-plane-only leaves out."""

    def __init__(self, nodes: int, gpus: int, pod_ip: str = ""):
        """pod_ip: of all pods."""
        self.running: list[subprocess.Popen] = []
        pki = RUN / "pki"
        config = f"{pki}/kube-scheduler.kubeconfig"
        self.start("kube-scheduler", f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
                   f"--authorization-kubeconfig={config}", "--leader-elect=false",
                   "--kube-api-qps=2000", "--kube-api-burst=4000")  # fmt: skip
        (RUN / "stages.yaml").write_text(STAGES.replace("POD_IP", f'"{pod_ip}"' if pod_ip else POD_IP))
        admin = RUN / "pki/bench.kubeconfig"
        pair = f"client-certificate: {pki}/admin.crt, client-key: {pki}/admin.key"
        admin.write_text(kubeconfig(f"{{{pair}}}"))
        self.start("kwok", "--kubeconfig", str(admin), "--config", str(RUN / "stages.yaml"),
                   "--manage-all-nodes=false", "--manage-nodes-with-label-selector=type=kwok",
                   "--cidr=10.245.0.0/16", "--node-ip=10.246.0.1", "--node-lease-duration-seconds=40",
                   "--server-address=127.0.0.1:10247", home=str(RUN))  # fmt: skip
        api = Api()
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        room = {"cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": str(gpus)}
        for i in range(nodes):
            name = f"fake-{i}"
            labels = {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
            api.apply("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            status = {"capacity": room, "allocatable": room, "conditions": ready}
            api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, "merge-patch+json")
        wait("nodes without taints", lambda: not any(
            n["spec"].get("taints") for n in api.call("GET", "/api/v1/nodes")["items"]))  # fmt: skip

    def start(self, name: str, *args: str, home: str | None = None) -> None:
        env = os.environ | ({"HOME": home} if home else {})
        with open(RUN / f"log/{name}.log", "wb") as log:
            command = [str(RUN / "bin" / name), *args]
            self.running.append(subprocess.Popen(command, stdout=log, stderr=log, env=env))

    def stop(self) -> None:
        for p in self.running:
            p.send_signal(signal.SIGKILL)
            p.wait()


def kubeconfig(user: str) -> str:
    return f"""\
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "https://{ADDRESS}:6443", certificate-authority: {RUN}/pki/ca.crt}}}}]
users: [{{name: u, user: {user}}}]
"""


def account(ns: str, name: str, role: str) -> tuple[str, Path]:
    """A service account with the ClusterRole: its user name in the audit log, and a kubeconfig."""
    api = Api()
    api.apply("/api/v1/namespaces", {"metadata": {"name": ns}})
    api.apply(f"/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"name": name}})
    api.apply(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": f"bench-{name}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": ns}],
        },
    )
    made = api.call(
        "POST",
        f"/api/v1/namespaces/{ns}/serviceaccounts/{name}/token",
        {"spec": {"expirationSeconds": 14400}},
    )
    path = RUN / f"pki/{name}.kubeconfig"
    path.write_text(kubeconfig(f'{{token: "{made["status"]["token"]}"}}'))
    path.chmod(0o600)
    return f"system:serviceaccount:{ns}:{name}", path


class Audit:
    """What one user asked of the API server from now on. The log is cut into files of 100 MB."""

    def __init__(self, user: str):
        self.mark = f'"username":"{user}"'.encode()
        self.log = RUN / "log/audit.log"
        at = self.log.stat()
        self.inode, self.offset = at.st_ino, at.st_size

    def files(self) -> list[Path]:
        cut = sorted(self.log.parent.glob("audit-*.log"))
        older = [f for f in [*cut, self.log] if f.stat().st_ino == self.inode]
        return [f for f in [*cut, self.log] if f in older or f.stat().st_mtime > older[0].stat().st_mtime]

    def count(self) -> tuple[Counter, Counter]:
        """Requests by verb and resource, and answers by code."""
        kinds: Counter = Counter()
        codes: Counter = Counter()
        for path in self.files():
            with path.open("rb") as f:
                if path.stat().st_ino == self.inode:
                    f.seek(self.offset)
                for line in f:
                    if self.mark not in line:
                        continue
                    e = json.loads(line)
                    o = e.get("objectRef", {})
                    sub = "/" + o["subresource"] if o.get("subresource") else ""
                    kinds[f"{e['verb']} {o.get('resource', e['requestURI'])}{sub}"] += 1
                    codes[str(e.get("responseStatus", {}).get("code"))] += 1
        return kinds, codes
