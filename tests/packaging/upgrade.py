# SPDX-License-Identifier: Apache-2.0
"""A new operator takes over jobs in every state, and touches none of them.

As a program, `upgrade.py DEFINITION OUT` writes what BIN's operator makes of jobs, under that definition of theirs;
the last test puts that back. It needs a cluster at RM_RUN (tests/cluster/up --control-plane-only) and PYTHONPATH and
variables as in run.sh.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from api import CORE, JOBS, Refused, condition, ended, expect, wait
from bad_yaml import plain, plain_mpi
from common import ROOT, api, kubectl, make_namespace, suite, world

OLD = ROOT / "tests/packaging/old"
NS = "packaging-upgrade"
MPIJOBS = "/apis/kubeflow.org/v2beta1/namespaces/{ns}/mpijobs"
BATCH = "/apis/batch/v1/namespaces/{ns}/jobs"
OWNED = ("secrets", "services", "configmaps", "pods")


def job(name: str, **run_policy: str) -> dict:
    body = plain(name)
    body["spec"]["runPolicy"] = run_policy
    return body


def play(ns: str, name: str, phase: str, code: int = 0) -> None:
    """The kubelet's part, for both workers."""
    wait(f"pods of {name}", lambda: sum(n.startswith(f"{name}-worker-") for n in api.pods(ns)) == 2)
    for i in (0, 1):
        api.set_pod(ns, f"{name}-worker-{i}", "Running")
    wait(f"{name} runs", lambda: api.status(ns, name).get("state") == "Running")
    if phase != "Running":
        finish(ns, name, phase, code)


def finish(ns: str, name: str, phase: str, code: int = 0) -> None:
    for i in (0, 1):
        api.set_pod(ns, f"{name}-worker-{i}", phase, **ended(code))
    wait(f"{name} has ended", lambda: api.status(ns, name).get("state") == phase)


def seen(ns: str = NS) -> dict[str, str]:
    """All that the operator may write, without what the API server counts by itself."""
    out = {}
    for kind in ("horovodjobs", "events", *OWNED):
        for o in api.items(ns, kind):
            out[f"{kind} {o['metadata']['name']}"] = json.dumps(o, indent=1, sort_keys=True)
    for path in (MPIJOBS, BATCH):
        for o in api.call("GET", path.format(ns=ns))["items"]:
            out[f"{path} {o['metadata']['name']}"] = json.dumps(o, indent=1, sort_keys=True)
    return out


@suite.test
def a_new_operator_touches_no_job() -> None:
    make_namespace(NS)
    world.run()
    api.make(NS, job("waits"))
    api.make(NS, job("runs"))
    api.make(NS, job("ended", cleanPodPolicy="None"))
    api.make(NS, job("failed", cleanPodPolicy="None"))
    api.call("POST", MPIJOBS.format(ns=NS), plain_mpi("mpi"))
    wait("the launcher of mpi", lambda: any(n.startswith("mpi-launcher-") for n in api.pods(NS)))
    play(NS, "runs", "Running")
    play(NS, "ended", "Succeeded")
    play(NS, "failed", "Failed", 3)
    wait("waits is Pending", lambda: api.status(NS, "waits").get("state") == "Pending")
    wait("mpi is Created", lambda: mpi_condition(NS, "Created"))
    unseen = "none has considered it"  # there is no scheduler; it comes after 20 s, and stays
    wait("waits says why", lambda: unseen in api.status(NS, "waits").get("message", ""), 180)
    wait("mpi says why", lambda: unseen in mpi_status(NS, "Created").get("message", ""), 180)
    wait("all is settled", settled(), 180)
    before = seen()
    for end in ("in good order", "at once"):
        if end == "at once":
            world.operator.kill()
        world.stop()
        world.run()
        wait("the new one has looked at every job", lambda: world.looks() >= len(all_jobs()))
        wait("and is done with them", settled(), 180)
        after = seen()
        keys = before.keys() | after.keys()
        changed = [
            k for k in keys if but_for_kubernetes(k, before.get(k)) != but_for_kubernetes(k, after.get(k))
        ]
        expect(not changed, f"ended {end}: nothing was made, changed or deleted", *changed)
    # and it does its work: the job that runs comes to its end
    finish(NS, "runs", "Succeeded")


def but_for_kubernetes(key: str, text: str | None) -> str | None:
    """The status of a Job is Kubernetes' own, and comes when it comes, on a busy machine after a rest."""
    if not text or not key.startswith(BATCH):
        return text
    o = json.loads(text)
    o.pop("status", None)
    o["metadata"] = {
        k: v for k, v in o["metadata"].items() if k not in ("resourceVersion", "managedFields")
    }
    return json.dumps(o, sort_keys=True)


def all_jobs() -> list[dict]:
    kinds = ("ringmaster.dev/v1beta1/horovodjobs", "kubeflow.org/v2beta1/mpijobs")
    return [o for kind in kinds for o in api.call("GET", "/apis/" + kind)["items"]]


def settled(ns: str = NS):
    """Nothing has changed in ten looks at all objects, a fifth of a second apart."""
    looks: list[dict[str, str]] = []
    last = 0.0

    def look() -> bool:
        nonlocal last
        if time.monotonic() - last < 0.2:
            return False
        looks.append(seen(ns))
        last = time.monotonic()
        return len(looks) >= 10 and all(x == looks[-1] for x in looks[-10:])

    return look


# --- jobs that an earlier operator left ------------------------------------------------
# What became of them under it is in old/*-jobs.json; the first operator knew no generations, no world that
# changes, and fewer fields of the status.
SERVERS = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
LEFT = ("waits", "runs", "grows", "breaks", "ended", "failed")
LATER = ("suspended", "launched", "scaled")  # which the first operator could not do


def make_and_play(ns: str, is_first: bool) -> None:
    for name in LEFT:
        api.make(ns, job(name, cleanPodPolicy="None"))
    for name in ("runs", "grows", "breaks"):
        play(ns, name, "Running")
    play(ns, "ended", "Succeeded")
    play(ns, "failed", "Failed", 3)
    wait("waits is Pending", lambda: api.status(ns, "waits").get("state") == "Pending")
    if is_first:
        return
    api.make(ns, job("suspended", suspend=True))
    body = job("launched", cleanPodPolicy="None")
    worker = body["spec"]["replicaSpecs"]["Worker"]
    body["spec"]["replicaSpecs"]["Launcher"] = json.loads(json.dumps({"template": worker["template"]}))
    worker["template"]["spec"]["containers"][0].pop("command")
    worker["template"]["spec"]["containers"][0].pop("args", None)
    api.make(ns, body)
    wait("the launcher's pod", lambda: "launched-launcher-0" in api.pods(ns))
    api.set_pod(ns, "launched-launcher-0", "Running")
    play(ns, "launched", "Running")
    api.make(ns, job("scaled", cleanPodPolicy="None"))
    play(ns, "scaled", "Running")
    scale(ns, "scaled", 3)
    wait("the new pod", lambda: "scaled-worker-2" in api.pods(ns))
    api.set_pod(ns, "scaled-worker-2", "Running")
    wait("it runs again", lambda: api.status(ns, "scaled").get("workers") == "3/3")
    api.call("POST", MPIJOBS.format(ns=ns), plain_mpi("mpi"))
    play_mpi(ns)
    wait("suspended is Suspended", lambda: api.status(ns, "suspended").get("state") == "Suspended")


def mpi_status(ns: str, kind: str) -> dict:
    return condition(api.call("GET", MPIJOBS.format(ns=ns) + "/mpi").get("status", {}), kind)


def mpi_condition(ns: str, kind: str) -> bool:
    return mpi_status(ns, kind).get("status") == "True"


def play_mpi(ns: str) -> None:
    """Its launcher's pod is made by Kubernetes' own controller of Jobs."""

    def there() -> bool:
        pods = [n for n in api.pods(ns) if n.startswith("mpi-")]
        return any("-launcher-" in n for n in pods) and any("-worker-" in n for n in pods)

    wait("pods of mpi", there, 180)
    for name in api.pods(ns):
        if name.startswith("mpi-"):
            api.set_pod(ns, name, "Running")
    wait("mpi runs", lambda: mpi_condition(ns, "Running"))


def scale(ns: str, name: str, workers: int) -> None:
    api.patch(f"{JOBS.format(ns=ns)}/{name}", {"spec": {"replicaSpecs": {"Worker": {"replicas": workers}}}})


def record(ns: str, is_first: bool) -> dict[str, list[dict]]:
    """By kind, without what the API server adds."""
    make_and_play(ns, is_first)
    wait("all is settled", settled(ns), 180)
    out: dict[str, list[dict]] = {
        "horovodjobs": [],
        "mpijobs": [],
        **{kind: [] for kind in OWNED},
        "jobs": [],
    }
    for kind, found in out.items():
        for o in listed(ns, kind):
            owners = o["metadata"].get("ownerReferences")
            if (kind not in ("horovodjobs", "mpijobs") and not owners) or (
                owners and owners[0]["kind"] == "Job"
            ):
                continue  # the cluster's own
            uid = owners[0]["uid"] if owners else o["metadata"]["uid"]
            o = json.loads(json.dumps(o).replace(uid, "UID").replace(ns, "NAMESPACE"))
            o["metadata"] = {k: v for k, v in o["metadata"].items() if k not in SERVERS}
            found.append(without_account(o) if kind == "pods" else o)
    for secret in out["secrets"]:
        secret["data"] = {key: "bm90IGEgc2VjcmV0Cg==" for key in secret["data"]}
    for o in out["jobs"]:  # what the API server wants to choose itself
        o["spec"].pop("selector")
        labels = o["spec"]["template"]["metadata"]["labels"]
        o["spec"]["template"]["metadata"]["labels"] = {
            k: v for k, v in labels.items() if "controller-uid" not in k and k.split("/")[-1] != "job-name"
        } | {k: v for k, v in labels.items() if k.startswith("training.")}
    for service in out["services"]:
        for key in [k for k in service["spec"] if k.startswith(("clusterIP", "ipFamil", "internalT"))]:
            service["spec"].pop(key)
        service["spec"]["clusterIP"] = "None"
    return out


def listed(ns: str, kind: str) -> list[dict]:
    paths = {"mpijobs": MPIJOBS, "jobs": BATCH}
    return api.call("GET", paths[kind].format(ns=ns))["items"] if kind in paths else api.items(ns, kind)


def without_account(pod: dict) -> dict:
    """Without the volume that admission adds to each pod, of another name each time."""
    spec = pod["spec"]
    spec["volumes"] = [v for v in spec["volumes"] if not v["name"].startswith("kube-api-access")]
    for c in spec["containers"] + spec.get("initContainers", []):
        c["volumeMounts"] = [
            m for m in c.get("volumeMounts", []) if not m["name"].startswith("kube-api-access")
        ]
    return pod


def put_back(ns: str, left: dict[str, list[dict]]) -> None:
    uids = {}
    for o in left["horovodjobs"]:
        name = o["metadata"]["name"]
        made = api.make(ns, filled(o, ns, ""))["metadata"]
        uids[name] = made["uid"]
        seen_as = {"observedGeneration": made["generation"]}  # a scaled job's starts again
        patch_status(f"{JOBS.format(ns=ns)}/{name}", o["status"] | seen_as)
    for o in left.get("mpijobs", []):
        path = MPIJOBS.format(ns=ns)
        name = o["metadata"]["name"]
        uids[name] = api.call("POST", path, filled(o, ns, ""))["metadata"]["uid"]
        patch_status(f"{path}/{name}", o["status"])
    for kind in ("jobs", *OWNED):
        for o in left.get(kind, []):
            body = filled(o, ns, uids[o["metadata"]["ownerReferences"][0]["name"]])
            status = body.pop("status", {})
            api.call("POST", BATCH.format(ns=ns) if kind == "jobs" else CORE.format(ns=ns) + kind, body)
            if kind == "pods":
                patch_status(CORE.format(ns=ns) + f"pods/{body['metadata']['name']}", status)
    for o in left.get("jobs", []):
        starts = o["metadata"]["name"] + "-"
        wait("its pod", lambda starts=starts: any(n.startswith(starts) for n in api.pods(ns)))
        api.set_pod(ns, next(n for n in api.pods(ns) if n.startswith(starts)), "Running")


def filled(o: dict, ns: str, uid: str) -> dict:
    return json.loads(json.dumps(o).replace("NAMESPACE", ns).replace("UID", uid or "UID"))


def patch_status(path: str, status: dict) -> None:
    api.patch(path + "/status", {"status": status})


@suite.test
def jobs_of_an_earlier_operator_continue_untouched() -> None:
    world.installed()
    for file in sorted(OLD.glob("*-jobs.json")):
        world.stop()
        ns = make_namespace(f"packaging-{file.stem}")
        put_back(ns, json.loads(file.read_text()))
        wait("Kubernetes has settled", settled(ns), 180)
        before = seen(ns)
        was = {o["metadata"]["name"]: o["status"] for o in api.items(ns, "horovodjobs")}
        world.run()
        wait("the new operator has looked at every job", lambda: world.looks() >= len(all_jobs()))
        wait("and is done with them", settled(ns), 180)
        after = seen(ns)
        theirs = ("horovodjobs ", "events waits.", MPIJOBS)  # after 20 s waits says why
        keys = [k for k in before.keys() | after.keys() if not k.startswith(theirs)]
        changed = [k for k in keys if in_effect(k, before.get(k)) != in_effect(k, after.get(k))]
        expect(not changed, f"{file.name}: no object was made, changed or deleted", *changed)
        for name, said in was.items():
            now = api.status(ns, name)
            kept = {k: now.get(k) for k in said}
            expect(but_why(kept) == but_why(said), f"{file.name}: what {name}'s status said", kept, said)
        expect(set(LEFT) <= set(was), "in every state", str(sorted(was)))
        finish_jobs(ns)
        if set(LATER) <= set(was):
            finish_later_jobs(ns)


def but_why(status: dict) -> dict:
    """A job that waits says why in the words of its operator."""
    if status["state"] != "Pending":
        return status
    return status | {"message": "", "conditions": [c | {"message": ""} for c in status["conditions"]]}


def in_effect(key: str, text: str | None) -> str | None:
    """A Service and a ConfigMap may get a label by which a newer operator finds them; what they say stays.

    The status of a Job is Kubernetes' own, and comes when it comes.
    """
    if not text or not key.startswith(("services ", "configmaps ", BATCH)):
        return text
    o = json.loads(text)
    o.pop("status", None)
    o["metadata"] = {k: o["metadata"][k] for k in ("name", "uid", "ownerReferences") if k in o["metadata"]}
    return json.dumps(o, sort_keys=True)


def finish_later_jobs(ns: str) -> None:
    end = ended(0, at="2026-01-01T00:02:00Z")
    api.set_pod(ns, "launched-launcher-0", "Succeeded", **end)
    wait("launched has ended", lambda: api.status(ns, "launched")["state"] == "Succeeded")
    api.set_pod(ns, "scaled-worker-2", "Succeeded", **end)
    finish(ns, "scaled", "Succeeded")
    launcher = next(n for n in api.pods(ns) if n.startswith("mpi-launcher-"))
    api.set_pod(ns, launcher, "Succeeded", **end)
    wait("mpi has succeeded", lambda: mpi_condition(ns, "Succeeded"), 180)
    api.patch(f"{JOBS.format(ns=ns)}/suspended", {"spec": {"runPolicy": {"suspend": False}}})
    play(ns, "suspended", "Succeeded")


def finish_jobs(ns: str) -> None:
    """From every state to its end."""
    play(ns, "waits", "Succeeded")
    finish(ns, "runs", "Succeeded")
    finish(ns, "breaks", "Failed", 7)
    told = condition(api.status(ns, "breaks"), "Failed")
    expect("code 7" in told["message"], "the cause is reported", told)
    old = api.pods(ns)
    can_be_resized = any(
        "ringmaster.dev/world" in p["metadata"].get("annotations", {}) for p in api.items(ns, "pods")
    )
    scale(ns, "grows", 3)

    def grown() -> bool:
        """Pods of the first operator cannot be resized: all are recreated."""
        now = {n: uid for n, uid in api.pods(ns).items() if n.startswith("grows-worker-")}
        same = [n for n, uid in now.items() if old.get(n) == uid]
        return len(now) == 3 and len(same) == (2 if can_be_resized else 0)

    wait("a job of another size has its pods", lambda: sweep(ns, "grows") or grown(), 180)


def sweep(ns: str, job_name: str) -> None:
    """The kubelet's part, for what is being deleted."""
    for p in api.items(ns, "pods"):
        meta = p["metadata"]
        if meta.get("deletionTimestamp") and meta["name"].startswith(job_name + "-"):
            try:
                api.delete(ns, "pods", meta["name"], 0)
            except Refused as e:
                expect(e.code == 404, "one that has ended goes by itself", str(e))


if __name__ == "__main__":
    try:
        world.installed()
        kubectl("apply", "-f", sys.argv[1])
        world.run()
        left = record(make_namespace("packaging-record"), "scale:" not in Path(sys.argv[1]).read_text())
        rows = [
            f"{json.dumps(kind)}: [\n" + ",\n".join(json.dumps(o, sort_keys=True) for o in found) + "\n]"
            for kind, found in left.items()
        ]
        Path(sys.argv[2]).write_text("{\n" + ",\n".join(rows) + "\n}\n")
    finally:
        world.stop()
