# SPDX-License-Identifier: Apache-2.0
"""Our definition of MPIJob beside mpi-operator's: the same objects, in a group of its own for theirs."""

from __future__ import annotations

import copy
import json
import re

import yaml
from api import Refused, expect, manifest, wait
from common import MANIFESTS, PEER, api, kubectl, make_namespace, suite, text_of, world

NS = "packaging-mpijob"
THEIRS = "peer.example"
THEIR_FILE = PEER / "src/manifests/base/kubeflow.org_mpijobs.yaml"


def path(group: str, name: str = "", sub: str = "") -> str:
    return f"/apis/{group}/v2beta1/namespaces/{NS}/mpijobs{'/' + name if name else ''}{sub}"


def pod(**spec) -> dict:
    return {"spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def mpijob(**spec) -> dict:
    roles = {"Launcher": {"replicas": 1, "template": pod()}, "Worker": {"replicas": 2, "template": pod()}}
    return {"spec": {"mpiReplicaSpecs": roles, **spec}}


def roles(launcher: dict | None = None, worker: dict | None = None, **more: dict) -> dict:
    found = {"Launcher": launcher, "Worker": worker, **more}
    return {"spec": {"mpiReplicaSpecs": {k: v for k, v in found.items() if v is not None}}}


PORT = {"containerPort": 22, "name": "ssh", "protocol": "TCP"}
POLICY = {
    "cleanPodPolicy": "Running",
    "ttlSecondsAfterFinished": 60,
    "activeDeadlineSeconds": 3600,
    "backoffLimit": 2,
    "suspend": True,
    "managedBy": "kueue.x-k8s.io/multikueue",
    "schedulingPolicy": {
        "minAvailable": 3,
        "queue": "q",
        "minResources": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": "2"},
        "priorityClass": "p",
        "scheduleTimeoutSeconds": 30,
    },
}
META = {
    "name": "n",
    "namespace": "s",
    "labels": {"a": "b"},
    "annotations": {"c": "d"},
    "finalizers": ["e/f"],
}
SAME = {
    "only what must be": roles({"template": pod()}),
    "every field": mpijob(
        slotsPerWorker=4, runLauncherAsWorker=True, sshAuthMountPath="/keys/.ssh",
        launcherCreationPolicy="WaitForWorkersReady", mpiImplementation="Intel", runPolicy=POLICY,
    ),
    "MPICH": mpijob(mpiImplementation="MPICH"),
    "no slots": mpijob(slotsPerWorker=0),
    "negative slots": mpijob(slotsPerWorker=-1),
    "slots beyond 32 bits": mpijob(slotsPerWorker=1 << 40),
    "slots as text": mpijob(slotsPerWorker="2"),
    "slots null": mpijob(slotsPerWorker=None),
    "an unknown creation policy": mpijob(launcherCreationPolicy="Later"),
    "an unknown MPI": mpijob(mpiImplementation="LAM"),
    "an unknown clean-up": mpijob(runPolicy={"cleanPodPolicy": "Some"}),
    "an empty run policy": mpijob(runPolicy={}),
    "no run policy": mpijob(runPolicy=None),
    "a deadline of 0": mpijob(runPolicy={"activeDeadlineSeconds": 0}),
    "a negative deadline": mpijob(runPolicy={"activeDeadlineSeconds": -5}),
    "a retry limit beyond 32 bits": mpijob(runPolicy={"backoffLimit": 1 << 33}),
    "an unknown manager": mpijob(runPolicy={"managedBy": "me"}),
    "suspend as text": mpijob(runPolicy={"suspend": "yes"}),
    "a bad quantity": mpijob(runPolicy={"schedulingPolicy": {"minResources": {"cpu": "much"}}}),
    "odd quantities": mpijob(
        runPolicy={"schedulingPolicy": {"minResources": {"cpu": "1e3", "m": "+1.5Gi", "x": ".5"}}}
    ),
    "an empty mount path": mpijob(sshAuthMountPath=""),
    "no roles": {"spec": {}},
    "no spec": {},
    "roles null": {"spec": {"mpiReplicaSpecs": None}},
    "no role in roles": {"spec": {"mpiReplicaSpecs": {}}},
    "a role of another name": roles({"template": pod()}, Chief={"replicas": 3}),
    "an empty role": roles({}, {}),
    "no pods": roles({"replicas": 0, "template": pod()}),
    "negative pods": roles({"replicas": -1, "template": pod()}),
    "pods as text": roles({"replicas": "1", "template": pod()}),
    "a restart policy": roles({"restartPolicy": "ExitCode", "template": pod(restartPolicy="Always")}),
    "metadata of pods": roles({"template": {"metadata": META, **pod()}}),
    "labels as a list": roles({"template": {"metadata": {"labels": ["a"]}, **pod()}}),
    "a template as text": roles({"template": "pod"}),
    "a pod in full": roles(
        {
            "template": pod(
                initContainers=[{"name": "i", "image": "i", "restartPolicy": "Always"}],
                containers=[
                    {
                        "name": "c", "image": "i", "command": ["mpirun"], "args": ["-n", "2"], "ports": [PORT],
                        "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "securityContext": {"runAsUser": 1000, "capabilities": {"add": ["SYS_PTRACE"]}},
                    }
                ],
                volumes=[{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
                nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}], hostNetwork=True,
                affinity={"podAntiAffinity": {}}, schedulerName="volcano", priorityClassName="p",
                schedulingGates=[{"name": "g/h"}], resourceClaims=[{"name": "r", "resourceClaimName": "x"}],
            )
        }
    ),
    "an unknown field": mpijob(slotsPerWorkr=2),
    "an unknown field of the run policy": mpijob(runPolicy={"cleanPodsPolicy": "All"}),
}  # fmt: skip
STATUS = {
    "conditions": [
        {
            "type": "Created", "status": "True", "reason": "MPIJobCreated", "message": "m",
            "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
        {"type": "Running", "status": "Unknown"},
    ],
    "replicaStatuses": {
        "Launcher": {"active": 1, "succeeded": 2, "failed": 3, "selector": "a=b"},
        "Worker": {
            "labelSelector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
            }
        },
    },
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:00:00Z",
    "lastReconcileTime": "2026-01-01T00:00:00Z",
}  # fmt: skip


def both_there() -> None:
    world.installed()
    make_namespace(NS)
    kubectl("apply", "-k", str(MANIFESTS / "crd/mpijob"))
    crd = yaml.safe_load(THEIR_FILE.read_text())
    crd["metadata"]["name"] = f"mpijobs.{THEIRS}"
    crd["spec"]["group"] = THEIRS
    kubectl("apply", "--server-side", "-f", "-", stdin=text_of([crd]))
    for group in ("kubeflow.org", THEIRS):
        kubectl("wait", "--for=condition=Established", "--timeout=180s", f"crd/mpijobs.{group}")
        wait(f"mpijobs of {group}", lambda group=group: is_served(group), 180)


def is_served(group: str) -> bool:
    """A definition is established some moments before its objects can be stored."""
    try:
        return api.call("GET", path(group))["items"] == []
    except Refused:
        return False


def outcome(group: str, body: dict) -> dict | str:
    """What is stored of it; or which fields the refusal names."""
    body = copy.deepcopy(body) | {"apiVersion": f"{group}/v2beta1", "kind": "MPIJob"}
    body["metadata"] = {"name": "j"}
    try:
        made = api.call("POST", path(group) + "?fieldValidation=Strict", body)
    except Refused as e:
        expect(e.code in (400, 422), "refused as wrong", str(e))
        return re.sub(r"should match '.*'", "should match", str(e)).replace(group, "GROUP")
    api.call("DELETE", path(group, "j"))
    wait("it is gone", lambda: not api.call("GET", path(group))["items"])
    return without_nulls({k: v for k, v in made.items() if k not in ("metadata", "apiVersion")})


def without_nulls(tree):
    """Ours keeps them in pod templates; in a pod the API server takes null for absent."""
    if isinstance(tree, list):
        return [without_nulls(x) for x in tree]
    if isinstance(tree, dict):
        return {k: without_nulls(v) for k, v in tree.items() if v is not None}
    return tree


@suite.test
def our_mpijobs_are_mpi_operator_s() -> None:
    both_there()
    wrong, refused = [], 0
    for what, body in SAME.items():
        ours, theirs = outcome("kubeflow.org", body), outcome(THEIRS, body)
        refused += isinstance(ours, str)
        if ours != theirs:
            wrong.append(f"{what}: ours {json.dumps(ours)}, theirs {json.dumps(theirs)}")
    expect(not wrong, "the same is stored, or refused in the same words", *wrong)
    expect(8 < refused < len(SAME) / 2, "some are refused", str(refused))


@suite.test
def mpi_operator_s_examples_are_stored_the_same() -> None:
    count = 0
    for file in sorted((PEER / "src/examples").rglob("*.yaml")):
        for body in yaml.safe_load_all(file.read_text()):
            if not body or body.get("apiVersion") != "kubeflow.org/v2beta1":
                continue
            count += 1
            ours, theirs = outcome("kubeflow.org", body), outcome(THEIRS, body)
            expect(ours == theirs, f"{file.name} is stored the same", str(ours), str(theirs))
            expect(isinstance(ours, dict), f"{file.name} is accepted", str(ours))
    expect(count > 4, "there are examples", str(count))


@suite.test
def an_mpijob_s_status_is_kept_whole() -> None:
    kept = []
    for group in ("kubeflow.org", THEIRS):
        api.call("POST", path(group), manifest(f"{group}/v2beta1", "MPIJob", "s", **mpijob()))
        patched = api.patch(path(group, "s", "/status"), {"status": STATUS})
        expect(patched["status"] == STATUS, "all of it is kept", patched["status"])
        kept.append(patched["status"])
        try:
            bad = {"status": {"conditions": [{"type": "Created", "status": "Maybe"}]}}
            api.patch(path(group, "s", "/status"), bad)
            raise AssertionError("a status that is none was taken")
        except Refused as e:
            expect("Unsupported value" in str(e), "refused", str(e))
        api.call("DELETE", path(group, "s"))
    ours, theirs = (
        next(
            c["spec"]
            for c in api.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
            if c["spec"]["group"] == group
        )
        for group in ("kubeflow.org", THEIRS)
    )
    expect(ours["names"] == theirs["names"] and ours["scope"] == theirs["scope"], "names", ours, theirs)
    expect(len(ours["versions"]) == 1, "one version")
    for key in ("name", "served", "storage", "subresources"):
        expect(ours["versions"][0][key] == theirs["versions"][0][key], key)


@suite.test
def plain_kubectl_apply_takes_our_mpijob() -> None:
    """Its limit is an annotation with the whole object."""
    for file in (MANIFESTS / "crd").rglob("*jobs*.yaml"):
        size = len(json.dumps(yaml.safe_load(file.read_text())))
        expect(size < 262144 / 2, f"{file.name} is small", str(size))
