# SPDX-License-Identifier: Apache-2.0
"""Tests of fake_test.py: what one user stores or connects to does not stop the jobs of others."""

from __future__ import annotations

import json
import socket
import threading
import time

from api import condition, expect, wait
from fake_watch import little_memory
from fake_world import OPEN, World, fetch, free_port, mpijob, suite

LARGE = 1400 << 10  # near the limit of etcd
ALLOWED = 190 << 10  # near the operator's


def job_of_size(name: str, size: int, ns: str = "ns") -> dict:
    job = World.job(name)
    job["metadata"]["namespace"] = ns
    worker = job["spec"]["replicaSpecs"]["Worker"]
    worker["replicas"] = 1
    worker["template"]["spec"]["containers"][0]["args"] = ["x" * size]
    return job


def finished(name: str, status: dict) -> dict:
    job = World.job(name)
    env = [{"name": f"NCCL_{i}", "value": "v" * 20} for i in range(20)]
    job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = env
    return job | {"status": json.loads(json.dumps(status).replace("j0", name))}


def status_of_a_finished_job() -> dict:
    with World() as w:
        w.run_pods()
        for i in range(2):
            w.set_pod(f"j0-worker-{i}", phase="Succeeded")
        wait("Succeeded", lambda: w.state() == "Succeeded")
        return w.get("horovodjobs", "j0")["status"]


@suite.test
def many_finished_and_large_jobs_need_little_memory() -> None:
    status = status_of_a_finished_job()

    def before(fake):
        for i in range(3000):
            fake.put("horovodjobs", finished(f"done-{i}", status))
        for i in range(50):
            fake.put("horovodjobs", job_of_size(f"large-{i}", LARGE))

    with World(jobs=0, before=before, extra=OPEN) as w:
        w.job_runs("new")
        wait("the refusal", lambda: w.state("large-0") == "Failed")
        why = condition(w.get("horovodjobs", "large-0")["status"], "Failed")["message"]
        expect("bytes as JSON, more than 196608" in why, "the limit is named", why)
        finished_writes = w.fake.count("PATCH", "horovodjobs")
        expect(finished_writes < 200, "finished jobs are not written again", str(finished_writes))
        little_memory(w, 48)


@suite.test
def a_new_job_does_not_wait_for_finished_ones() -> None:
    """An upgrade has added a field: each status is written again, fifty in a second."""
    n = 1500
    old = {k: v for k, v in status_of_a_finished_job().items() if k != "workers"}

    def before(fake):
        for i in range(n):
            fake.put("horovodjobs", finished(f"done-{i}", old))

    with World(jobs=0, before=before, extra=OPEN) as w:
        wait("the first", lambda: w.fake.count("PATCH", "horovodjobs") > 0)
        w.job_runs("new")
        written = w.fake.count("PATCH", "horovodjobs")
        expect(written < n // 2, "most finished jobs come later", str(written))


@suite.test
def jobs_that_do_not_fit_in_the_cache_are_requested() -> None:
    def before(fake):
        for i in range(110):
            fake.put("horovodjobs", job_of_size(f"large-{i}", ALLOWED, "many"))

    with World(jobs=0, before=before, extra=[*OPEN, "--kube-api-qps", "1000"]) as w:
        w.job_runs("new")  # of another namespace
        pods = w.fake.objects["pods"]
        wait("all pods", lambda: sum(key.startswith("many/") for key in pods) == 110, 120)
        requested = sum(1 for m, p, q in w.fake.requests if m == "GET" and p == "horovodjobs" and not q)
        expect(requested >= 25, "jobs without JSON were requested", str(requested))
        little_memory(w, 64)


def connect(port: int, source: str, text: bytes = b"GET /metrics HTTP/1.1\r\nX: ") -> socket.socket:
    s = socket.create_connection(("127.0.0.1", port), 20, (source, 0))
    s.sendall(text)
    return s


def is_ended(s: socket.socket) -> bool:
    """By the other side."""
    s.settimeout(0.01)
    try:
        return s.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@suite.test
def slow_clients_delay_no_probe_and_no_other_client() -> None:
    port, health = free_port(), free_port()
    with World(port=port, extra=[*OPEN, f"--health-port={health}"]) as w:
        w.serves_job()
        slow = [connect(at, f"127.0.0.{2 + i // 8}") for at in (port, health) for i in range(64)]
        for path in ("/healthz", "/readyz"):
            expect(fetch(health, path) == (200, "ok\n"), f"{path} answers")
        code, text = fetch(port, "/metrics")
        expect(code == 200 and "hvd_operator_jobs{" in text, "/metrics answers", text)
        expect(fetch(health, "/metrics")[0] == 404, "no metrics where the probes are")
        open_now = sum(not is_ended(s) for s in slow)
        expect(0 < open_now <= 64, "only the oldest were ended, and none for its time", str(open_now))
        for s in slow:
            s.close()


@suite.test
def a_request_must_be_complete_within_a_time() -> None:
    port = free_port()
    with World(port=port, extra=OPEN) as w:
        w.serves_job()
        s = connect(port, "127.0.0.1")
        begin, stop = time.monotonic(), threading.Event()

        def trickle() -> None:  # so it is never idle
            try:
                while not stop.wait(0.2):
                    s.sendall(b"x")
            except OSError:
                pass

        t = threading.Thread(target=trickle)
        t.start()
        wait("its end", lambda: is_ended(s), 60)
        stop.set()
        t.join()
        expect(time.monotonic() - begin > 5, "not at once")
        s.close()


@suite.test
def one_address_does_not_take_all_connections() -> None:
    port = free_port()
    with World(port=port, extra=OPEN) as w:
        w.serves_job()
        slow = [connect(port, "127.0.0.2") for _ in range(20)]
        wait("most are refused", lambda: sum(map(is_ended, slow)) >= 12)
        expect(fetch(port, "/healthz")[0] == 200, "another address is served")
        for s in slow:
            s.close()


@suite.test
def metrics_do_not_grow_with_the_jobs_unless_wanted() -> None:
    def before(fake):
        for i in range(300):
            fake.put("mpijobs", mpijob(f"m{i}") | {"status": {}})

    sizes = {}
    for option in ("--job-metrics=false", "--job-metrics"):
        port = free_port()
        with World(before=before, port=port, extra=[*OPEN, option]) as w:
            w.serves_job()
            code, text = fetch(port, "/metrics")
            expect(code == 200, "metrics", text)
            sizes[option] = text.count("mpi_operator_job_info{")
    expect(
        sizes == {"--job-metrics=false": 0, "--job-metrics": 300}, "one line a job only then", str(sizes)
    )
