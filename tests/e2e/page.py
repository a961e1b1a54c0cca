# SPDX-License-Identifier: Apache-2.0
"""The status page of a real operator, as a user opens it: kubectl hvd page; part of e2e.py."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from urllib.parse import parse_qs, urlsplit

from cluster import RUN, apply, expect, horovodjob, kubectl, namespace, wait, wait_state
from page_client import PageClient, Stream
from plugin import ENVIRONMENT, PROGRAM, hvd

NOTES = RUN / "page.notes"  # what the command writes to standard error


class Forwarded(PageClient):
    """kubectl hvd page while it runs: its URL, port and token."""

    def __init__(self, *args: str):
        with NOTES.open("w") as notes:
            self.process = subprocess.Popen(
                [str(RUN / "bin/kubectl"), "hvd", "page", *args],
                env=ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=notes,
                start_new_session=True,
            )
        self.url = urlsplit(self.line().decode().strip())
        self.page_port = self.url.port or 0
        values = parse_qs(self.url.fragment)
        self.token, self.go = values["token"][0], values.get("go", [""])[0]

    def line(self) -> bytes:
        out = self.process.stdout
        assert out
        wait("the URL", lambda: select.select([out], [], [], 0)[0], 120)
        line = out.readline()
        expect(line.startswith(b"http://127.0.0.1:"), "the URL", line.decode(), NOTES.read_text())
        return line

    def get(self, path: str) -> dict:
        """The answer; {} without one."""
        status, answer = self.api(path, self.token)
        return answer if status == 200 else {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(60)


def a_user_follows_a_job(leader) -> None:
    """leader(): the pod of the operator that leads."""
    ns = namespace("e2e-page")
    apply(horovodjob("seen", ["python3", "-c", PROGRAM], workers=2), ns)
    wait_state("seen", ns, "Running")
    path = f"/jobs/horovodjobs/{ns}/seen"
    with Forwarded("-n", ns, "seen") as p:
        expect(p.go == f"/horovodjobs/{ns}/seen", "opens the job", p.go)
        expect("text/html" in p.page("/")[1]["Content-Type"], "the page")
        expect(p.page("/api/v1/jobs")[0] == 401, "not without the token")
        wait("steps in the report", lambda: "stepsPerSecond" in str(p.get(path).get("report")), 240)
        detail = p.get(path)
        expect(detail["access"] == {"events": True, "log": True}, "its rights", detail["access"])
        expect([pod["ranks"] for pod in detail["pods"]] == ["0", "1"], "pods", detail["pods"])
        expect({pod["node"] for pod in detail["pods"]} <= {"n0", "n1"}, "their nodes", detail["pods"])
        for rank in (0, 1):
            log = wait(
                f"the log of rank {rank}", lambda r=rank: p.get(f"{path}/log?rank={r}").get("text"), 120
            )
            expect(log == f"rank {rank} begins\n", "its lines only", log)
        ranks = wait("the ranks", lambda: p.get(f"{path}/ranks").get("ranks"), 120)
        expect([r["rank"] for r in ranks] == [0, 1], "both", ranks)
        stacks = hvd("stacks", "-n", ns, "seen", "--examine")
        expect("main thread" in stacks, "an examination", stacks)
        wait("the same stacks", lambda: p.get(f"{path}/stacks").get("text") == stacks, 120)
        events = [e["reason"] for e in p.get(f"{path}/events")["events"]]
        expect("JobRunning" in events and "Started" in events, "of the job and of its pods", events)
        with Stream(p, p.token) as s:
            s.wait("all jobs", lambda e, d: e == "jobs" and any(r["name"] == "seen" for r in d["jobs"]))
            old = leader()["metadata"]
            kubectl("delete", "pod", old["name"], "-n", old["namespace"], "--wait=false")
            wait("the stream ends", lambda: s.is_over, 180)
        wait("another leads", lambda: leader()["metadata"]["name"] != old["name"], 180)
        wait("the page is back on the same port", lambda: p.get(path).get("report"), 240)
        expect(p.process.poll() is None, "the same command", NOTES.read_text())
    kubectl("delete", "horovodjob", "-n", ns, "seen")
