# SPDX-License-Identifier: Apache-2.0
"""Every example is a good one: it says what it is, the API server takes it, the operator makes its pods."""

from __future__ import annotations

import json

from api import CORE, expect, wait
from common import MANIFESTS, Failed, api, kubectl, make_namespace, read, suite, world

FILES = sorted((MANIFESTS / "examples").glob("*.yaml"))
KINDS = {"HorovodJob": "horovodjobs", "MPIJob": "mpijobs"}


@suite.test
def every_example_has_a_description() -> None:
    readme = (MANIFESTS / "README.md").read_text()
    names: list[str] = []
    for file in FILES:
        text = file.read_text()
        head = text[: text.index("apiVersion")]
        lines = head.splitlines()
        expect(lines[0] == "# SPDX-License-Identifier: Apache-2.0", f"{file.name}: license")
        expect(len(lines) > 4 and all(x.startswith("#") for x in lines), f"{file.name}: a comment", head)
        expect("kubectl apply -f" in head and file.name in head, f"{file.name}: how to apply it", head)
        expect("kubectl logs" in head or "kubectl get" in head, f"{file.name}: how to look at it", head)
        expect(f"`{file.name}`" in readme, f"{file.name} is in manifests/README.md")
        jobs = [o for o in read(text) if o["kind"] in KINDS]
        expect(len(jobs) == 1, f"{file.name}: one job")
        names += [o["metadata"]["name"] for o in jobs]
    expect(len(set(names)) == len(names), "no two jobs of one name", str(names))


def roles(job: dict) -> dict[str, int]:
    """Pods that the operator is to make itself, by the ends of their names."""
    if job["kind"] == "MPIJob":
        return {"worker": job["spec"]["mpiReplicaSpecs"].get("Worker", {}).get("replicas", 0)}
    if job["spec"].get("runPolicy", {}).get("suspend"):
        return {}
    return {r.lower(): s.get("replicas", 1) for r, s in job["spec"]["replicaSpecs"].items()}


@suite.test
def the_operator_makes_the_pods_of_every_example() -> None:
    world.run()
    wanted: dict[str, set[str]] = {}
    for file in FILES:
        ns = make_namespace(f"example-{file.stem}")
        job = next(o for o in read(file.read_text()) if o["kind"] in KINDS)
        name = job["metadata"]["name"]
        if "enforce=restricted" in file.read_text():
            kubectl(
                "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted", "--overwrite"
            )
        try:
            kubectl("delete", "--ignore-not-found", "-n", ns, "-f", str(file))
            kubectl("apply", "-n", ns, "--validate=strict", "-f", str(file))
        except Failed as e:
            raise AssertionError(f"{file.name}: {e}") from None
        wanted[ns] = {f"{name}-{role}-{i}" for role, n in roles(job).items() for i in range(n)}
        if job["kind"] == "MPIJob":
            path = f"/apis/batch/v1/namespaces/{ns}/jobs/{name}-launcher"
            wait(f"{file.name}: the launcher's Job", lambda path=path: api.find(path))
    for ns, names in wanted.items():
        wait(f"{ns}: pods", lambda ns=ns, names=names: names <= set(api.pods(ns)) or complaint(ns))
        expect(not complaint(ns), f"{ns}: no warning", complaint(ns))
        others = {n for n in api.pods(ns) if n not in names and "-launcher-" not in n}
        expect(not others, f"{ns}: no other pods", str(others))


@suite.test
def policies_of_the_examples_are_for_the_pods_of_jobs() -> None:
    for file in FILES:
        ns = f"example-{file.stem}"
        for policy in (o for o in read(file.read_text()) if o["kind"] == "NetworkPolicy"):
            rules = policy["spec"]["podSelector"]["matchExpressions"]
            keys = [r["key"] for r in rules if r["operator"] == "Exists"]
            for pod in api.items(ns, "pods"):
                expect(set(keys) <= set(pod["metadata"]["labels"]), f"{file.name}: is for", pod["metadata"])
            expect(len(keys) == len(rules) > 0 and api.items(ns, "pods"), f"{file.name}: some pods")


@suite.test
def a_pod_has_a_rank_for_each_of_its_gpus() -> None:
    seen = 0
    for file in FILES:
        for pod in api.items(f"example-{file.stem}", "pods"):
            first = pod["spec"]["containers"][0]
            gpus = first.get("resources", {}).get("limits", {}).get("nvidia.com/gpu")
            slots = {e["name"]: e.get("value") for e in first.get("env", [])}.get("HVD_SLOTS_PER_WORKER")
            expect(gpus is None or gpus == slots, f"{file.name}: {gpus} GPUs, {slots} ranks")
            seen += gpus is not None
    expect(seen >= 4, "some pods have GPUs", str(seen))


def complaint(ns: str) -> str:
    """Warnings of the operator, and what the status says of a job that failed. There is no scheduler: a test
    that takes more than half a minute sees that pods wait for it."""
    bad = [
        f"{e['reason']}: {e['message']}"
        for e in api.call("GET", CORE.format(ns=ns) + "events")["items"]
        if e["type"] == "Warning"
        and e["involvedObject"]["kind"] in KINDS
        and e["reason"] != "PodsNotScheduled"
    ]
    failed = [
        j["status"] for j in api.items(ns, "horovodjobs") if j.get("status", {}).get("state") == "Failed"
    ]
    return "\n".join(bad + [json.dumps(s) for s in failed])
