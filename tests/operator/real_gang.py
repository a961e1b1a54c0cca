# SPDX-License-Identifier: Apache-2.0
"""PodGroups on a real API server, under the rights of manifests/overlays/gang; part of real_test.py.
The schedulers are not there, only their definitions: that of Volcano as far as an operator
writes it, and the same under the name of scheduler-plugins.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from api import JOBS, ended, expect, wait
from real_world import all_there, api, job, rival, running, state, suite

ROOT = Path(__file__).resolve().parents[2]
VOLCANO = "scheduling.volcano.sh", "v1beta1"
PLUGINS = "scheduling.x-k8s.io", "v1alpha1"


def install() -> None:
    """What a cluster with both schedulers has, and the operator's rights there."""
    text = (ROOT / "tests/operator/upstream/podgroup.yaml").read_text()
    approved = 'metadata: {annotations: {api-approved.kubernetes.io: "unapproved, a test"}, '
    other = (
        text.replace("metadata: {", approved)
        .replace(VOLCANO[0], PLUGINS[0])
        .replace(*(v[1] for v in (VOLCANO, PLUGINS)))
    )
    kinds = f"{text}\n---\n{other}"
    subprocess.run([*api.kubectl, "apply", "-f", "-"], input=kinds, text=True, check=True, timeout=60)
    for group, _ in VOLCANO, PLUGINS:
        crd = f"crd/podgroups.{group}"
        api.administer("wait", "--for=condition=Established", "--timeout=30s", crd)
    for file in "clusterrole", "clusterrolebinding":
        api.administer("apply", "-f", str(ROOT / f"manifests/overlays/gang/{file}.yaml"))


def follows(ns: str, scheduler: str, group: str, version: str) -> None:
    path = f"/apis/{group}/{version}/namespaces/{ns}/podgroups/j"

    def members() -> int | None:
        group = api.find(path)
        return group and group["spec"]["minMember"]

    options = ["--http-port", "0", f"--gang-scheduling={scheduler}"]
    api.namespace(ns)
    op = rival(*options)
    api.make(ns, job())
    all_there(ns, 2)
    expect(members() == 2, "a group of two", str(members()))
    owner = api.call("GET", path)["metadata"]["ownerReferences"][0]
    expect(owner["kind"] == "HorovodJob", "it is the job's", owner)
    op.kill()  # the next one does not know that it is there, and whose
    api.delete(ns, "pods", "j-worker-1", grace=0)
    op = rival(*options)
    all_there(ns, 2)
    scale = {"spec": {"replicaSpecs": {"Worker": {"replicas": 3}}}}
    api.patch(JOBS.format(ns=ns) + "/j", scale)
    pods = all_there(ns, 3)
    expect(members() == 3, "a group of three", str(members()))
    running(ns, 3)
    state(ns, "Running")
    for pod in pods:
        api.set_pod(ns, pod, "Succeeded", **ended(0, reason="Completed"))
    state(ns, "Succeeded")
    wait("the group gives its place back", lambda: members() is None)
    expect(op.stop() == 0, "a good end")


@suite.test
def a_pod_group_of_volcano_follows_its_job() -> None:
    install()
    follows("t-gang-volcano", "volcano", *VOLCANO)


@suite.test
def a_pod_group_of_scheduler_plugins_follows_its_job() -> None:
    install()
    follows("t-gang-plugins", "my-scheduler", *PLUGINS)
