#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-operator against a real etcd and kube-apiserver, in TAP. usage: real_test.py [TEST ...]

No kubelet: the test plays scheduler and kubelet by patching pods, so that every state can be
reached, in any order, within milliseconds. The operator runs as a process under the service account
and the ClusterRole of manifests/, so that a missing right fails here. run.sh starts the cluster.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from pathlib import Path

import real_elect
import real_fake
import real_gang
import real_life
import real_mpi
import real_objects
import real_rights
from api import CORE, JOBS, Api, Operator, Refused, Suite, condition, expect, install, wait

RUN = Path(os.environ["RM_RUN"])
BIN = Path(os.environ["BIN"])
KUBECTL = str(RUN / "bin/kubectl")
LOG = RUN / "log/operator-under-test.log"
KUBECONFIG = RUN / "operator.kubeconfig"
suite = Suite()


def operator(crash: str | None = None) -> Operator:
    name = "hvd-operator-faults" if crash else "hvd-operator"
    return Operator(BIN / name, KUBECONFIG, LOG, "--http-port", "0", crash=crash)


def job(name: str = "j", workers: int = 2, clean: str | None = None, **pod) -> dict:
    spec = {"containers": [{"name": "train", "image": "i", "command": ["c", "x"]}], **pod}
    out = {
        "apiVersion": "ringmaster.dev/v1beta1",
        "kind": "HorovodJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": {"Worker": {"replicas": workers, "template": {"spec": spec}}}},
    }
    if clean:
        out["spec"]["runPolicy"] = {"cleanPodPolicy": clean}
    return out


def all_there(ns: str, n: int = 2) -> dict[str, str]:
    return wait(f"{n} pods", lambda: len(api.pods(ns)) == n and api.pods(ns))


def state(ns: str, wanted: str, name: str = "j") -> dict:
    def look():
        status = api.status(ns, name)
        return status if status.get("state") == wanted else None

    try:
        return wait(f"state {wanted}", look)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{json.dumps(api.status(ns, name), indent=1)}") from None


def running(ns: str, n: int = 2) -> dict[str, str]:
    """Both workers bound and running."""
    pods = all_there(ns, n)
    for i in range(n):
        if not api.get(ns, "pods", f"j-worker-{i}")["spec"].get("nodeName"):
            api.bind(ns, f"j-worker-{i}", f"node-{i}")
        api.set_pod(ns, f"j-worker-{i}", "Running")
    return pods


def ended(code: int, message: str = "", reason: str = "Error", at: str = "2026-01-01T00:01:00Z") -> dict:
    return {
        "terminated": {
            "exitCode": code,
            "message": message,
            "reason": reason,
            "finishedAt": at,
            "startedAt": at,
        }
    }


def report(rank: int, host: str, at_us: int, code: int = 3, sig: int = 0) -> str:
    return (
        f"ringmaster-failure/1 rank={rank} host={host} exit={code} signal={sig} "
        f'at={at_us} why=""\nlast line of rank {rank}\n'
    )


# --- life cycle -------------------------------------------------------------------------
@suite.test
def every_object_is_made_once_and_belongs_to_the_job() -> None:
    ns = api.namespace("t-objects")
    uid = api.make(ns, job())["metadata"]["uid"]
    all_there(ns)
    wait("condition Created", lambda: condition(api.status(ns, "j"), "Created").get("status") == "True")
    objects = api.items(ns, "pods") + [api.get(ns, "services", "j"), api.get(ns, "secrets", "j-token")]
    for o in objects:
        owner = o["metadata"]["ownerReferences"][0]
        expect(owner["uid"] == uid and owner["controller"], "owned by the job", o["metadata"])
        expect(o["metadata"]["labels"]["ringmaster.dev/job-name"] == "j", "labelled", o["metadata"])
    expect(objects[-2]["spec"]["clusterIP"] == "None", "the Service is headless")
    expect(objects[-2]["spec"]["publishNotReadyAddresses"], "and publishes early")
    expect(api.reasons(ns) == [], "nothing to tell yet", api.reasons(ns))


@suite.test
def a_job_that_succeeds_goes_through_its_states() -> None:
    ns = api.namespace("t-succeeds")
    api.make(ns, job(clean="None"))
    before = running(ns)
    status = state(ns, "Running")
    expect(status["workers"] == "2/2", "both are ready", status)
    expect(condition(status, "Running")["status"] == "True", "condition Running", status)
    for name in before:
        api.set_pod(ns, name, "Succeeded", **ended(0, reason="Completed"))
    status = state(ns, "Succeeded")
    expect(
        status["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 2, "failed": 0}, "counts", status
    )
    expect(status["observedGeneration"] == 1 and status["completionTime"], "times", status)
    expect(condition(status, "Running")["status"] == "False", "Running is over", status)
    expect(api.pods(ns) == before, "cleanPodPolicy None keeps the pods")
    expect(api.reasons(ns) == ["JobRunning", "JobSucceeded"], "events", api.reasons(ns))


@suite.test
def the_earliest_failure_is_named_and_running_workers_are_stopped() -> None:
    ns = api.namespace("t-fails")
    api.make(ns, job(workers=3, clean="Running"))
    running(ns, 3)
    state(ns, "Running")
    # worker 0 is seen first, but what it tells happened on worker 2, earlier than worker 1's
    api.set_pod(ns, "j-worker-0", "Failed", **ended(1, report(1, "j-worker-1", 1767225660000500)))
    state(ns, "Failed")
    api.set_pod(ns, "j-worker-2", "Failed", **ended(3, report(2, "j-worker-2", 1767225660000400, 0, 9)))
    status = wait(
        "the earlier cause",
        lambda: api.status(ns, "j").get("failure", {}).get("rank") == 2 and api.status(ns, "j"),
    )
    wanted = {
        "rank": 2,
        "pod": "j-worker-2",
        "node": "node-2",
        "signal": 9,
        "output": "last line of rank 2\n",
        "time": "2026-01-01T00:01:00.000400Z",
    }
    seen = {k: status["failure"].get(k) for k in wanted}
    expect(seen == wanted, "status.failure", status)
    message = condition(status, "Failed")["message"]
    for part in ("rank 2", "j-worker-2", "SIGKILL", "node-2"):
        expect(part in message, f"the message says {part}", message)
    wait(
        "the running worker is asked to stop",
        lambda: (
            not api.get(ns, "pods", "j-worker-1")
            or "deletionTimestamp" in api.get(ns, "pods", "j-worker-1")["metadata"]
        ),
    )
    expect(api.get(ns, "pods", "j-worker-0") is not None, "ended workers keep their logs")


@suite.test
def clean_pod_policy_all_deletes_every_pod_and_keeps_the_cause() -> None:
    ns = api.namespace("t-clean-all")
    api.make(ns, job(clean="All"))
    all_there(ns)
    api.set_pod(ns, "j-worker-1", "Failed", **ended(137, reason="OOMKilled"))
    status = state(ns, "Failed")
    expect(condition(status, "Failed")["reason"] == "OOMKilled", "reason", status)
    wait("no pod is left", lambda: not api.pods(ns))
    after = api.status(ns, "j")
    expect(after["failure"] == status["failure"], "the cause stays", after)
    expect(after["replicaStatuses"]["Worker"]["failed"] == 1, "the counts stay", after)


@suite.test
def why_a_worker_does_not_start_is_shown() -> None:
    ns = api.namespace("t-waiting")
    api.make(ns, job())
    all_there(ns)
    api.set_pod(
        ns,
        "j-worker-1",
        "Pending",
        waiting={"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'},
    )
    wait(
        "condition Running tells it",
        lambda: "Back-off pulling image" in condition(api.status(ns, "j"), "Running").get("message", ""),
    )


@suite.test
def a_deleted_job_is_left_alone_and_can_be_made_again() -> None:
    ns = api.namespace("t-again")
    api.make(ns, job())
    first = all_there(ns)
    api.delete(ns, "horovodjobs", "j")
    # Kubernetes' garbage collector looks for new kinds, such as ours, each 30 s only.
    wait("garbage collection", lambda: not api.pods(ns) and not api.get(ns, "secrets", "j-token"))
    api.make(ns, job())
    second = all_there(ns)
    expect(not set(first.values()) & set(second.values()), "new pods", first, second)
    wait("it is Pending", lambda: api.status(ns, "j").get("state") == "Pending")


# --- what is refused --------------------------------------------------------------------
def changed(name: str = "bad", **changes) -> dict:
    out = job(name)
    for path, value in changes.items():
        at = out
        *parents, last = path.split(".")
        for key in parents:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        if value is None:
            del at[last]
        else:
            at[last] = value
    return out


WORKER = "spec.replicaSpecs.Worker"
POD = WORKER + ".template.spec"
BAD = [
    ("zero workers", changed(**{WORKER + ".replicas": 0}), [WORKER + ".replicas", "1"]),
    ("too many workers", changed(**{WORKER + ".replicas": 8193}), [WORKER + ".replicas", "8192"]),
    ("name too long", changed("a" * 60), ["metadata.name", "63 characters"]),
    ("name too long for 100 workers", changed("a" * 54, **{WORKER + ".replicas": 100}), ["metadata.name"]),
    ("a dot in the name", changed("a.b"), ["metadata.name"]),
    ("a digit first", changed("1a"), ["metadata.name"]),
    ("no container", changed(**{POD + ".containers": []}), ["containers"]),
    (
        "no command",
        changed(**{POD + ".containers.0.command": None}),
        ["containers[0].command", "Kubernetes does not report"],
    ),
    ("an empty command", changed(**{POD + ".containers.0.command": []}), ["command"]),
    ("no image", changed(**{POD + ".containers.0.image": None}), ["image"]),
    ("a bad container name", changed(**{POD + ".containers.0.name": "A b"}), ["containers[0].name"]),
    ("negative slots", changed(**{"spec.slotsPerWorker": -1}), ["spec.slotsPerWorker", "1"]),
    (
        "slots of the wrong type",
        changed(**{"spec.slotsPerWorker": "two"}),
        ["spec.slotsPerWorker", "integer"],
    ),
    (
        "replicas of the wrong type",
        changed(**{WORKER + ".replicas": [2]}),
        [WORKER + ".replicas", "integer"],
    ),
    (
        "a command of the wrong type",
        changed(**{POD + ".containers.0.command": "python"}),
        ["command", "array"],
    ),
    (
        "an unknown policy",
        changed(**{"spec.runPolicy.cleanPodPolicy": "Some"}),
        ["cleanPodPolicy", "Running"],
    ),
    ("an unknown field", changed(**{"spec.slotsPerWorkr": 2}), ["spec.slotsPerWorkr"]),
    ("an unknown role", changed(**{"spec.replicaSpecs.Launcher": {}}), ["Launcher"]),
    ("no workers at all", changed(**{WORKER: None}), ["Worker"]),
    ("no spec", changed(spec=None), ["spec"]),
]


@suite.test
def bad_specs_are_refused_with_the_field_s_name() -> None:
    ns = api.namespace("t-bad")
    wrong = []
    for what, body, parts in BAD:
        try:
            api.make(ns, body)
            wrong.append(f"{what}: accepted")
        except Refused as e:
            print(f"# {what}: {e}")
            wrong += [f"{what}: no '{p}' in: {e}" for p in parts if p not in str(e)]
    expect(not wrong, "refused, each with its field named", *wrong)
    expect(not api.items(ns, "horovodjobs"), "nothing was stored")


@suite.test
def with_tensorflow_an_image_may_start_by_itself_and_with_horovod_not() -> None:
    ns = api.namespace("t-command")
    silent = {POD + ".containers.0.command": None}
    plain = job()["spec"]["replicaSpecs"]["Worker"]["template"]
    image = {"spec": {"containers": [{"name": "train", "image": "i"}]}}
    try:
        api.make(ns, changed("h", **silent))
        raise AssertionError("horovod without a command was taken")
    except Refused as e:
        expect("containers[0].command is missing" in str(e), "one sentence", str(e))
    try:  # a chief has no place in a horovod job, whatever its command
        api.make(ns, changed("c", **{"spec.replicaSpecs.Chief": {"template": plain}}))
        raise AssertionError("a chief was taken")
    except Refused as e:
        expect("need framework tensorflow" in str(e), "one sentence", str(e))
    roles = {f"spec.replicaSpecs.{role}": {"template": image} for role in ("Chief", "PS", "Evaluator")}
    api.make(ns, changed("j", **{**silent, **roles, "spec.framework": "tensorflow"}))
    wait("its pods", lambda: len(api.pods(ns)) == 5)
    seen = api.get(ns, "pods", "j-chief-0")["spec"]["containers"][0]
    expect("command" not in seen and seen["env"][0]["name"] == "TF_CONFIG", "the image's own", seen)


@suite.test
def what_a_change_would_not_do_is_refused() -> None:
    ns = api.namespace("t-immutable")
    api.make(ns, job())
    for path, value in (
        ("spec.slotsPerWorker", 2),
        (POD + ".nodeName", "x"),
        (POD + ".containers", [{"name": "train", "image": "other", "command": ["c", "x"]}]),
    ):
        patch: dict = {}
        at = patch
        *parents, last = path.split(".")
        for key in parents:
            at = at.setdefault(key, {})
        at[last] = value
        try:
            api.call("PATCH", JOBS.format(ns=ns) + "/j", patch, "application/merge-patch+json")
            raise AssertionError(f"{path} was changed")
        except Refused as e:
            expect("cannot be changed" in str(e), path, str(e))
    api.call(
        "PATCH",
        JOBS.format(ns=ns) + "/j",
        {"spec": {"runPolicy": {"cleanPodPolicy": "All"}}},
        "application/merge-patch+json",
    )


@suite.test
def what_only_the_operator_sees_fails_the_job_with_all_problems() -> None:
    ns = api.namespace("t-invalid")
    body = job(volumes=[{"name": "ringmaster-token", "emptyDir": {}}])
    container = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "HVD_JOB_ID", "value": "x"}]
    api.make(ns, body)
    status = state(ns, "Failed")
    failed = condition(status, "Failed")
    expect(failed["reason"] == "InvalidSpec", "reason", status)
    for part in ("volumes[0].name", "ringmaster-token", "env[0].name", "HVD_JOB_ID"):
        expect(part in failed["message"], f"the message says {part}", failed["message"])
    expect(not api.pods(ns), "no pod was made")


@suite.test
def a_misspelt_pod_field_fails_the_job_with_kubernetes_sentence() -> None:
    ns = api.namespace("t-typo")
    api.make(ns, job(nodeSelectr={"a": "b"}))
    status = state(ns, "Failed")
    failed = condition(status, "Failed")
    expect(failed["reason"] == "InvalidPodTemplate", "reason", status)
    expect("spec.nodeSelectr" in failed["message"], "the field", failed["message"])


@suite.test
def a_taken_name_is_told_and_waited_for() -> None:
    ns = api.namespace("t-taken")

    def told(what: str) -> None:
        def look() -> bool:
            created = condition(api.status(ns, "j"), "Created")
            return created.get("reason") == "NameTaken" and what in created["message"]

        wait(f"condition Created tells of {what}", look)

    def counts() -> list[int]:
        return [e["count"] for e in api.items(ns, "events") if e["reason"] == "NameTaken"]

    container = {"name": "other", "image": "i"}
    other = {"metadata": {"name": "j-worker-1"}, "spec": {"containers": [container]}}
    api.call("POST", CORE.format(ns=ns) + "secrets", {"metadata": {"name": "j-token"}})
    api.make(ns, job())
    told("Secret j-token")
    wait("an event tells it", lambda: counts() == [1])
    expect(not api.pods(ns), "no pod without its Secret")
    op.kill()
    replace(operator())
    wait("the same event tells it again", lambda: counts() == [2])
    api.call("POST", CORE.format(ns=ns) + "pods", other)
    api.delete(ns, "secrets", "j-token")
    told("Pod j-worker-1")
    api.delete(ns, "pods", "j-worker-1", grace=0)
    all_there(ns)


@suite.test
def a_quota_is_told_and_waited_for() -> None:
    ns = api.namespace("t-quota")
    api.call(
        "POST",
        CORE.format(ns=ns) + "resourcequotas",
        {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}},
    )
    wait("the quota is in force", lambda: api.get(ns, "resourcequotas", "q").get("status", {}).get("hard"))
    api.make(ns, job())
    status = wait(
        "condition Created tells it",
        lambda: (
            "exceeded quota" in condition(api.status(ns, "j"), "Created").get("message", "")
            and api.status(ns, "j")
        ),
    )
    expect(status["state"] == "Pending", "not failed", status)
    api.delete(ns, "resourcequotas", "q")
    all_there(ns)


# --- the process ------------------------------------------------------------------------
@suite.test
def a_hundred_jobs_are_served_in_little_memory() -> None:
    ns = api.namespace("t-many")
    start = time.monotonic()
    for i in range(100):
        body = copy.deepcopy(job(f"j{i}"))
        api.make(ns, body)
    wait("all pods", lambda: len(api.items(ns, "pods")) == 200)
    wait(
        "all statuses",
        lambda: all(j.get("status", {}).get("state") == "Pending" for j in api.items(ns, "horovodjobs")),
    )
    print(f"# 100 jobs of 2 workers in {time.monotonic() - start:.1f} s, peak RSS {op.rss_kib()} KiB")
    expect(op.rss_kib() < 20 * 1024, "under 20 MiB", str(op.rss_kib()))


def replace(new: Operator) -> None:
    global op
    op = new


def rival(*args: str) -> Operator:
    """Beside others on one Lease; the operator of the other tests has ended."""
    if not op.ended():
        op.stop()
    return Operator(BIN / "hvd-operator", KUBECONFIG, LOG, *args)


real_life.tests(suite)
real_life.stage.start, real_life.stage.current, real_life.stage.replace = operator, lambda: op, replace
real_life.stage.job, real_life.stage.ended, real_life.stage.report = job, ended, report
real_life.stage.running, real_life.stage.state, real_life.stage.all_there = running, state, all_there
real_mpi.tests(suite, operator, lambda: op, replace)
real_objects.tests(suite, lambda: api)
real_fake.tests(suite, lambda: api)


@suite.test
def it_stops_in_good_order_when_asked() -> None:
    code = op.stop()
    expect(code == 0, "exit code 0 after SIGTERM", str(code))
    text = LOG.read_text()
    secrets = [
        s
        for s in api.call("GET", "/api/v1/secrets")["items"]
        if s["metadata"]["name"] == "j-token" and "data" in s
    ]
    expect(bool(secrets), "there are tokens to look for")
    expect(not any(v in text for s in secrets for v in s["data"].values()), "no token in the log")


real_elect.tests(suite)
real_elect.stage.start = rival
real_elect.stage.job, real_elect.stage.ended = job, ended
real_elect.stage.running, real_elect.stage.state = running, state
real_gang.tests(suite)
real_gang.stage.start, real_gang.stage.job, real_gang.stage.ended = rival, job, ended
real_gang.stage.running, real_gang.stage.state, real_gang.stage.all_there = running, state, all_there
if not sys.argv[1:]:  # it tells of what all others did
    real_rights.tests(suite, lambda: sorted((RUN / "log").glob("audit*.log")))


if __name__ == "__main__":
    api = Api(KUBECTL, str(RUN / "admin.kubeconfig"))
    real_life.stage.api = real_mpi.stage.api = real_elect.stage.api = real_gang.stage.api = api
    install(api, RUN)
    op = operator()
    try:
        code = suite.main(sys.argv[1:])
    finally:
        op.stop()
    sys.exit(code)
