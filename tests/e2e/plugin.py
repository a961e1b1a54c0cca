# SPDX-License-Identifier: Apache-2.0
"""kubectl hvd on a cluster with real pods: logs, hosts, top, stacks, timeline, restart; part of e2e.py."""

from __future__ import annotations

import json
import os
import subprocess

from cluster import (
    ROOT,
    RUN,
    Suite,
    apply,
    expect,
    horovodjob,
    items,
    kubectl,
    namespace,
    says,
    wait,
    wait_state,
)

BIN = ROOT / os.environ.get("BUILD", "build") / "plain/bin"
ENVIRONMENT = os.environ | {
    "KUBECONFIG": str(RUN / "admin.kubeconfig"),
    "PATH": f"{BIN}:{RUN}/bin:{os.environ['PATH']}",
}
PROGRAM = """
import time
import torch
import horovod.torch as hvd
hvd.init()
print("rank", hvd.rank(), "begins", flush=True)
while True:
    hvd.allreduce(torch.ones(4), name="step")
    time.sleep(0.05)
"""


def hvd(*args: str) -> str:
    """The plug-in, as kubectl finds it in PATH."""
    done = subprocess.run(
        [str(RUN / "bin/kubectl"), "hvd", *args],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    expect(done.returncode == 0, "kubectl hvd", args, done.stdout, done.stderr)
    return done.stdout


def kubectl_hvd_shows_ranks() -> None:
    ns = namespace("e2e-plugin")
    job = horovodjob("ranks", ["python3", "-c", PROGRAM], workers=2, slots=2)
    job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"].append(
        {"name": "HOROVOD_TIMELINE", "value": "/tmp/timeline.json"}
    )
    apply(job, ns)
    wait_state("ranks", ns, "Running")
    wait("rank 3 begins", lambda: says(ns, "ranks-worker-1", "rank 3 begins"), 240)
    expect(hvd("logs", "-n", ns, "ranks", "--rank", "3") == "rank 3 begins\n", "the lines of rank 3 only")
    every = hvd("logs", "-n", ns, "ranks")
    expect(all(f"rank {rank} begins" in every for rank in range(4)), "all ranks", every)
    hosts = json.loads(hvd("hosts", "-n", ns, "ranks", "-o", "json"))
    nodes = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in items("pods", ns)}
    expect([h["ranks"] for h in hosts] == ["0-1", "2-3"], "ranks of the workers", hosts)
    expect(all(nodes[h["pod"]] == h["node"] for h in hosts), "their nodes", hosts, nodes)

    def ranks() -> list[dict]:
        seen = json.loads(hvd("top", "-n", ns, "ranks", "-o", "json"))
        return seen if len(seen) == 4 and all(r.get("stepsPerSecond", 0) > 0 for r in seen) else []

    seen = wait("steps of all ranks", ranks, 120)
    expect([r["worker"] for r in seen] == [0, 0, 1, 1], "their workers", seen)
    stacks = hvd("stacks", "-n", ns, "ranks", "--examine")
    expect("allreduce" in stacks or "sleep" in stacks, "what the ranks do", stacks)
    expect(hvd("timeline", "-n", ns, "ranks", "-o", "-").startswith("["), "the timeline")


def kubectl_hvd_restarts_a_job() -> None:
    ns = namespace("e2e-plugin-restart")
    apply(horovodjob("again", ["python3", "-c", PROGRAM], workers=1), ns)
    wait_state("again", ns, "Running")
    before = {p["metadata"]["uid"] for p in items("pods", ns)}
    hvd("restart", "-n", ns, "again")
    status = wait_state("again", ns, "Running")
    after = {p["metadata"]["uid"] for p in items("pods", ns)}
    expect(not before & after and status["restarts"] == 0, "new pods, no restart counted", status)
    kubectl("delete", "horovodjob", "-n", ns, "again")


def tests(suite: Suite) -> None:
    suite.test(kubectl_hvd_shows_ranks)
    suite.test(kubectl_hvd_restarts_a_job)
