# SPDX-License-Identifier: Apache-2.0
"""hvd-operator as a program: its command line and its log. Part of fake_test.py."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess

from api import ended, expect, wait
from fake_world import BIN, World, fetch, free_port, refuse, suite

# What deployments of mpi-operator and users of its logging library write.
THEIRS = [
    "-alsologtostderr",
    "--logtostderr=true",
    "-v=2",
    "-stderrthreshold",
    "0",
    "--vmodule=a=1",
    "-log_dir=/nowhere",
    "--threadiness=2",
    "--threadiness",
    "4",
    "--controller-queue-rate-limit=10",
    "--controller-queue-burst=100",
    "--gang-scheduling=volcano",
    "--lock-namespace=mpi-operator",
    "--cluster-domain=cluster.local",
    "--kube-api-qps=5",
    "--kube-api-burst=10",
]


def run(*args: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(BIN / "hvd-operator"), *args],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | env,
    )


@suite.test
def options_of_other_operators_are_accepted_and_idle_ones_logged_once() -> None:
    port = free_port()
    with World(extra=[*THEIRS, f"--monitoring-port={port}"]) as w:
        w.serves_job()
        expect("hvd_operator_jobs{" in fetch(port, "/metrics")[1], "metrics on the second port")
        log = w.log()
        told = [line for line in log.splitlines() if "option has no effect" in line]
        expect(len([t for t in told if "--threadiness" in t]) == 1, "once", log)
        expect(any('--threadiness why="one thread does all work"' in t for t in told), "and why", log)
        expect(not any("--gang-scheduling" in t or "--kube-api" in t for t in told), "others have", log)


@suite.test
def wrong_options_are_named() -> None:
    for args, says in (
        (["--nonsense"], "--nonsense: no such option"),
        (["-kubeconfig"], "--kubeconfig needs a value: FILE"),
        (["--leader-elect=perhaps"], "--leader-elect"),
        (["--leader-elect-lease-duration=5s"], "--leader-elect-renew-deadline: 10000 ms must be less"),
        (["--leader-elect-retry-period=9s"], "--leader-elect-retry-period: 9000 ms must be less"),
        (["--monitoring-port=70000"], "--monitoring-port"),
        (["--master=http://elsewhere"], "must begin with https://"),
    ):
        done = run(*args, KUBECONFIG="", KUBERNETES_SERVICE_HOST="")
        expect(done.returncode in (1, 2) and says in done.stderr, f"{args}: {says}", done.stderr)
    expect(run("--version").stdout.startswith("hvd-operator "), "--version")
    expect("--threadiness" in run("--help").stdout, "--help names what has no effect")


@suite.test
def http_address_is_the_only_one_that_answers() -> None:
    port = free_port()
    with World(port=port, extra=["--http-address=127.0.0.2"]) as w:
        wait("127.0.0.2 answers", lambda: fetch(port, "/readyz", "127.0.0.2")[0] == 200)
        expect(fetch(port, "/readyz") == (0, ""), "127.0.0.1 does not")
        done = run("--kubeconfig", str(w.dir / "kubeconfig"), "--http-address=localhost")
        says = '--http-address: "localhost" is not an IP address'
        expect(done.returncode == 1 and says in done.stderr, says, done.stderr)


@suite.test
def kubeflow_s_variable_names_the_namespace_and_master_the_server() -> None:
    paths = []

    def hook(w, h, method, plural, query):
        paths.append(h.path)
        return False

    with World(hook, jobs=0) as w:  # whose own operator creates no pods in ns
        os.environ["KUBEFLOW_NAMESPACE"] = "ns"
        try:
            with World(extra=[f"--master={w.fake.url}"]):
                wait("a namespaced list", lambda: any("/namespaces/ns/pods?" in p for p in paths))
        finally:
            del os.environ["KUBEFLOW_NAMESPACE"]


@suite.test
def with_log_json_each_line_is_one_object() -> None:
    hook = refuse("POST", "secrets", (500, 'a "quote" \\ and\na line \u0001 \u00e9'))
    with World(hook, extra=["--log-json"]) as w:
        w.serves_job()
        text = w.log()
    lines = [json.loads(line) for line in text.splitlines()]
    expect(len(lines) > 3, "there are lines")
    for line in lines:
        expect(all(isinstance(line.get(k), str) for k in ("ts", "level", "msg")), "ts, level, msg", line)
    expect(any(line.get("job") == "ns/j0" for line in lines), "the job has a key of its own", text)
    failed = [line for line in lines if line["msg"] == "sync failed"]
    expect(
        failed and failed[0]["attempt"] == "1" and failed[0]["retry_ms"] == "50", "which try it was", text
    )
    expect(any("quote" in line.get("cause", "") for line in lines), "odd characters survive", text)


@suite.test
def log_and_metrics_have_the_reason_of_a_restart() -> None:
    port = free_port()

    def before(fake):
        job = World.job("j0")
        job["spec"]["runPolicy"] = {"backoffLimit": 1}
        fake.put("horovodjobs", job)

    with World(jobs=0, before=before, port=port) as w:
        w.serves_job()
        w.set_pod("j0-worker-1", phase="Failed", containerStatuses=[{"name": "c", "state": ended(7)}])
        wait("Restarting", lambda: w.state() == "Restarting")
        counted = 'hvd_operator_job_restarts_total{reason="WorkerFailed"} 1'
        wait("the metric with its reason", lambda: counted in fetch(port, "/metrics")[1])
        text = w.log()
    line = "job restarts job=ns/j0 from=Running reason=JobRestarting"
    found = [x for x in text.splitlines() if line in x]
    expect(len(found) == 1 and "j0-worker-1 exited with code 7" in found[0], "it says why", text)


@suite.test
def in_a_pod_the_lease_is_held_whatever_names_the_server() -> None:
    for host, leads in (("", False), ("10.96.0.1", True)):
        with World(env={"KUBERNETES_SERVICE_HOST": host}) as w:
            w.serves_job()
            expect(bool(w.fake.objects["leases"]) == leads, f"KUBERNETES_SERVICE_HOST={host}")


class Unread(World):
    """Whose log is a pipe of two pages; others holds its other end."""

    def __init__(self):
        self.others, self.stderr = os.pipe()
        fcntl.fcntl(self.stderr, fcntl.F_SETPIPE_SZ, 8192)
        os.set_blocking(self.others, False)
        super().__init__()
        os.close(self.stderr)
        self.text = ""

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.others, 65536):
                self.text += data.decode()
        return self.text

    def __exit__(self, *what):
        super().__exit__(*what)
        os.close(self.others)


@suite.test
def a_log_without_reader_stops_nothing() -> None:
    with Unread() as w:
        for i in range(40):  # two lines each, of a hundred bytes
            name = f"a-job-with-a-name-of-some-length-{i}"
            w.job_runs(name)
        w.serves_job()
        expect(3000 < len(w.read()) <= 8192, "the pipe was full", len(w.text))
        expect(w.text.endswith("\n"), "only whole lines are in it", w.text[-100:])
        w.fake.put("horovodjobs", w.job("last"))
        w.run_pods(name="last")
        wait("the log continues", lambda: "job=ns/last" in w.read())
        expect("log lines were dropped, stderr was full lines=" in w.text, "it is logged", w.text)
