#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mpi-operator and hvd-operator side by side on one control plane: the same MPIJobs (upstream/*.yaml), one
namespace each; after each step all that they made and wrote is compared, but for what cannot be alike (names
of the namespaces, uids, times, keys). In TAP, one test for a file of jobs and step.
usage: RM_RUN=... BIN=... differ.py PEER-FOLDER [--self] [FILE ...]

No kubelet: this program plays it, so that each pod runs, ends or fails when it says so; Jobs are run by
Kubernetes' own controller. A step is over when the peer shows what is expected, and the two are alike or the
deadline has passed. --self compares the peer with itself, to see what is chance.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from api import Api, Operator, Refused, Suite, condition, wait

HERE = Path(__file__).resolve().parent / "upstream"
RUN = Path(os.environ["RM_RUN"])
BIN = Path(os.environ["BIN"])
KUBECTL = str(RUN / "bin/kubectl")
CONFIG = RUN / "admin.kubeconfig"
MPIJOBS = "/apis/kubeflow.org/v2beta1/namespaces/{ns}/mpijobs"
FLAGS = {
    "plain": (),
    "domain": ("--cluster-domain=cluster.example",),
    "volcano": ("--gang-scheduling=volcano",),
    "plugins": ("--gang-scheduling=my-scheduler",),
}
LISTS = {
    "Service": "/api/v1/namespaces/{ns}/services",
    "ConfigMap": "/api/v1/namespaces/{ns}/configmaps",
    "Secret": "/api/v1/namespaces/{ns}/secrets",
    "Pod": "/api/v1/namespaces/{ns}/pods",
    "Job": "/apis/batch/v1/namespaces/{ns}/jobs",
    "PodGroup of Volcano": "/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups",
    "PodGroup of scheduler-plugins": "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{ns}/podgroups",
    "MPIJob": MPIJOBS,
}
# What we do differently on purpose: job, place (regular expressions), and why.
ON_PURPOSE: list[tuple[str, str, str]] = [
    (
        r"^(Job|Service|ConfigMap|PodGroup) ",
        r'metadata\.labels(\.ringmaster\.dev/job-name: only ours|: only ours has it: {"ringmaster\.dev/job-name": "[^"]*"}$)',
        "our watches ask for this label",
    ),
    (
        r"^Job ",
        r"spec\.ttlSecondsAfterFinished: only theirs",
        "ours is set when the end is stored, so that no launcher is deleted unseen",
    ),
    (
        r"^Job ",
        r"containers\[0\]\.terminationMessagePolicy",
        "so that the last line of the launcher's output is in the status",
    ),
    (r"^Pod far", r"dnsConfig\.searches", "the workers' search path follows --cluster-domain"),
    (
        r"^MPIJob ",
        r"conditions\[\d+\]\.message: theirs .* is (created|suspended)\.\", ours .* is (created|suspended); ",
        "why the job waits",
    ),
    (r"^Event no-replicas ", r"ValidationError\.message", "field, value and what is allowed, in our words"),
]

suite = Suite()


# --- what there is, without what cannot be alike --------------------------------------------
def dropped(tree: object, *paths: str) -> None:
    for path in paths:
        *parents, last = path.split(".")
        at = tree
        for key in parents:
            at = at.get(key, {}) if isinstance(at, dict) else {}
        if isinstance(at, dict):
            at.pop(last, None)


def shape_of_key(name: str, value: str) -> str:
    """Keys differ; what sort of key it is must not."""
    text = base64.b64decode(value).decode()
    lines = text.strip().splitlines()
    return f"{name}: {lines[0] if len(lines) > 1 else text.split()[0]}, ends in a line: {text.endswith(chr(10))}"


def plain(kind: str, o: dict) -> dict:
    o = json.loads(json.dumps(o))
    meta = o["metadata"]
    dropped(meta, "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace")
    for owner in [*meta.get("ownerReferences", []), *template(o).get("ownerReferences", [])]:
        owner["uid"] = "-"
    for key in ("batch.kubernetes.io/controller-uid", "controller-uid"):
        for labels in (
            template(o).get("labels", {}),
            o.get("spec", {}).get("selector", {}).get("matchLabels", {}),
        ):
            if isinstance(labels, dict) and key in labels:
                labels[key] = "-"
    if kind == "Secret":
        o["data"] = sorted(shape_of_key(k, v) for k, v in o.get("data", {}).items())
    if kind == "Pod":
        o["status"] = {"phase": o["status"].get("phase")}
        o["spec"] = json.loads(re.sub(r"kube-api-access-\w{5}", "kube-api-access", json.dumps(o["spec"])))
    elif kind == "MPIJob":
        o["status"] = status_of_job(o.get("status", {}))
    else:
        o.pop("status", None)
    return o


def template(o: dict) -> dict:
    found = o.get("spec", {}).get("template", {})
    return found.get("metadata", {}) if isinstance(found, dict) else {}


def status_of_job(status: dict) -> dict:
    out = {k: status[k] for k in status if k == "replicaStatuses"}
    out["times"] = sorted(k for k in status if k.endswith("Time") and k != "lastReconcileTime")
    out["conditions"] = [
        {k: c[k] for k in ("type", "status", "reason", "message") if k in c}
        for c in status.get("conditions", [])
    ]
    return out


def world(ns: str) -> dict[str, dict]:
    out = {}
    for kind, path in LISTS.items():
        for o in api.call("GET", path.format(ns=ns))["items"]:
            name = o["metadata"]["name"]
            owners = o["metadata"].get("ownerReferences", [])
            is_jobs = any(r["kind"] == "Job" for r in owners)
            if name == "kube-root-ca.crt" or is_jobs or "deletionTimestamp" in o["metadata"]:
                continue
            out[f"{kind} {name}"] = plain(kind, o)
    for e in api.call("GET", f"/api/v1/namespaces/{ns}/events")["items"]:
        if e["involvedObject"]["kind"] == "MPIJob":
            told = {
                k: e.get(k)
                for k in (
                    "type",
                    "reason",
                    "message",
                    "action",
                    "series",
                    "reportingComponent",
                    "reportingInstance",
                )
            }
            told["source"] = e["source"]
            told["about"] = {k: e["involvedObject"].get(k) for k in ("apiVersion", "kind", "name")}
            out[f"Event {told['about']['name']} {told['reason']}"] = told
    return json.loads(json.dumps(out).replace(ns, "NS"))


def differences(a: object, b: object, path: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        out = []
        for key in sorted(set(a) | set(b)):
            at = f"{path}.{key}" if path else key
            if key not in a:
                out.append(f"{at}: only ours has it: {json.dumps(b[key])[:300]}")
            elif key not in b:
                out.append(f"{at}: only theirs has it: {json.dumps(a[key])[:300]}")
            else:
                out += differences(a[key], b[key], at)
        return out
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, (x, y) in enumerate(zip(a, b)) for d in differences(x, y, f"{path}[{i}]")]
    return [] if a == b else [f"{path}: theirs {json.dumps(a)[:400]}, ours {json.dumps(b)[:400]}"]


def unwanted(found: list[str]) -> list[str]:
    return [
        d
        for d in found
        if not any(re.search(job, d) and re.search(place, d) for job, place, _ in ON_PURPOSE)
    ]


# --- the scene ----------------------------------------------------------------------------
class Scene:
    """One file of jobs under both operators."""

    def __init__(self, file: str):
        self.file = file
        self.spaces = (f"peer-{file}", f"ours-{file}")
        for ns in self.spaces:
            api.namespace(ns)
        log = RUN / "log"
        kubectl("apply", "-n", self.spaces[0], "-f", str(HERE / f"{file}.yaml"))
        kubectl("apply", "-n", self.spaces[1], "-f", str(HERE / f"{file}.yaml"))
        self.operators = [self.peer(self.spaces[0], log)]
        if IS_SELF:
            self.operators.append(self.peer(self.spaces[1], log))
        else:
            own = (
                "--http-port",
                "0",
                "--namespace",
                self.spaces[1],
                *FLAGS[file],
                *os.environ.get("OPERATOR_OPTIONS", "").split(),
            )
            self.operators.append(Operator(BIN / "hvd-operator", CONFIG, log / "differ-ours.log", *own))

    def peer(self, ns: str, log: Path) -> subprocess.Popen:
        # Its port for /healthz is fixed, so it runs in the control plane's network namespace.
        is_inside = ns == self.spaces[0]
        command = ["nsenter", f"--net=/run/netns/{os.environ['NETNS']}"] if is_inside else []
        config = RUN / "inside.kubeconfig" if is_inside else CONFIG
        command += [str(PEER / "mpi-operator"), "--kubeConfig", str(config), "--namespace", ns]
        command += [
            "--lock-namespace",
            ns,
            "--kube-api-qps",
            "1000",
            "--kube-api-burst",
            "1000",
            *FLAGS[self.file],
        ]
        env = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
        with (log / f"differ-{ns}.log").open("ab") as f:
            return subprocess.Popen(command, stdout=f, stderr=f, env=env)

    def stop(self) -> None:
        for o in self.operators:
            process = o.process if isinstance(o, Operator) else o
            process.kill()
            process.wait()

    def jobs(self, ns: str) -> dict[str, dict]:
        return {j["metadata"]["name"]: j for j in api.call("GET", MPIJOBS.format(ns=ns))["items"]}

    def pods(self, ns: str) -> list[dict]:
        found = api.call("GET", LISTS["Pod"].format(ns=ns))["items"]
        return [p for p in found if "deletionTimestamp" not in p["metadata"]]

    def play(
        self, want: str, names: list[str] | None = None, launchers: bool = True, workers: bool = True
    ) -> None:
        """Each pod that is not over becomes Running, Succeeded or Failed."""
        for ns in self.spaces:
            for p in self.pods(ns):
                meta = p["metadata"]
                job = meta["labels"].get("training.kubeflow.org/job-name", "")
                is_launcher = any(r["kind"] == "Job" for r in meta.get("ownerReferences", []))
                chosen = (names is None or job in names) and (launchers if is_launcher else workers)
                if chosen and p["status"].get("phase") not in (want, "Succeeded", "Failed"):
                    self.set_pod(ns, p, want)

    @staticmethod
    def set_pod(ns: str, pod: dict, phase: str) -> None:
        at = "2026-01-01T00:00:00Z"
        code = {"Succeeded": 0, "Failed": 3}.get(phase)
        ended = {"exitCode": code, "reason": "Completed", "startedAt": at, "finishedAt": at}
        state = {"running": {"startedAt": at}} if code is None else {"terminated": ended}
        is_ready = phase == "Running"
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(is_ready)}]}
        status["containerStatuses"] = [
            {
                "name": c["name"],
                "ready": is_ready,
                "restartCount": 0,
                "image": "i",
                "imageID": "",
                "state": state,
            }
            for c in pod["spec"]["containers"]
        ]
        try:
            api.patch_pod(ns, pod["metadata"]["name"], status)
        except Refused as e:  # it has gone meanwhile
            if e.code != 404:
                raise

    def edit(self, name: str, spec: dict) -> None:
        for ns in self.spaces:
            api.patch(MPIJOBS.format(ns=ns) + f"/{name}", {"spec": spec})

    def alike(self, what: str, expected) -> None:
        """expected(jobs by name, pods) of the peer's namespace: is the step done there?"""
        theirs = self.spaces[0]
        wait(f"{what}, by the peer", lambda: expected(self.jobs(theirs), self.pods(theirs)), 60)
        seen: list[str] = []

        def equal() -> bool:
            seen[:] = unwanted(differences(*[world(ns) for ns in self.spaces]))
            return not seen

        try:
            wait(what, equal, 20)
        except AssertionError:
            raise AssertionError("\n".join([f"{what}: {len(seen)} differences", *seen])) from None


def kubectl(*args: str) -> None:
    done = subprocess.run(
        [KUBECTL, "--kubeconfig", str(CONFIG), *args], capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise AssertionError(done.stderr)


def kinds_are_served() -> bool:
    try:
        return bool(world("default") or True)
    except Refused:
        return False


def has(jobs: dict, name: str, kind: str, status: str = "True") -> bool:
    return name not in jobs or condition(jobs[name].get("status", {}), kind).get("status") == status


QUIET = ("elsewhere", "no-replicas")  # jobs that have no pods
SUSPENDED = ("suspended", "gang-given")


def workers(pods: list[dict], job: str) -> int:
    return sum(p["metadata"]["name"].startswith(f"{job}-worker-") for p in pods)


def wanted_workers(job: dict) -> int:
    return job["spec"]["mpiReplicaSpecs"].get("Worker", {}).get("replicas", 0)


def are_made(jobs: dict, pods: list[dict]) -> bool:
    return all(
        has(jobs, n, "Suspended" if n in SUSPENDED else "Created")
        and (n in SUSPENDED or workers(pods, n) == wanted_workers(j))
        for n, j in jobs.items()
        if n not in QUIET
    )


def all_have(kind: str):
    return lambda jobs, _: all(has(jobs, n, kind) for n in jobs if n not in QUIET)


class Steps:
    """The tests of one file, in this order; each continues from the state of the previous one."""

    def __init__(self, file: str):
        self.file, self.scene = file, None
        for step in (self.made, self.resumed, self.running, self.suspended_again, self.scaled, self.ended):
            suite.add(f"{file}_{step.__name__}", step)

    def made(self) -> None:
        self.scene = Scene(self.file)
        self.scene.alike("made", are_made)

    def resumed(self) -> None:
        for name in SUSPENDED:
            if name in self.scene.jobs(self.scene.spaces[0]):
                self.scene.edit(name, {"runPolicy": {"suspend": False}})
        self.scene.alike(
            "resumed",
            lambda jobs, pods: all(
                n not in jobs or workers(pods, n) == wanted_workers(jobs[n]) for n in SUSPENDED
            ),
        )

    def running(self) -> None:
        def done(jobs: dict, pods: list[dict]) -> bool:
            self.scene.play("Running")
            return all_have("Running")(jobs, pods)

        self.scene.alike("running", done)

    def suspended_again(self) -> None:
        present = [n for n in SUSPENDED if n in self.scene.jobs(self.scene.spaces[0])]
        for name in present:
            self.scene.edit(name, {"runPolicy": {"suspend": True}})
        self.scene.alike(
            "suspended again",
            lambda jobs, pods: all(has(jobs, n, "Suspended") and not workers(pods, n) for n in present),
        )
        for name in present:
            self.scene.edit(name, {"runPolicy": {"suspend": False}})

        def done(jobs: dict, pods: list[dict]) -> bool:
            self.scene.play("Running", present)
            return all(has(jobs, n, "Running") for n in present)

        self.scene.alike("and resumed", done)

    def scaled(self) -> None:
        if "least" not in self.scene.jobs(self.scene.spaces[0]):
            return
        for n in (4, 1):
            self.scene.edit("least", {"mpiReplicaSpecs": {"Worker": {"replicas": n}}})

            def done(jobs: dict, pods: list[dict], n: int = n) -> bool:
                self.scene.play("Running", ["least"])
                return workers(pods, "least") == n and has(jobs, "least", "Running")

            self.scene.alike(f"{n} workers", done)

    def ended(self) -> None:
        try:
            names = [n for n in self.scene.jobs(self.scene.spaces[0]) if n not in QUIET]
            good = [n for n in names if n != "fails"]

            def done(jobs: dict, pods: list[dict]) -> bool:
                self.scene.play("Succeeded", good, workers=False)
                self.scene.play("Failed", ["fails"], workers=False)
                return all(has(jobs, n, "Failed" if n == "fails" else "Succeeded") for n in names)

            self.scene.alike("ended", done)
        finally:
            self.scene.stop()


if __name__ == "__main__":
    PEER = Path(sys.argv[1])
    IS_SELF = "--self" in sys.argv
    files = [a for a in sys.argv[2:] if a != "--self"] or list(FLAGS)
    api = Api(KUBECTL, str(CONFIG))
    kubectl("apply", "--server-side", "-f", str(PEER / "src/manifests/base/kubeflow.org_mpijobs.yaml"))
    kubectl("apply", "-f", str(HERE / "podgroup.yaml"))
    kubectl("apply", "-f", str(PEER / "src/dep-crds/scheduler-plugins/crd.yaml"))
    kubectl("apply", "-k", str(HERE.parents[2] / "manifests/crd"))
    kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    wait("the new kinds are served", kinds_are_served, 60)
    for each in files:
        Steps(each)
    sys.exit(suite.main([]))
