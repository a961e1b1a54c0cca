#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time of hvd-operator per event of objects that are as large as users can make them, on the fake API
server of tests/operator. The generator fills one field after the other until the object is near the limit of the
API server, or the spec near that of the operator (OBJECT_MAX_SPEC).
usage: BIN=FOLDER operator_events.py [--check] [FIELD...]

An event is a change of an annotation: the job is read, stored, decided about and, where the status changed, written.
A pod's event is a change of the pod. `create` is all work for a new job, with the creation of its pods. --check
fails if an event takes more than 50 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "operator"))
from api import Late
from fake_world import OPEN, World, mpijob

N = 7
LIMIT_MS = 50
SPEC = 191 << 10  # below OBJECT_MAX_SPEC
OBJECT = 1400 << 10  # etcd refuses requests from 1.5 MiB on


def many(size: int, entry, each: int) -> list:
    return [entry(i) for i in range(size // each)]


def named(prefix: str, size: int, each: int) -> dict:
    return {f"{prefix}{i:06}": "v" for i in range(size // each)}


def container(job: dict) -> dict:
    return template(job)["spec"]["containers"][0]


def template(job: dict) -> dict:
    spec = job["spec"]
    return (spec.get("replicaSpecs") or spec.get("mpiReplicaSpecs"))["Worker"]["template"]


def in_container(key: str, value):
    def fill(job: dict, size: int) -> None:
        container(job)[key] = value(size)

    return fill


def in_pod(key: str, value):
    def fill(job: dict, size: int) -> None:
        template(job)["spec"][key] = value(size)

    return fill


def in_template_metadata(key: str):
    def fill(job: dict, size: int) -> None:
        template(job)["metadata"] = {key: named("l", size, 17)}

    return fill


def annotations(job: dict, _: int) -> None:
    job["metadata"]["annotations"] = named(
        "a", 256 << 10, 10
    )  # the API server's limit of all, without JSON


def labels(job: dict, _: int) -> None:
    job["metadata"]["labels"] = named("l", OBJECT, 17)


def managed(job: dict, _: int) -> None:
    fields = {f"f:a{i}": {} for i in range(OBJECT // 16)}
    job["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": fields}}]


def rules(job: dict, _: int) -> None:
    codes = {"operator": "In", "values": list(range(1, 255))}
    job["spec"]["runPolicy"] = {
        "podFailurePolicy": {"rules": [{"action": "Fail", "onExitCodes": codes}] * 20}
    }


def workers(n: int):
    def fill(job: dict, _: int) -> None:
        sets = job["spec"].get("replicaSpecs") or job["spec"]["mpiReplicaSpecs"]
        sets["Worker"]["replicas"] = n

    return fill


FIELDS = {
    "small": lambda job, size: None,
    "metadata.annotations": annotations,
    "metadata.labels": labels,
    "metadata.managedFields": managed,
    "env": in_container("env", lambda n: many(n, lambda i: {"name": f"V{i:06}", "value": "v"}, 33)),
    "env of the operator": in_container("env", lambda n: many(n, lambda i: {"name": "HOROVOD_X"}, 21)),
    "args, one": in_container("args", lambda n: ["x" * n]),
    "args, many": in_container("args", lambda n: ["a"] * (n // 5)),
    "args, escaped": in_container("args", lambda n: ["\u0001" * (n // 6)]),
    "ports": in_container("ports", lambda n: many(n, lambda i: {"containerPort": i + 1}, 25)),
    "volumeMounts": in_container(
        "volumeMounts", lambda n: many(n, lambda i: {"name": "v", "mountPath": f"/{i:06}"}, 40)
    ),
    "resources": in_container("resources", lambda n: {"limits": named("x.y/", n, 17)}),
    "volumes": in_pod("volumes", lambda n: many(n, lambda i: {"name": f"v{i:06}"}, 20)),
    "containers": lambda job, n: template(job)["spec"]["containers"].extend(
        many(n, lambda i: {"name": f"c{i:06}", "image": "i"}, 34)
    ),
    "initContainers": in_pod(
        "initContainers", lambda n: many(n, lambda i: {"name": f"c{i:06}", "image": "i"}, 34)
    ),
    "nodeSelector": in_pod("nodeSelector", lambda n: named("l", n, 17)),
    "tolerations": in_pod("tolerations", lambda n: many(n, lambda i: {"key": f"k{i:06}"}, 20)),
    "resourceClaims": in_pod("resourceClaims", lambda n: many(n, lambda i: {"name": f"c{i:06}"}, 20)),
    "unknown, empty arrays": in_pod("strange", lambda n: [[]] * min(n // 4, 60000)),
    "labels of pods": in_template_metadata("labels"),
    "annotations of pods": in_template_metadata("annotations"),
    "rules": rules,
    "1000 workers": workers(1000),
    "8192 workers": workers(8192),
}


def cpu_ns(w: World) -> int:
    return int(Path(f"/proc/{w.operator.process.pid}/schedstat").read_text().split()[0])


def settle(w: World, timeout: float = 300) -> None:
    """Until it has used no processor time for 0.3 s."""
    last, since, end = cpu_ns(w), time.monotonic(), time.monotonic() + timeout
    while time.monotonic() < end:
        time.sleep(0.05)
        now = cpu_ns(w)
        if now - last > 200_000:
            since = time.monotonic()
        last = now
        if time.monotonic() - since > 0.3:
            return
    raise Late("the operator did not come to rest")


def per_event_ms(w: World, change) -> float:
    took = []
    for i in range(N):
        before = cpu_ns(w)
        change(i)
        settle(w)
        took.append((cpu_ns(w) - before) / 1e6)
    return statistics.median(took)


def measure(field: str, plural: str) -> tuple[float, float, float]:
    """Milliseconds of creation, of an event of the job, and of one of a pod."""
    fill = FIELDS[field]
    with World(jobs=0, extra=[*OPEN, "--kube-api-qps", "5000", "--kube-api-burst", "5000"]) as w:
        settle(w)
        job = json.loads(
            json.dumps(World.job("j0") if plural == "horovodjobs" else mpijob("j0"))
        )  # no shared parts
        fill(job, SPEC - 2000)
        before = cpu_ns(w)
        w.fake.put(plural, job)
        settle(w)
        create = (cpu_ns(w) - before) / 1e6

        def change_job(i: int) -> None:
            now = w.get(plural, "j0")
            now["metadata"].setdefault("annotations", {})["n"] = str(i)
            w.fake.put(plural, now)

        def change_pod(i: int) -> None:
            w.set_pod("j0-worker-0", phase="Running" if i % 2 else "Pending")

        event = per_event_ms(w, change_job)
        has_pods = "ns/j0-worker-0" in w.fake.objects["pods"]
        return create, event, per_event_ms(w, change_pod) if has_pods else 0.0


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    p.add_argument("fields", nargs="*")
    a = p.parse_args()
    slow = []
    print(
        "| field, near its limit | kind | create, ms | event, ms | pod's event, ms |\n|---|---|---:|---:|---:|"
    )
    for field in a.fields or FIELDS:
        for plural in ("horovodjobs", "mpijobs"):
            create, event, pod = measure(field, plural)
            print(f"| {field} | {plural[:-1]} | {create:.1f} | {event:.1f} | {pod:.1f} |", flush=True)
            if max(event, pod) > LIMIT_MS:
                slow.append(f"{field} of {plural}: {max(event, pod):.1f} ms")
    for text in slow:
        print(f"above {LIMIT_MS} ms: {text}", file=sys.stderr)
    return 1 if slow and a.check else 0


if __name__ == "__main__":
    sys.exit(main())
