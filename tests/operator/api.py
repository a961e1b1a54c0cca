# SPDX-License-Identifier: Apache-2.0
"""A small client of the API server for the operator's tests: what a test does as administrator, over
one TLS connection, because kubectl would take longer to start than the operator to finish.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from urllib.parse import urlsplit

JOBS = "/apis/ringmaster.dev/v1beta1/namespaces/{ns}/horovodjobs"
CORE = "/api/v1/namespaces/{ns}/"
MERGE = "application/merge-patch+json"


class Refused(Exception):
    """An answer of 400 and more; the text is the server's message."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


class Late(AssertionError):
    """A wait that met its deadline; the text has the state instead."""


def manifest(api_version: str, kind: str, name: str, **rest) -> dict:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **rest}


class Api:
    def __init__(self, kubectl: str, kubeconfig: str):
        self.kubectl = [kubectl, "--kubeconfig", kubeconfig]
        view = json.loads(self.administer("config", "view", "--raw", "-o", "json"))
        cluster, user = view["clusters"][0]["cluster"], view["users"][0]["user"]
        self.server = cluster["server"]
        self.ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=self.ca)
        with tempfile.NamedTemporaryFile(mode="wb") as pem:  # mode 0600
            for key in ("client-certificate-data", "client-key-data"):
                pem.write(base64.b64decode(user[key]) + b"\n")
            pem.flush()
            self.tls.load_cert_chain(pem.name)
        self.connection: http.client.HTTPSConnection | None = None
        self.lock = threading.Lock()

    def administer(self, *args: str) -> str:
        """kubectl as administrator."""
        return subprocess.run(
            [*self.kubectl, *args], check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def call(
        self, method: str, path: str, body: dict | None = None, content: str = "application/json"
    ) -> dict:
        with self.lock:  # a fake agent looks for its token in a thread of its own
            status, text = self.exchange(method, path, body, content)
        out = json.loads(text) if text[:1] == "{" else {"text": text}
        if status >= 400:
            raise Refused(status, out.get("message", text))
        return out

    def exchange(self, method: str, path: str, body: dict | None, content: str) -> tuple[int, str]:
        for attempt in (1, 2):
            if not self.connection:
                at = urlsplit(self.server)
                self.connection = http.client.HTTPSConnection(
                    at.hostname or "", at.port, context=self.tls, timeout=20
                )
            try:
                self.connection.request(
                    method,
                    path,
                    json.dumps(body) if body is not None else None,
                    {"Content-Type": content, "Accept": "application/json"},
                )
                answer = self.connection.getresponse()
                return answer.status, answer.read().decode()
            except (ConnectionError, http.client.RemoteDisconnected):
                self.connection = None  # kept alive too long
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def find(self, path: str) -> dict | None:
        """The object; None when there is none."""
        try:
            return self.call("GET", path)
        except Refused as e:
            if e.code == 404:
                return None
            raise

    def patch(self, path: str, body: dict) -> dict:
        return self.call("PATCH", path, body, MERGE)

    # --- by kind -------------------------------------------------------------------------
    def namespace(self, name: str, **labels: str) -> str:
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        # the controller manager asks again after half a minute at most when the API server was away
        wait(f"service account of {name}", lambda: self.items(name, "serviceaccounts"), 90)
        return name

    def items(self, ns: str, plural: str) -> list[dict]:
        path = JOBS if plural == "horovodjobs" else CORE + plural
        return self.call("GET", path.format(ns=ns))["items"]

    def get(self, ns: str, plural: str, name: str) -> dict | None:
        path = JOBS if plural == "horovodjobs" else CORE + plural
        return self.find(path.format(ns=ns) + "/" + name)

    def make(self, ns: str, job: dict) -> dict:
        return self.call("POST", JOBS.format(ns=ns) + "?fieldValidation=Strict", job)

    def status(self, ns: str, name: str) -> dict:
        return (self.get(ns, "horovodjobs", name) or {}).get("status", {})

    def pods(self, ns: str) -> dict[str, str]:
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in self.items(ns, "pods")}

    def reasons(self, ns: str) -> list[str]:
        return sorted(
            e["reason"] for e in self.items(ns, "events") if e["involvedObject"]["kind"] == "HorovodJob"
        )

    def set_pod(
        self, ns: str, name: str, phase: str, version: str | None = None, **container: object
    ) -> None:
        """Plays the kubelet: phase, and the state of the pod's container. version: only if it is still this one."""
        state = container or {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(phase == "Running")}],
            "containerStatuses": [
                {
                    "name": "train",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "image": "i",
                    "imageID": "",
                    "state": state,
                }
            ],
        }
        self.patch_pod(ns, name, status, version)

    def patch_pod(self, ns: str, name: str, status: dict, version: str | None = None) -> None:
        body = {"status": status} | ({"metadata": {"resourceVersion": version}} if version else {})
        self.patch(CORE.format(ns=ns) + f"pods/{name}/status", body)

    def bind(self, ns: str, name: str, node: str) -> None:
        """Plays the scheduler."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = manifest("v1", "Binding", name, target=target)
        self.call("POST", CORE.format(ns=ns) + f"pods/{name}/binding", binding)

    def delete(self, ns: str, plural: str, name: str, grace: int | None = None) -> None:
        path = JOBS if plural == "horovodjobs" else CORE + plural
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        self.call("DELETE", path.format(ns=ns) + f"/{name}{query}")


def install(api: Api, run: Path) -> Path:
    """What manifests/ installs, but for the Deployment; a kubeconfig of the operator's account."""
    manifests = Path(__file__).resolve().parents[2] / "manifests"
    api.administer("apply", "-f", str(manifests / "operator/namespace.yaml"))
    for part in ("crd", "crd/mpijob", "rbac"):
        api.administer("apply", "-k", str(manifests / part))
    api.administer("wait", "--for=condition=Established", "--timeout=30s", "crd/horovodjobs.ringmaster.dev")
    token = api.administer("create", "token", "hvd-operator", "-n", "ringmaster", "--duration=2h").strip()
    (run / "operator.token").write_text(token + "\n")
    (run / "operator-ca.crt").write_text(api.ca)
    kubeconfig = run / "operator.kubeconfig"
    kubeconfig.write_text(f"""\
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{api.server}", certificate-authority: operator-ca.crt}}}}]
users: [{{name: u, user: {{tokenFile: operator.token}}}}]
""")
    return kubeconfig


def wait(what: str, look, seconds: float = 120, pause: float = 0.02):
    """Calls look() until it returns something true and returns that; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise Late(f"{what}: not so after {seconds:.0f} s")
        time.sleep(pause)


def expect(claim: bool, text: str, *seen) -> None:
    if not claim:
        shown = "\n".join(s if isinstance(s, str) else json.dumps(s, indent=1) for s in seen)
        raise AssertionError(f"{text}\n{shown}" if shown else text)


def condition(status: dict, kind: str) -> dict:
    return next((c for c in status.get("conditions", []) if c["type"] == kind), {})


def ended(code: int, message: str = "", reason: str = "Error", at: str = "2026-01-01T00:01:00Z") -> dict:
    """For set_pod: the state of a container that has exited."""
    end = {"exitCode": code, "message": message, "reason": reason, "finishedAt": at, "startedAt": at}
    return {"terminated": end}


OPTIONS = ("--kube-api-qps=1000", "--kube-api-burst=1000", "--log-level=debug")


class Operator:
    """hvd-operator as a process, under the rights that the manifests give it."""

    def __init__(
        self, program: Path, kubeconfig: Path, log: Path, *args: str, crash=None, env=None, stderr=None
    ):
        """crash: HVD_CRASH; env: more variables. Tests may run in a pod; the operator must not detect it."""
        self.log = log
        ours = ("KUBECONFIG", "HVD_CRASH", "KUBERNETES_SERVICE_HOST")
        env = {k: v for k, v in os.environ.items() if k not in ours} | (env or {})
        if crash:
            env["HVD_CRASH"] = crash
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(program), f"--kubeconfig={kubeconfig}", *OPTIONS, *args],
                env=env,
                stdout=out,
                stderr=out if stderr is None else stderr,
            )

    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> int:
        if not self.ended():
            self.process.terminate()
        return self.process.wait(120)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(120)

    def rss_kib(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
        return 0


class Suite:
    """Tests in TAP, in the order of their definition."""

    def __init__(self):
        self.tests = []

    def test(self, function):
        self.tests.append(function)
        return function

    def add(self, name: str, function, *args) -> None:
        """A test of that name, which calls function(*args)."""

        def test() -> None:
            function(*args)

        test.__name__ = name
        self.tests.append(test)

    def main(self, names: list[str]) -> int:
        only = os.environ.get("RM_ONLY")  # tests/run.py repeats what failed
        names = [only] if only else names
        unknown = set(names) - {t.__name__ for t in self.tests}
        if unknown:
            print(f"no such test: {', '.join(sorted(unknown))}", file=sys.stderr)
            return 2
        chosen = [t for t in self.tests if not names or t.__name__ in names]
        print(f"1..{len(chosen)}", flush=True)
        failed = []
        for n, test in enumerate(chosen, 1):
            start = time.monotonic()
            try:
                test()
                verdict = "ok"
            except Exception:
                failed.append("*" if getattr(test, "is_about_others", False) else test.__name__)
                verdict = "not ok"
                print("# " + traceback.format_exc().replace("\n", "\n# "))
            print(f"{verdict} {n} - {test.__name__} # {time.monotonic() - start:.1f} s", flush=True)
        if failed and os.environ.get("RM_FAILED"):
            Path(os.environ["RM_FAILED"]).write_text("".join(f"{name}\n" for name in failed))
        return 1 if failed else 0
