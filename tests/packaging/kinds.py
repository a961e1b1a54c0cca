# SPDX-License-Identifier: Apache-2.0
"""The definitions of both kinds: they explain themselves, and what was stored under earlier ones stays good."""

from __future__ import annotations

import re

import yaml
from api import JOBS, Refused, condition, expect, manifest, wait
from bad_yaml import plain
from common import MANIFESTS, ROOT, api, apply, kubectl, make_namespace, suite, world

OLD = ROOT / "tests/packaging/old"
FILES = {
    "horovodjob": MANIFESTS / "crd/horovodjobs.ringmaster.dev.yaml",
    "mpijob": MANIFESTS / "crd/mpijob/mpijobs.kubeflow.org.yaml",
}


def fields(node: dict, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], dict]]:
    """Every named field below, with its path as kubectl explain wants it."""
    found = []
    for name, child in node.get("properties", {}).items():
        found.append(((*path, name), child))
        found += fields(child, (*path, name))
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            found += fields(node[key], path)
    return found


def schema(kind: str) -> dict:
    version = yaml.safe_load(FILES[kind].read_text())["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]


def both_there() -> None:
    world.installed()
    kubectl("wait", "--for=condition=Established", "--timeout=180s", "crd/mpijobs.kubeflow.org")


@suite.test
def every_field_has_a_description() -> None:
    for kind in FILES:
        bare = [
            ".".join(path)
            for path, node in fields(schema(kind))
            if not node.get("description", "").strip() and path[0] != "metadata"
        ]
        expect(not bare, f"each field of {kind} is described", *bare)
        long = [".".join(p) for p, n in fields(schema(kind)) if len(n.get("description", "")) > 420]
        expect(not long, f"in a few sentences, in {kind}", *long)


def apply_as(manager: str, ns: str, containers: list[dict]) -> None:
    """One container of a job, by server-side apply."""
    body = plain("shared") | {"metadata": {"name": "shared", "namespace": ns}}
    body["spec"]["replicaSpecs"]["Worker"] = {"template": {"spec": {"containers": containers}}}
    args = ("--server-side", f"--field-manager={manager}", "-f", "-")
    kubectl("apply", *args, stdin=yaml.safe_dump(body))


@suite.test
def server_side_apply_shares_the_containers_of_a_job() -> None:
    """Of a suspended job, whose template may change but for its containers: so at its creation."""
    both_there()
    ns = make_namespace("kinds-apply")
    apply_as("one", ns, [{"name": "train", "image": "i", "command": ["x"]}])
    fields = kubectl("get", "hvdjob", "shared", "-n", ns, "-o", "yaml", "--show-managed-fields")
    expect('k:{"name":"train"}' in fields, "a container is owned by its name", fields)


@suite.test
def kubectl_explain_shows_every_field() -> None:
    both_there()
    for kind in FILES:
        whole = wait(f"the API server publishes {kind}", lambda kind=kind: explained(kind), 180)
        shown = re.findall(r"^( +)(\w+)\t<", whole, re.MULTILINE)
        wanted = sorted(p[-1] for p, _ in fields(schema(kind)) if p[0] != "metadata")
        seen = sorted(name for _, name in shown)
        missing = [n for n in wanted if n not in seen]
        expect(not missing, f"explain --recursive {kind} shows them all", str(missing))
        for path in (("spec",), ("spec", "runPolicy", "cleanPodPolicy"), ("status", "conditions")):
            text = kubectl("explain", ".".join((kind, *path)))
            node = next(n for p, n in fields(schema(kind)) if p == path)
            start = " ".join(node["description"].split()[:6])
            expect(start in " ".join(text.split()), f"{kind} {path} is described", text)


def explained(kind: str) -> str:
    try:
        return kubectl("explain", kind, "--recursive")
    except Exception:
        return ""


@suite.test
def an_autoscaler_scales_a_job() -> None:
    """Kubernetes' own, by the scale subresource; below its least it acts without any metric."""
    ns = make_namespace("packaging-autoscaler")
    world.run()
    api.make(ns, plain("grows"))
    wait("two pods", lambda: len(api.pods(ns)) == 2)
    before = api.pods(ns)
    usage = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    spec = {
        "scaleTargetRef": {"apiVersion": "ringmaster.dev/v1beta1", "kind": "HorovodJob", "name": "grows"},
        "minReplicas": 3,
        "maxReplicas": 5,
        "metrics": [{"type": "Resource", "resource": usage}],
    }
    apply(manifest("autoscaling/v2", "HorizontalPodAutoscaler", "grows", spec=spec), ns=ns)
    wait("a third pod", lambda: "grows-worker-2" in api.pods(ns), 180)
    kept = {name: uid for name, uid in api.pods(ns).items() if name in before}
    expect(kept == before, "the existing pods are kept", kept, before)
    path = f"/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers/grows"

    def able() -> dict:
        return condition(api.call("GET", path).get("status", {}), "AbleToScale")

    wait("the autoscaler is content", lambda: able().get("status") == "True", 180)
    scale = api.call("GET", JOBS.format(ns=ns) + "/grows/scale")
    chosen = kubectl("get", "pods", "-n", ns, "-l", scale["status"]["selector"], "-o", "name").split()
    expect(len(chosen) == 3, "its selector names the workers", scale, chosen)


# --- what is stored stays good ----------------------------------------------------------
POD = {"spec": {"containers": [{"name": "train", "image": "i", "command": ["c"]}]}}
WAITING = {"spec": {"containers": [{"name": "train", "image": "i"}]}}
# Jobs as they were written for the definition of that landing, one for each of its fields' forms.
FIRST = {
    "plain": {"replicaSpecs": {"Worker": {"template": POD}}},
    "full": {
        "slotsPerWorker": 4,
        "runPolicy": {"cleanPodPolicy": "All"},
        "replicaSpecs": {"Worker": {"replicas": 3, "template": POD}},
    },
    "kept": {
        "runPolicy": {"cleanPodPolicy": "None"},
        "replicaSpecs": {"Worker": {"replicas": 1, "template": POD}},
    },
}
SECOND = FIRST | {
    "policy": {
        "slotsPerWorker": 2,
        "successPolicy": "AllWorkers",
        "shmSize": "1Gi",
        "rdma": {"resourceName": "rdma/a", "count": 2},
        "runPolicy": {
            "activeDeadlineSeconds": 3600,
            "backoffLimit": 3,
            "ttlSecondsAfterFinished": 60,
            "managedBy": "ringmaster.dev/hvd-operator",
            "schedulingPolicy": {"gang": "none", "minAvailable": 2},
            "failureRules": [
                {"action": "Fail", "onExitCodes": {"operator": "NotIn", "values": [1, 255]}},
                {"action": "Restart", "onSignals": ["SIGKILL", 9]},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                {"action": "Ignore", "onReasons": ["Evicted"]},
            ],
        },
        "horovod": {
            "fusionThresholdMB": 64, "cycleTimeMs": 1, "cacheCapacity": 1024, "autotune": True,
            "autotuneLogFile": "/tmp/a.csv", "hierarchicalAllreduce": True, "hierarchicalAllgather": False,
            "timelineFilename": "/tmp/t.json", "timelineMarkCycles": True, "stallCheckDisable": False,
            "stallCheckWarningTimeSeconds": 60, "stallCheckShutdownTimeSeconds": 600, "logLevel": "debug",
            "startTimeoutSeconds": 600, "peerTimeoutSeconds": 30, "metricsPort": 9400,
        },
        "replicaSpecs": {"Worker": {"replicas": 2, "template": POD}},
    },
    "launched": {
        "successPolicy": "Launcher",
        "replicaSpecs": {"Launcher": {"template": POD}, "Worker": {"replicas": 2, "template": WAITING}},
    },
    "tasks": {
        "framework": "tensorflow",
        "successPolicy": "Worker0",
        "replicaSpecs": {
            "Chief": {"template": POD},
            "PS": {"replicas": 2, "template": POD},
            "Evaluator": {"template": POD},
            "Worker": {"replicas": 2, "template": POD},
        },
    },
}  # fmt: skip
PLACED = {
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "schedulingGates": [{"name": "example.com/gate"}],
}
THIRD = SECOND | {
    "placed": {
        "managedBy": "ringmaster.dev/hvd-operator",
        "replicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": POD["spec"] | PLACED}}},
    },
}
STORED = {"2026-11-first": FIRST, "2026-11-second": SECOND, "2026-11-third": THIRD}


def stored_job(name: str, spec: dict) -> dict:
    return manifest("ringmaster.dev/v1beta1", "HorovodJob", name, spec=spec)


@suite.test
def every_earlier_definition_has_jobs() -> None:
    files = sorted(f.stem for f in OLD.glob("*.yaml"))
    expect(files == sorted(STORED), "a set of jobs for each file of old/", str(files))
    for stem, jobs in STORED.items():
        version = yaml.safe_load((OLD / f"{stem}.yaml").read_text())["spec"]["versions"][0]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        told = {".".join(p) for job in jobs.values() for p in said(job)}
        unsaid = [".".join(p) for p, _ in fields(spec) if len(p) < 3 and ".".join(p) not in told]
        expect(set(unsaid) <= UNSAID, f"the jobs of {stem} have every field", *sorted(set(unsaid) - UNSAID))


UNSAID = {"runPolicy.suspend"}  # such a job has no pods; the state is in upgrade.py


def said(node: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(node, dict):
        return [path]
    return [path] + [p for key, child in node.items() for p in said(child, (*path, key))]


@suite.test
def jobs_stored_under_earlier_definitions_are_served_changed_and_run() -> None:
    world.installed()
    for file in sorted(OLD.glob("*.yaml")):
        world.stop()
        ns = make_namespace(f"packaging-{file.stem}")
        kubectl("delete", "horovodjobs", "--all", "-A")
        kubectl("apply", "-f", str(file))
        wait("the earlier definition is in force", lambda file=file: is_in_force(file.read_text()), 180)
        jobs = STORED[file.stem]
        before = {name: api.make(ns, stored_job(name, spec)) for name, spec in jobs.items()}
        kubectl("apply", "-k", str(MANIFESTS / "crd"))
        now = FILES["horovodjob"].read_text()
        wait("the present definition is in force", lambda now=now: is_in_force(now), 180)
        world.run()
        for name, was in before.items():
            job = api.get(ns, "horovodjobs", name)
            expect(is_within(was["spec"], job["spec"]), f"{name} is as it was", job["spec"], was["spec"])
            wanted = sum(role.get("replicas", 1) for role in jobs[name]["replicaSpecs"].values())
            wait(f"pods of {name}", lambda ns=ns, name=name, n=wanted: len(pods_of(ns, name)) == n)
            wait(
                f"status of {name}", lambda ns=ns, name=name: api.status(ns, name).get("state") == "Pending"
            )
            apply(stored_job(name, jobs[name]), ns=ns)
            at = JOBS.format(ns=ns) + "/" + name
            api.patch(at, {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}})
            api.patch(at, {"metadata": {"labels": {"a": "b"}}})
            try:
                api.patch(at, {"spec": {"slotsPerWorker": 9}})
                raise AssertionError("slotsPerWorker was changed")
            except Refused as e:
                expect("cannot be changed" in str(e), "still fixed", str(e))


def is_within(small, big) -> bool:
    """Whether big has all of small; it may have new fields, with their defaults."""
    if isinstance(small, dict):
        return isinstance(big, dict) and all(k in big and is_within(v, big[k]) for k, v in small.items())
    return small == big


def pods_of(ns: str, job: str) -> list[str]:
    return [n for n in api.pods(ns) if n.startswith(f"{job}-")]


def is_in_force(text: str) -> bool:
    """What the API server publishes has the fields of this definition and no others."""
    wanted = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    served = api.call("GET", "/openapi/v3/apis/ringmaster.dev/v1beta1")["components"]["schemas"]
    seen = served.get("dev.ringmaster.v1beta1.HorovodJob", {})
    return all(
        sorted(p for p, _ in fields(wanted["properties"][part]))
        == sorted(p for p, _ in fields(seen.get("properties", {}).get(part, {})))
        for part in ("spec", "status")
    )
