# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: what pods did while no operator ran. No job runs twice, and no deleted pod stays for ever."""

from __future__ import annotations

from api import ended, expect, wait
from fake_world import OPEN, World, launched, suite

DONE = {"phase": "Succeeded"}
NAMES = ("j0-worker-0", "j0-worker-1")


def failed(w: World, name: str, code: int) -> dict:
    container = w.get("pods", name)["spec"]["containers"][0]["name"]
    return {"phase": "Failed", "containerStatuses": [{"name": container, "state": ended(code)}]}


def gap(w: World, change) -> None:
    """change() happens while no operator runs."""
    w.operator.stop()
    change()
    w.operator = w.begin()


def all_gone(w: World) -> bool:
    return not w.fake.objects["pods"]


def first_uid(w: World) -> str | None:
    pod = w.fake.objects["pods"].get(f"ns/{NAMES[0]}")
    return pod and pod["metadata"]["uid"]


def ran_once(w: World, pods: int = 2) -> None:
    w.job_runs("later")  # and what was to be done for the first one is done
    n = w.fake.count("POST", "pods")
    expect(n == pods + 2, "no pod was created again", n)


@suite.test
def a_job_that_succeeded_while_no_operator_ran_does_not_run_again() -> None:
    for deleted in (NAMES[:1], NAMES[1:], NAMES):
        with World() as w:
            w.serves_job()

            def end(w=w, deleted=deleted) -> None:
                for name in NAMES:
                    w.set_pod(name, **DONE)
                for name in deleted:
                    w.delete("pods", name)

            gap(w, end)
            wait("it has succeeded", lambda w=w: w.state() == "Succeeded")
            wait(
                "the pods are gone",
                lambda w=w, d=deleted: not {f"ns/{n}" for n in d} & {*w.fake.objects["pods"]},
            )
            ran_once(w)


@suite.test
def a_job_that_failed_while_no_operator_ran_does_not_run_again() -> None:
    with World() as w:
        w.serves_job()

        def end() -> None:
            w.set_pod(NAMES[1], **failed(w, NAMES[1], 3))
            w.set_pod(NAMES[0], **failed(w, NAMES[0], 1))
            for name in NAMES:
                w.delete("pods", name)

        gap(w, end)
        wait("it has failed", lambda: w.state() == "Failed")
        wait("the pods are gone", lambda: all_gone(w))
        failure = w.get("horovodjobs", "j0")["status"]["failure"]
        expect(
            failure["pod"] == NAMES[0] and failure["exitCode"] == 1, "what was left of it counts", failure
        )
        ran_once(w)


@suite.test
def a_launcher_that_succeeded_while_no_operator_ran_does_not_run_again() -> None:
    with World(jobs=0, before=lambda fake: fake.put("horovodjobs", launched("l"))) as w:
        w.run_pods(name="l")
        wait("the launcher", lambda: "ns/l-launcher-0" in w.fake.objects["pods"])
        w.set_pod("l-launcher-0", phase="Running")
        wait("it runs", lambda: w.state("l") == "Running")

        def end() -> None:
            w.set_pod("l-launcher-0", **DONE)
            for name in ("l-launcher-0", "l-worker-0", "l-worker-1"):
                w.delete("pods", name)

        gap(w, end)
        wait("it has succeeded", lambda: w.state("l") == "Succeeded")
        ran_once(w, 3)


def with_tensorflow() -> World:
    body = World.job("j0")
    body["spec"] |= {"framework": "tensorflow", "runPolicy": {"backoffLimit": 1}}
    w = World(jobs=0, before=lambda fake: fake.put("horovodjobs", body))
    w.serves_job()
    return w


def end_and_delete(w: World, name: str) -> None:
    w.set_pod(name, **DONE)
    w.delete("pods", name)


def completed(w: World) -> str | None:
    return w.get("horovodjobs", "j0")["status"]["replicaStatuses"]["Worker"].get("completedIndexes")


@suite.test
def a_finished_task_of_tensorflow_can_be_deleted_while_another_runs() -> None:
    """As by kubectl drain, which waits until the pod is gone."""
    with with_tensorflow() as w:
        end_and_delete(w, NAMES[1])
        wait("it is gone", lambda: f"ns/{NAMES[1]}" not in w.fake.objects["pods"])
        expect(completed(w) == "1", "its success is stored", completed(w))
        w.job_runs("later")
        expect(w.state() == "Running", "it is not taken for lost", w.state())
        gap(w, lambda: end_and_delete(w, NAMES[0]))  # also by an operator that saw none of it
        wait("it has succeeded", lambda: w.state() == "Succeeded")
        wait("both are gone", lambda: not {f"ns/{n}" for n in NAMES} & {*w.fake.objects["pods"]})
        counts = w.get("horovodjobs", "j0")["status"]["replicaStatuses"]["Worker"]
        expect(counts["succeeded"] == 2 and completed(w) == "0-1", "both count", counts)
        expect(w.fake.count("POST", "pods") == 4, "no pod was created again")


@suite.test
def after_a_restart_every_task_of_tensorflow_runs_again() -> None:
    with with_tensorflow() as w:
        end_and_delete(w, NAMES[1])
        wait("it is gone", lambda: f"ns/{NAMES[1]}" not in w.fake.objects["pods"])
        w.set_pod(NAMES[0], **failed(w, NAMES[0], 3))
        wait("it restarts", lambda: w.state() == "Restarting")
        wait("the pods are gone", lambda: all_gone(w))
        expect(completed(w) is None, "nothing has succeeded", completed(w))
        w.run_pods()
        wait("it runs", lambda: w.state() == "Running")
        expect(completed(w) is None, "nothing has succeeded again", completed(w))


@suite.test
def pods_that_ended_while_the_api_server_was_away_count() -> None:
    """They are deleted before any watch shows how they ended, and by then the watches have expired."""
    away = []

    def hook(w, h, *_):
        if away:
            w.fake.answer(h, 503, "away")
        return bool(away)

    with World(hook, extra=OPEN) as w:
        w.serves_job()
        away.append(1)
        w.fake.cut()
        for name in NAMES:
            w.set_pod(name, **DONE)
            w.delete("pods", name)
        wait("the operator has noticed", lambda: "503" in w.log() or "away" in w.log())
        w.fake.compacted = w.fake.version
        away.clear()
        wait("it has succeeded", lambda: w.state() == "Succeeded")
        ran_once(w)


@suite.test
def an_operator_that_is_killed_before_it_releases_a_pod_does_so_later() -> None:
    """Between the final status and the removal of the finalizer."""
    killed = []

    def hook(w, h, method, plural, _):
        if method != "PATCH" or plural != "pods" or killed:
            return False
        killed.append(1)
        w.operator.kill()
        w.fake.answer(h, 503, "never read")
        return True

    with World(hook) as w:
        w.serves_job()
        for name in NAMES:
            w.set_pod(name, **DONE)
        wait("the operator was killed", lambda: killed and w.operator.ended())
        expect(w.state() == "Succeeded", "the status was stored before", w.state())
        expect("finalizers" in w.get("pods", NAMES[0])["metadata"], "the pod is kept")
        w.operator = w.begin()
        wait("the pod is released", lambda: "finalizers" not in w.get("pods", NAMES[0])["metadata"])
        ran_once(w)


@suite.test
def pods_of_a_deleted_job_go() -> None:
    """Whichever of the two is seen first, and also if no operator ran meanwhile."""

    def job_first(w: World) -> None:
        w.delete("horovodjobs", "j0")
        for name in NAMES:
            w.delete("pods", name)

    def pods_first(w: World) -> None:
        for name in NAMES:
            w.delete("pods", name)
        w.delete("horovodjobs", "j0")

    for order in (job_first, pods_first):
        for is_gap in (False, True):
            with World() as w:
                w.serves_job()
                if is_gap:
                    gap(w, lambda w=w, order=order: order(w))
                else:
                    order(w)
                wait("the pods are gone", lambda w=w: all_gone(w))


@suite.test
def pods_of_a_job_in_deletion_go() -> None:
    """As by kubectl delete --cascade=foreground: the job stays until its pods are gone."""
    with World() as w:
        w.serves_job()
        job = w.get("horovodjobs", "j0")
        job["metadata"] |= {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["foregroundDeletion"],
        }
        w.fake.put("horovodjobs", job)
        for name in NAMES:
            w.delete("pods", name)
        wait("the pods are gone", lambda: all_gone(w))
        w.job_runs("later")
        expect(w.state() == "Running", "its status is left alone", w.state())


@suite.test
def a_job_of_the_same_name_runs_after_the_pods_of_the_old_one() -> None:
    with World() as w:
        w.serves_job()

        def replace() -> None:
            w.delete("horovodjobs", "j0")
            w.delete("services", "j0")
            w.delete("secrets", "j0-token")
            for name in NAMES:
                w.delete("pods", name)
            w.fake.put("horovodjobs", w.job("j0"))

        old = first_uid(w)
        gap(w, replace)
        wait("another pod", lambda: first_uid(w) not in (None, old))
        w.serves_job()


@suite.test
def pods_without_an_owner_go() -> None:
    """As by kubectl delete --cascade=orphan, when a person deletes them later."""
    with World() as w:
        w.serves_job()
        pod = w.get("pods", NAMES[0])
        pod["metadata"]["ownerReferences"] = []
        w.delete("horovodjobs", "j0")
        w.fake.put("pods", pod)
        w.delete("pods", NAMES[0])
        wait("it is gone", lambda: f"ns/{NAMES[0]}" not in w.fake.objects["pods"])


@suite.test
def pods_go_when_the_cluster_has_no_jobs_at_all() -> None:
    """The definition was deleted, and another operator starts."""

    def gone(w, h, method, plural, _):
        if method != "GET" or plural not in ("horovodjobs", "mpijobs"):
            return False
        w.fake.answer(h, 404, "404 page not found")
        return True

    def pods(fake) -> None:
        meta = {
            "name": NAMES[0],
            "labels": {"ringmaster.dev/job-name": "j0", "ringmaster.dev/job-role": "worker"},
            "ownerReferences": [{"kind": "HorovodJob", "uid": "u", "controller": True}],
            "finalizers": ["ringmaster.dev/tracking"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        }
        fake.put("pods", {"metadata": meta, "status": {"phase": "Succeeded"}})

    with World(gone, jobs=0, before=pods) as w:
        wait("it is gone", lambda: all_gone(w))


@suite.test
def other_finalizers_stay() -> None:
    with World() as w:
        w.serves_job()
        pod = w.get("pods", NAMES[0])
        pod["metadata"]["finalizers"].insert(0, "example.com/mine")
        w.fake.put("pods", pod)
        for name in NAMES:
            w.set_pod(name, **DONE)
        wait(
            "ours is removed",
            lambda: w.get("pods", NAMES[0])["metadata"]["finalizers"] == ["example.com/mine"],
        )


@suite.test
def a_pod_deleted_before_all_ran_is_replaced() -> None:
    with World() as w:
        wait("pods", lambda: len(w.fake.objects["pods"]) == 2)
        w.set_pod(NAMES[1], phase="Running")
        old = first_uid(w)
        w.delete("pods", NAMES[0])
        wait("another pod", lambda: first_uid(w) not in (None, old))
        w.serves_job()
        status = w.get("horovodjobs", "j0")["status"]
        expect(status["restarts"] == 0 == status["replacements"], "that is no restart", status)


def is_observed(w: World, name: str) -> bool:
    job = w.get("horovodjobs", name)
    return job["status"].get("observedGeneration") == job["metadata"]["generation"]


@suite.test
def after_etcd_was_restored_the_operator_lists_again_by_itself() -> None:
    """Its watches wait for versions that do not come, and the server sends no bookmark."""
    with World(jobs=2) as w:
        w.serves_job("j0")
        w.serves_job("j1")
        saved = w.fake.backup()
        for name in NAMES:
            w.set_pod(name, **DONE)
        wait("j0 has succeeded", lambda: w.state("j0") == "Succeeded")
        for i in range(50):
            w.change("horovodjobs", "j1", runPolicy__activeDeadlineSeconds=1000 + i)
        wait("all versions are seen", lambda: is_observed(w, "j1"))
        w.fake.restore(saved)
        expect(w.state("j0") == "Running", "the backup is older", w.state("j0"))
        for name in ("j0", "j1"):
            for i in range(2):
                w.set_pod(f"{name}-worker-{i}", **DONE)
        wait("both have succeeded", lambda: w.state("j0") == w.state("j1") == "Succeeded")
        w.job_runs("later")
        log = w.log()
        expect(log.count("versions went back") == 1, "it is reported once", log)


@suite.test
def pods_of_an_operator_without_the_finalizer_continue() -> None:
    """Before an upgrade none had it: such a job ends as before."""
    with World() as w:
        w.serves_job()

        def strip() -> None:
            pod = w.get("pods", NAMES[0])
            del pod["metadata"]["finalizers"]
            w.fake.put("pods", pod)

        gap(w, strip)
        for name in NAMES:
            w.set_pod(name, **DONE)
        wait("it has succeeded", lambda: w.state() == "Succeeded")
        expect(not w.fake.count("PATCH", "pods"), "nothing is to be released")
        ran_once(w)
