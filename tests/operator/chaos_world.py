# SPDX-License-Identifier: Apache-2.0
"""Base of chaos_test.py: jobs of both kinds and their kubelet, the audit log, a connection to the
API server that can be cut or go silent, and processes of the control plane that can be stopped.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from api import CORE, Api, Operator, Refused, condition, ended, manifest, wait

RUN = Path(os.environ["RM_RUN"])
BIN = Path(os.environ["BIN"])
KUBECTL = str(RUN / "bin/kubectl")
LOG = RUN / "log/chaos-operator.log"
USER = "system:serviceaccount:ringmaster:hvd-operator"
WORKERS = 2


class PatientApi(Api):
    """One that waits while the API server is away."""

    def call(
        self, method: str, path: str, body: dict | None = None, content: str = "application/json"
    ) -> dict:
        deadline = time.monotonic() + 60
        is_again = False
        while True:
            try:
                return super().call(method, path, body, content)
            except Refused as e:
                if is_again and method == "POST" and e.code == 409:
                    return {}  # the answer to the first one was lost
                if e.code < 500 and e.code != 429:
                    raise
                trouble: Exception = e
            except (OSError, http.client.HTTPException) as e:
                self.connection = None
                trouble = e
            is_again = True
            if time.monotonic() > deadline:
                raise trouble
            time.sleep(0.1)


def patient() -> PatientApi:
    return PatientApi(KUBECTL, str(RUN / "admin.kubeconfig"))


# --- jobs, and who plays the kubelet --------------------------------------------------------
class Kind:
    """The body and the end of a job. pods(ns, name) are those that the operator creates."""

    plural = ""
    once: dict[bool, tuple[str, ...]] = {}  # reasons of the Events of a job that succeeds; that fails

    def __init__(self, api: Api):
        self.api = api

    def body(self, name: str, fails: bool) -> dict:
        raise NotImplementedError

    def status(self, ns: str, name: str) -> dict:
        return (self.api.find(self.path.format(ns=ns) + f"/{name}") or {}).get("status", {})

    def make(self, ns: str, name: str, fails: bool = False) -> None:
        self.api.call("POST", self.path.format(ns=ns), self.body(name, fails))

    def pod(self, ns: str, name: str) -> dict | None:
        return self.api.get(ns, "pods", name)

    def move(self, ns: str, name: str, was: str, now: str, state: dict | None = None) -> bool:
        """The pod goes from one phase to the next, if it is in the first."""
        pod = self.pod(ns, name)
        if not pod or pod["status"].get("phase") != was or "deletionTimestamp" in pod["metadata"]:
            return False
        version = pod["metadata"]["resourceVersion"]
        try:
            self.api.set_pod(ns, name, now, version=version, **(state or {}))
        except Refused as e:
            if e.code not in (404, 409):  # 409: something else happened to it, or an answer was lost
                raise
        return True

    def lose(self, ns: str, name: str) -> bool:
        """As the controllers of Kubernetes do with the pods of a node that is gone. False: it had ended before, or
        there is none."""
        pod = self.pod(ns, name)
        if not pod:
            return False
        meta, has_ended = pod["metadata"], pod["status"].get("phase") in ("Succeeded", "Failed")
        why = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
        try:  # 409: it changed meanwhile, or the answer to the first try was lost
            if not has_ended:
                status = {"phase": "Failed", "conditions": [why]}
                self.api.patch_pod(ns, name, status, meta["resourceVersion"])
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
            self.api.call("DELETE", CORE.format(ns=ns) + f"pods/{name}", options)
        except Refused as e:
            if e.code not in (404, 409):
                raise
        return not has_ended

    def is_over(self, status: dict) -> bool:
        return any(condition(status, c).get("status") == "True" for c in ("Succeeded", "Failed"))

    def step(self, ns: str, name: str, fails: bool, may_end: bool = True) -> bool:
        """One look at a job; True once it is over."""
        status = self.status(ns, name)
        if self.is_over(status):
            return True
        if condition(status, "Running").get("status") == "True":
            if may_end:
                self.end(ns, name, fails)
        else:
            self.run(ns, name)
        return False

    def workers(self, name: str) -> list[str]:
        return [f"{name}-worker-{i}" for i in range(WORKERS)]

    def run(self, ns: str, name: str) -> None:
        if all(self.pod(ns, w) for w in self.workers(name)):
            for w in self.workers(name):
                self.move(ns, w, "Pending", "Running")

    def end(self, ns: str, name: str, fails: bool) -> None:
        raise NotImplementedError

    def left(self, fails: bool) -> int:
        """Worker pods that clean-up leaves."""
        raise NotImplementedError

    def reasons(self, ns: str) -> Counter:
        found = self.api.items(ns, "events")
        kind = self.body("", False)["kind"]
        return Counter(e["reason"] for e in found if e["involvedObject"]["kind"] == kind)


class HorovodJob(Kind):
    path = "/apis/ringmaster.dev/v1beta1/namespaces/{ns}/horovodjobs"
    once = {False: ("JobRunning", "JobSucceeded"), True: ("JobRunning", "WorkerFailed")}

    def body(self, name: str, fails: bool) -> dict:
        pod = {"containers": [{"name": "train", "image": "i", "command": ["c"]}]}
        spec = {
            "runPolicy": {"cleanPodPolicy": "All"},
            "replicaSpecs": {"Worker": {"replicas": WORKERS, "template": {"spec": pod}}},
        }
        return manifest("ringmaster.dev/v1beta1", "HorovodJob", name, spec=spec)

    def end(self, ns: str, name: str, fails: bool) -> None:
        if fails:
            self.move(ns, f"{name}-worker-1", "Running", "Failed", ended(3))
            return
        for w in self.workers(name):
            self.move(ns, w, "Running", "Succeeded", ended(0))

    def left(self, fails: bool) -> int:
        return 0


class MPIJob(Kind):
    path = "/apis/kubeflow.org/v2beta1/namespaces/{ns}/mpijobs"
    once = {
        False: ("MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"),
        True: ("MPIJobCreated", "MPIJobRunning"),
    }

    def body(self, name: str, fails: bool) -> dict:
        def role(n: int, command: str) -> dict:
            pod = {"containers": [{"name": "train", "image": "i", "command": [command]}]}
            return {"replicas": n, "restartPolicy": "Never", "template": {"spec": pod}}

        spec = {
            "runPolicy": {"cleanPodPolicy": "None" if fails else "All", "backoffLimit": 0},
            "mpiReplicaSpecs": {"Launcher": role(1, "mpirun"), "Worker": role(WORKERS, "sshd")},
        }
        return manifest("kubeflow.org/v2beta1", "MPIJob", name, spec=spec)

    def launchers(self, ns: str, name: str) -> list[str]:
        query = f"?labelSelector=batch.kubernetes.io/job-name={name}-launcher"
        return [
            p["metadata"]["name"]
            for p in self.api.call("GET", CORE.format(ns=ns) + "pods" + query)["items"]
        ]

    def run(self, ns: str, name: str) -> None:
        super().run(ns, name)
        for p in self.launchers(ns, name):
            self.move(ns, p, "Pending", "Running")

    def end(self, ns: str, name: str, fails: bool) -> None:
        for p in self.launchers(ns, name):
            self.move(ns, p, "Running", "Failed" if fails else "Succeeded", ended(3 if fails else 0))

    def left(self, fails: bool) -> int:
        return WORKERS if fails else 0


# --- what was asked of the API server -------------------------------------------------------
def created(ns: str) -> tuple[Counter, set[str]]:
    """What the operator made in a namespace, from the audit log: "resource name" -> how often; and what the API server
    gave no answer about in time, which may have been made nevertheless."""
    out: Counter = Counter()
    unanswered: set[str] = set()
    marks = (f'"username":"{USER}"'.encode(), f'"namespace":"{ns}"'.encode(), b'"verb":"create"')
    log = RUN / "log/audit.log"
    for path in [*sorted(log.parent.glob("audit-*.log")), log]:
        with path.open("rb") as f:
            for line in f:
                if not all(m in line for m in marks):
                    continue
                e = json.loads(line)
                o, code = e["objectRef"], e.get("responseStatus", {}).get("code", 0)
                what = f"{o['resource']} {o.get('name', '')}"
                if o["resource"] != "events" and code == 201:
                    out[what] += 1
                elif code == 0 or code >= 499:
                    unanswered.add(what)
    return out, unanswered


# --- the control plane's processes ----------------------------------------------------------
def process(name: str) -> int:
    """The process of this cluster that runs bin/NAME."""
    program = str(RUN / "bin" / name).encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().split(b"\0")[0] == program:
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"{name} does not run")


class paused:
    """with paused("etcd"): it neither works nor answers."""

    def __init__(self, name: str):
        self.pid = process(name)

    def __enter__(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_) -> None:
        os.kill(self.pid, signal.SIGCONT)


AGAIN: dict[str, subprocess.Popen] = {}  # by name: what we started


def restart(name: str) -> None:
    """kube-apiserver or etcd: killed, and started again with the same command line in the same network namespace."""
    pid = process(name)
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    netns = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    os.kill(pid, signal.SIGKILL)
    if name in AGAIN and AGAIN[name].pid == pid:
        AGAIN.pop(name).wait(20)
    else:
        told = RUN / "ended"  # by tests/cluster, for which it was not wanted
        wait(f"{name}'s end", lambda: told.exists() and name in told.read_text())
        told.unlink()
    with open(RUN / f"log/{name}-again.log", "ab") as log:
        command = ["nsenter", f"--net=/proc/self/fd/{netns}", "--", *words]
        AGAIN[name] = subprocess.Popen(
            command, stdout=log, stderr=log, pass_fds=(netns,), start_new_session=True
        )
    os.close(netns)
    patient().call("GET", "/readyz")


# --- the line between operator and API server -------------------------------------------------
class Line(threading.Thread):
    """A relay on a loopback port. up: passes; cut: connections are closed and refused; silent: what is sent
    on existing connections is dropped, both ways, while new ones pass."""

    def __init__(self, server: str):
        super().__init__(daemon=True)
        at = urlsplit(server)
        self.far = (at.hostname, at.port)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.open: dict[socket.socket, bool] = {}  # is it silent?
        self.is_cut = False
        self.start()

    def run(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection(self.far, 10)
            except OSError:
                near.close()
                continue
            with self.lock:
                self.open[near] = self.open[far] = False
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.relay, args=(a, b), daemon=True).start()

    def relay(self, a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(65536):
                if not self.open.get(a, False):
                    b.sendall(data)
        except OSError:
            pass
        if not self.open.get(a, False):
            self.close(a)
            self.close(b)

    def close(self, s: socket.socket) -> None:
        with self.lock:
            self.open.pop(s, None)
        with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_RDWR)
        s.close()

    def cut(self) -> None:
        self.is_cut = True
        for s in list(self.open):
            self.close(s)

    def mend(self) -> None:
        self.is_cut = False

    def silence(self) -> None:
        with self.lock:
            for s in self.open:
                self.open[s] = True

    def stop(self) -> None:
        self.listener.close()
        self.cut()

    def kubeconfig(self, original: Path) -> Path:
        text = original.read_text()
        at = text.index("https://")
        path = original.with_name(f"line-{self.port}.kubeconfig")
        path.write_text(f"{text[:at]}https://127.0.0.1:{self.port}{text[text.index(chr(34), at) :]}")
        return path


class Clock:
    """The wall clock of one operator, by Debian's libfaketime; its monotonic clock stays the machine's."""

    AHEAD_S = 3600

    def __init__(self, name: str):
        self.path = RUN / f"clock-{name}"
        self.is_ahead = False
        self.set()

    def set(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(f"+{self.AHEAD_S if self.is_ahead else 0}\n")
        new.rename(self.path)

    def jump(self) -> None:
        """An hour ahead, or back."""
        self.is_ahead = not self.is_ahead
        self.set()

    def env(self) -> dict[str, str]:
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }


def operator(
    kubeconfig: Path, *args: str, crash: str | None = None, clock: Clock | None = None
) -> Operator:
    program = BIN / ("hvd-operator-faults" if crash else "hvd-operator")
    env = clock.env() if clock else None
    return Operator(program, kubeconfig, LOG, "--http-port", "0", *args, crash=crash, env=env)
