#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-operator against an API server that misbehaves, in TAP: expired watches, throttling, errors,
cut and silent connections, objects that cannot be read (fake_watch.py). Needs no root and no network.
usage: BIN=... fake_test.py [TEST ...]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

import fake_access  # noqa: F401
import fake_ask  # noqa: F401
import fake_causes  # noqa: F401
import fake_check  # noqa: F401
import fake_elect  # noqa: F401
import fake_faults  # noqa: F401
import fake_gaps  # noqa: F401
import fake_goodput  # noqa: F401
import fake_owned  # noqa: F401
import fake_page  # noqa: F401
import fake_process  # noqa: F401
import fake_secrets  # noqa: F401
import fake_tenants  # noqa: F401
import fake_watch  # noqa: F401  its tests are the suite's, too
import fake_webhook  # noqa: F401
import fake_why  # noqa: F401
from api import expect, wait
from fake_world import (
    BIN,
    OPEN,
    World,
    cut_connection,
    fetch,
    free_port,
    mpijob,
    refuse,
    serve_watches,
    suite,
)

ROOT = Path(__file__).resolve().parents[2]


@suite.test
def a_job_changed_while_suspended_has_new_hosts() -> None:
    def pod(**more: object) -> dict:
        return {"spec": {"containers": [{"name": "c", "image": "i", **more}]}}

    def gpus(n: int) -> dict:
        return {"replicas": 2, "template": pod(resources={"limits": {"nvidia.com/gpu": n}})}

    def hosts() -> str:
        return w.fake.objects["configmaps"].get("ns/l-hosts", {}).get("data", {}).get("hostfile", "")

    with World(jobs=0) as w:
        sets = {"Launcher": {"template": pod(command=["x"])}, "Worker": gpus(2)}
        w.fake.put(
            "horovodjobs", {"metadata": {"name": "l", "generation": 1}, "spec": {"replicaSpecs": sets}}
        )
        w.run_pods(name="l")
        expect(hosts().count(" slots=2\n") == 2, "two slots each", hosts())
        w.change("horovodjobs", "l", runPolicy__suspend=True)
        wait("no pods", lambda: not w.fake.objects["pods"] and w.state("l") == "Suspended")
        w.change("horovodjobs", "l", runPolicy__suspend=False, replicaSpecs__Worker=gpus(4))
        w.run_pods(name="l")
        expect(hosts().count(" slots=4\n") == 2, "four slots each", hosts())


@suite.test
def a_bookmark_moves_the_place_where_the_next_watch_starts() -> None:
    places = []

    def mark(w, h, query):
        places.append(int(query["resourceVersion"]))
        w.fake.begin_watch(h)
        w.fake.event(h, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "5000"}})
        w.fake.chunk(h, b"")

    with World(serve_watches(2, mark), extra=OPEN):
        wait("the second watch", lambda: len(places) > 1)
        expect(places[1] == 5000, "it starts at the bookmark", str(places))


@suite.test
def a_throttling_server_gets_the_pause_that_it_requests() -> None:
    """In seconds, or as a date."""
    for is_date, least in (False, 1.9), (True, 2.9):
        after = formatdate(time.time() + 4, usegmt=True) if is_date else "2"
        hook = refuse("POST", "secrets", (429, "slow down"), Retry_After=after)
        with World(hook) as w:
            w.serves_job()
            pause = hook.times[1] - hook.times[0]
            expect(pause >= least, f"Retry-After: {after}", pause)


@suite.test
def a_conflict_on_the_status_is_retried() -> None:
    hook = refuse("PATCH", "horovodjobs", (409, "modified"))
    with World(hook) as w:
        w.serves_job()
        expect(len(hook.times) > 1, "the patch was sent again")


@suite.test
def a_lost_answer_does_not_double_a_pod() -> None:
    cut = []

    def hook(w, h, method, plural, query):
        if method == "POST" and plural == "pods" and len(cut) < 2:
            owner = {"controller": True, "uid": w.fake.objects["horovodjobs"]["ns/j0"]["metadata"]["uid"]}
            labels = {"ringmaster.dev/job-name": "j0", "ringmaster.dev/job-role": "worker"}
            meta = {"name": f"j0-worker-{len(cut)}", "labels": labels, "ownerReferences": [owner]}
            cut.append(w.fake.put("pods", {"metadata": meta, "status": {"phase": "Pending"}}))
            cut_connection(h)  # the pod was created, and the answer never arrives
            return True
        return False

    with World(hook) as w:
        w.serves_job()
        expect(len(w.fake.objects["pods"]) == 2, "two pods", str(list(w.fake.objects["pods"])))


@suite.test
def a_watch_cut_in_the_middle_of_an_event_is_opened_again() -> None:
    def cut(w, h, query):
        w.fake.begin_watch(h)
        h.wfile.write(b'40\r\n{"type": "ADD')  # a chunk that never ends
        h.wfile.flush()
        cut_connection(h)

    with World(serve_watches(1, cut)) as w:
        w.serves_job()
        expect(w.fake.count("GET", "pods", True) >= 2, "a second watch")


@suite.test
def a_silent_watch_is_reopened() -> None:
    def hang(w, h, query):  # the other side is gone without a FIN
        w.fake.begin_watch(h)
        with w.fake.changed:
            w.fake.changed.wait_for(lambda: w.fake.stopping)

    hook = serve_watches(1, hang)
    with World(hook) as w:
        w.serves_job()
        expect(len(hook.times) == 1, "there was one")


@suite.test
def a_pod_that_no_watch_shows_is_requested_and_not_taken_for_deleted() -> None:
    late = [True]

    def hook(w, h, method, plural, query):
        if plural == "pods" and "watch" in query and late:
            w.fake.begin_watch(h)
            while late and not w.fake.stopping:  # alive, and has nothing to tell
                place = {"kind": "Pod", "metadata": {"resourceVersion": query["resourceVersion"]}}
                w.fake.event(h, "BOOKMARK", place)
                with w.fake.changed:
                    w.fake.changed.wait(0.2)
            w.fake.chunk(h, b"")
            return True
        return False

    with World(hook, jobs=2) as w:
        wait("pods", lambda: w.fake.count("POST", "pods") == 4)
        w.fake.put("pods", w.fake.objects["pods"]["ns/j1-worker-1"], "DELETED")
        wait(
            "j1's is recreated, because the API server has no such pod",
            lambda: w.fake.count("POST", "pods") == 5,
        )
        wait("j0's pods were asked for", lambda: w.fake.count("GET", "pods", False) >= 5)
        expect(w.state() == "Pending", "j0 waits on", w.state())
        late.clear()
        w.serves_job()


@suite.test
def a_status_that_the_api_server_does_not_keep_is_sent_once() -> None:
    sent = []

    def hook(w, h, method, plural, query):
        if method == "PATCH" and "/j0/" in h.path:
            sent.append(1)
        return False

    with World(hook) as w:
        w.fake.pruned = ("workers", "startTime")  # an older CRD
        w.serves_job()
        n = len(sent)
        for i in range(3):  # news of a pod: the job is looked at, with the same outcome
            pod = w.get("pods", "j0-worker-0")
            pod["status"] = {"phase": "Running", "message": f"m{i}"}
            w.fake.put("pods", pod)
            w.fake.put("horovodjobs", w.job(f"k{i}"))
            wait("a later job is served", lambda i=i: w.state(f"k{i}"))
        expect(len(sent) == n <= 4, "each status is sent once", n, len(sent))
        w.fake.put("pods", pod | {"status": {"phase": "Failed"}})
        wait("a changed status is sent", lambda: w.state() == "Failed")
        log = w.log()
        told = [line for line in log.splitlines() if "job=ns/j0 field=status.workers" in line]
        expect(len(told) == 1, "it is logged once", log)


def of_j0(port: int) -> bool:
    """Whether the operator still counts job j0, which is Pending while j1 runs."""
    return 'hvd_operator_jobs{kind="HorovodJob",state="Pending"} 0' not in fetch(port, "/metrics")[1]


@suite.test
def an_answer_after_the_job_s_deletion_does_not_restore_it() -> None:
    port, told = free_port(), []

    def hook(w, h, method, plural, query):
        if method == "PATCH" and "/j0/" in h.path:
            told.append(1)
            job = w.get("horovodjobs", "j0")
            w.fake.put("horovodjobs", json.loads(json.dumps(job)), "DELETED")
            wait("the operator knows", lambda: fetch(port, "/metrics")[0] == 200 and not of_j0(port))
            job["metadata"]["resourceVersion"] = str(w.fake.version + 1)
            w.fake.answer(h, 200, json.dumps(job | {"status": {"state": "Pending"}}))
            return True
        return False

    with World(hook, jobs=1, port=port) as w:
        wait("the late answer", lambda: told)
        w.fake.put("pods", w.fake.objects["pods"]["ns/j0-worker-0"], "DELETED")  # its key is looked at
        w.job_runs("j1")
        wait("j0 is not counted", lambda: not of_j0(port))
        expect(len(told) == 1, "and its status was not written again", told)


@suite.test
def a_job_that_the_api_server_no_longer_has_is_dropped() -> None:
    port, told = free_port(), []

    def hook(w, h, method, plural, query):
        if method == "PATCH" and "/j0/" in h.path:
            told.append(1)
            w.fake.objects["horovodjobs"].pop("ns/j0", None)  # and no watch has told it yet
        return False

    with World(hook, jobs=1, port=port) as w:
        w.job_runs("j1")
        wait("j0 is not counted", lambda: not of_j0(port))
        expect(len(told) == 1, "its status was written once", told)


@suite.test
def a_large_object_does_not_delay_other_jobs() -> None:
    with World(jobs=0) as w:
        w.fake.put("horovodjobs", w.job("big", **{f"k{i}": 0 for i in range(60000)}))
        w.fake.put("horovodjobs", w.job("j0"))
        w.serves_job()


@suite.test
def an_mpijob_too_large_for_a_config_map_is_refused() -> None:
    name = "a-name-that-is-rather-long-for-a-job"
    with World(jobs=0, before=lambda fake: fake.put("mpijobs", mpijob(name, 8000))) as w:

        def reports() -> list[str]:
            events = list(w.fake.objects["events"].values())
            return [e["message"] for e in events if e["reason"] == "ValidationError"]

        message = wait("it is reported", reports)[0]
        for part in ("spec.mpiReplicaSpecs.Worker.replicas", "8000 workers", "1048576", "fewer workers"):
            expect(part in message, f"the sentence says {part}", message)
        w.fake.put("mpijobs", mpijob("small"))
        wait("another is served", lambda: "ns/small-worker-1" in w.fake.objects["pods"])
        expect(w.fake.count("POST", "configmaps") == 1, "nothing of the large one was tried")
        expect(not any(name in key for key in w.fake.objects["pods"]), "nor any of its pods")


@suite.test
def readiness_names_what_is_missing_and_metrics_count() -> None:
    """A busy machine may cost a probe its time limit, so each is repeated until it shows what it must."""
    port = free_port()
    allow = []

    def hook(w, h, method, plural, query):
        if plural in ("horovodjobs", "mpijobs") and not allow:
            w.fake.answer(h, 404, "404 page not found")
            return True
        return False

    def answers(path: str, code: int, part: str) -> None:
        def seen() -> bool:
            got, text = fetch(port, path)
            return got == code and part in text

        wait(f"{path}: {code} {part}", seen)

    with World(hook, port=port, extra=["--job-metrics"]) as w:
        answers("/readyz", 503, "manifests/crd")
        answers("/healthz", 200, "ok\n")
        answers("/livez", 200, "ok\n")
        answers("/nothing", 404, "")
        allow.append(1)
        answers("/readyz", 200, "ok\n")
        w.serves_job()
        for line in (
            'hvd_operator_jobs{kind="HorovodJob",state="Running"} 1',  # when the job's watch shows it
            "hvd_operator_pods 2",
            "hvd_operator_synced 1",
            'hvd_operator_build_info{version="',
            'hvd_operator_api_requests_total{method="GET",code="4xx"}',
        ):
            answers("/metrics", 200, line)
        text = wait("metrics", lambda: fetch(port, "/metrics")[1])
        for name, least in (
            ("hvd_operator_pod_cache_bytes", 200),
            ("hvd_operator_queue_wait_seconds_count", 1),
            ("process_start_time_seconds", 1.7e9),
            ("process_cpu_seconds_total", 0.001),
            ("process_resident_memory_bytes", 1 << 20),
            ("process_open_fds", 5),
            ("process_max_fds", 64),
        ):
            found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
            expect(found is not None and float(found[1]) >= least, f"{name} is at least {least}", text)
        served = set(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        page = (ROOT / "operator/reference/monitoring.md").read_text()
        rows = page.split("<!-- metrics")[1].split("<!-- end of metrics")[0]
        listed = set(re.findall(r"^\| `(\S+)` \| (\S+) \|", rows, re.MULTILINE))
        expect(listed == served, "operator/reference/monitoring.md has each metric", str(listed ^ served))


@suite.test
def the_manual_has_the_program_s_own_options() -> None:
    table = subprocess.run(
        [str(BIN / "hvd-operator"), "--man-options"], check=True, capture_output=True, text=True, timeout=20
    ).stdout
    expect(table.count("\n.It ") > 5, "there are options", table)
    page = (ROOT / "operator/hvd-operator.8").read_text()
    expect(table in page, "operator/hvd-operator.8 has them (make man-operator)", table)


if __name__ == "__main__":
    sys.exit(suite.main(sys.argv[1:]))
