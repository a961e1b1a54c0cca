# SPDX-License-Identifier: Apache-2.0
"""What the tests of hvd-operator on tests/fakes/kube_fake.py share. BIN is the programs' folder."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fakes"))
sys.path.append(str(Path(__file__).resolve().parents[1]))
from api import Operator, Suite, expect, wait
from kube_fake import Fake
from ports import free_port  # noqa: F401  tests have it from here

BIN = Path(os.environ["BIN"])
suite = Suite()
OPEN = ["--watch-idle-timeout", "1m"]  # watches stay open though a busy machine is silent


def fetch(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=60) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except (OSError, http.client.HTTPException):  # also what ends or is late in the middle of an answer
        return 0, ""


def refuse(method: str, plural: str, *answers: tuple[int, str], part: str = "", **headers: str):
    """A hook that answers the first requests of that kind, each with the next (code, message).

    part: a parameter that the query must have. hook.times has the time of each request of the kind.
    """
    times: list[float] = []

    def hook(w, h, m, p, query):
        if m != method or p not in plural.split() or part not in ("", *query):
            return False
        times.append(time.monotonic())
        if len(times) > len(answers):
            return False
        code, message = answers[len(times) - 1]
        w.fake.answer(h, code, json.dumps({"code": code, "message": message}), **headers)
        return True

    hook.times = times
    return hook


def serve_watches(n: int, act, plural: str = "pods"):
    """A hook for the first n watches of a kind: act(w, h, query) serves each. hook.times has when they came."""
    times: list[float] = []

    def hook(w, h, method, p, query):
        if p != plural or "watch" not in query or len(times) == n:
            return False
        times.append(time.monotonic())
        act(w, h, query)
        return True

    hook.times = times
    return hook


def cut_connection(h) -> None:
    h.close_connection = True
    h.connection.close()


def launched(name: str, command: str = "x") -> dict:
    """A HorovodJob with a launcher and two workers."""
    container = {"name": "c", "image": "i"}
    launcher = {"template": {"spec": {"containers": [container | {"command": [command]}]}}}
    sets = {
        "Launcher": launcher,
        "Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
    }
    return {"metadata": {"name": name, "generation": 1}, "spec": {"replicaSpecs": sets}}


def mpijob(name: str, workers: int = 2, **annotations: str) -> dict:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    sets = {"Launcher": {"template": template}, "Worker": {"replicas": workers, "template": template}}
    meta = {"name": name, "generation": 1, "annotations": annotations}
    return {"metadata": meta, "spec": {"mpiReplicaSpecs": sets}}


class World:
    """A fake and an operator on it."""

    program = "hvd-operator"
    stderr: int | None = None  # a descriptor; None: the file log

    def __init__(
        self, hook=None, jobs: int = 1, port: int = 0, before=None, extra: list[str] | None = None, env=None
    ):
        self.fake = Fake()
        if before:
            before(self.fake)
        self.dir = Path(tempfile.mkdtemp(prefix="op-fake-"))
        (self.dir / "kubeconfig").write_text(self.kubeconfig())
        for i in range(jobs):
            self.fake.put("horovodjobs", self.job(f"j{i}"))
        if hook:
            self.fake.hook = lambda *a: hook(self, *a)
        self.options = ["--http-port", str(port), "--watch-idle-timeout", "1s", *(extra or [])]
        self.operator = self.begin(env)

    def begin(self, env=None) -> Operator:
        return Operator(
            BIN / self.program,
            self.dir / "kubeconfig",
            self.dir / "log",
            *self.options,
            env=env,
            stderr=self.stderr,
        )

    def log(self) -> str:
        return (self.dir / "log").read_text()

    def get(self, plural: str, name: str) -> dict:
        """A copy."""
        return json.loads(json.dumps(self.fake.objects[plural][f"ns/{name}"]))

    def delete(self, plural: str, name: str) -> None:
        """As another client does; what has finalizers stays in deletion."""
        gone = self.get(plural, name)
        if gone["metadata"].get("finalizers"):
            self.fake.begin_deletion(plural, gone)
        else:
            self.fake.put(plural, gone, "DELETED")

    def set_pod(self, name: str, **status: object) -> None:
        self.fake.put("pods", self.get("pods", name) | {"status": status})

    def change(self, plural: str, name: str, **spec: object) -> None:
        """Fields of the spec, by "__" for each dot."""
        job = self.get(plural, name)
        job["metadata"]["generation"] += 1
        for path, value in spec.items():
            at = job["spec"]
            *parents, last = path.split("__")
            for key in parents:
                at = at.setdefault(key, {})
            at[last] = value
        self.fake.put(plural, job)

    def kubeconfig(self) -> str:
        return (
            "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
            f"clusters: [{{name: k, cluster: {{server: '{self.fake.url}'}}}}]\n"
        )

    @staticmethod
    def job(name: str, **pod: object) -> dict:
        """With two workers; pod: more fields of the template's spec."""
        spec = {"containers": [{"name": "c", "image": "i", "command": ["x"]}]} | pod
        return {
            "metadata": {"name": name, "generation": 1},
            "spec": {"replicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": spec}}}},
        }

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        code = self.operator.stop()
        self.fake.stop()
        log = self.log()
        shutil.rmtree(self.dir)
        if kind:
            print("# " + log.replace("\n", "\n# "))
        else:
            expect(code == 0, f"the operator ends well, not with {code}", log)

    def state(self, name: str = "j0") -> str | None:
        return self.fake.objects["horovodjobs"][f"ns/{name}"].get("status", {}).get("state")

    def wait_pods(self, n: int = 2, name: str = "j0") -> None:
        """For all of them: they are created side by side, in any order."""

        def made() -> bool:
            return all(f"ns/{name}-worker-{i}" in self.fake.objects["pods"] for i in range(n))

        wait("pods", lambda: made() or self.operator.ended())

    def run_pods(self, n: int = 2, name: str = "j0") -> None:
        self.wait_pods(n, name)
        for i in range(n):
            self.set_pod(f"{name}-worker-{i}", phase="Running")

    def serves_job(self, name: str = "j0") -> None:
        """The proof that the operator still receives events and acts."""
        self.run_pods(name=name)
        wait(f"{name} is Running", lambda: self.state(name) == "Running")

    def job_runs(self, name: str) -> None:
        self.fake.put("horovodjobs", self.job(name))
        self.serves_job(name)
