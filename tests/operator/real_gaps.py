# SPDX-License-Identifier: Apache-2.0
"""Pods that end and disappear while no operator runs, and the deletion of jobs and namespaces, on a real API server
with its garbage collector; part of real_test.py, which plays the kubelet.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from api import CORE, ended, expect, wait
from real_life import sweep
from real_world import RUN, api, job, no_operator, report, running, runs, state, suite

README = Path(__file__).resolve().parents[2] / "manifests/README.md"
TRACKING = "ringmaster.dev/tracking"


def end_all(ns: str, phase: str, **failure) -> None:
    """The pods end, worker 0 last, and are deleted at once."""
    for name in ("j-worker-1", "j-worker-0"):
        api.set_pod(ns, name, phase, **failure)
    for name in ("j-worker-1", "j-worker-0"):
        api.delete(ns, "pods", name, grace=0)


@suite.test
def a_job_that_succeeded_without_an_operator_does_not_run_again() -> None:
    ns = "t-gap-success"
    old = runs(ns)
    with no_operator():
        end_all(ns, "Succeeded")
        left = api.pods(ns)
    expect(left == {"j-worker-0": old["j-worker-0"]}, "the first worker is kept", left)
    status = state(ns, "Succeeded")
    expect(status["replacements"] == 0, "no restart", status)
    wait("its last pod is gone", lambda: not api.pods(ns))


@suite.test
def a_job_that_failed_without_an_operator_does_not_run_again() -> None:
    ns = "t-gap-failure"
    runs(ns)
    with no_operator():
        end_all(ns, "Failed", **ended(3, report(1, "j-worker-1", 1767225660000400)))
    status = state(ns, "Failed")
    expect(status["failure"]["rank"] == 1 and status["failure"]["pod"] == "j-worker-1", "the cause", status)
    wait("its last pod is gone", lambda: not api.pods(ns))


@suite.test
def a_job_and_its_pods_can_be_deleted_in_every_state() -> None:
    ns = api.namespace("t-gap-delete")
    for end in (None, "Running", "Succeeded"):
        api.make(ns, job())
        if end:
            running(ns)
            state(ns, "Running")
        if end == "Succeeded":
            for name in ("j-worker-0", "j-worker-1"):
                api.set_pod(ns, name, "Succeeded")
        wait("its pods", lambda: len(api.pods(ns)) == 2)
        api.delete(ns, "horovodjobs", "j")
        wait("the pods are gone", lambda: not sweep(ns))
        wait("the Secret is gone", lambda: not api.get(ns, "secrets", "j-token"))


def namespace_is_gone(ns: str) -> bool:
    return api.find(f"/api/v1/namespaces/{ns}") is None


@suite.test
def a_namespace_can_be_deleted() -> None:
    ns = "t-gap-namespace"
    runs(ns)
    api.call("DELETE", f"/api/v1/namespaces/{ns}")
    wait("its pods are gone", lambda: not sweep(ns))
    wait("it is gone", lambda: namespace_is_gone(ns))


def documented_command() -> str:
    """The lines of the README that remove the finalizer of all pods."""
    text = README.read_text().split("Without an operator")[1]
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    expect(TRACKING in "".join(lines), "it is there", lines)
    return "\n".join(lines)


@suite.test
def without_an_operator_the_documented_command_lets_a_namespace_go() -> None:
    ns = "t-gap-orphans"
    runs(ns)
    with no_operator():
        free_by_the_documented_command(ns)


def free_by_the_documented_command(ns: str) -> None:
    api.call("DELETE", f"/api/v1/namespaces/{ns}")
    wait("the pod without the finalizer is gone", lambda: set(sweep(ns)) == {"j-worker-0"})
    path = CORE.format(ns=ns) + "pods/j-worker-0"
    expect(api.call("GET", path)["metadata"]["finalizers"] == [TRACKING], "the first worker is kept")
    env = os.environ | {
        "PATH": f"{RUN / 'bin'}:{os.environ['PATH']}",
        "KUBECONFIG": str(RUN / "admin.kubeconfig"),
    }
    command = documented_command()
    done = subprocess.run(
        ["bash", "-c", command], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    expect(done.returncode == 0, "it works", done.stdout + done.stderr)
    wait("the namespace is gone", lambda: namespace_is_gone(ns))
