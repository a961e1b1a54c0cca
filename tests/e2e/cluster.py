# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: kubectl, waiting with a deadline, HorovodJobs.

The tests talk to the cluster as a person would, through kubectl, and look at processes through
/proc, because the nodes are namespaces of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/operator"))
import api  # noqa: E402
from api import Late, Suite, condition, expect, manifest  # noqa: E402, F401  the tests have them from here

RUN = Path(os.environ.get("RM_RUN", "/tmp/ringmaster-cluster"))
IMAGE = "localhost/train-torch:1"
SEED = int(os.environ.get("E2E_SEED", random.SystemRandom().randrange(1 << 32)))


class Refused(Exception):
    """kubectl exited non-zero; the text is its standard error."""


def kubectl(*args: str, stdin: str | None = None, timeout: float = 180) -> str:
    """Runs kubectl as administrator; returns its standard output. The time is there against hangs."""
    for _ in range(3):
        done = subprocess.run(
            [str(RUN / "bin/kubectl"), "--kubeconfig", str(RUN / "admin.kubeconfig"), *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
        if "TLS handshake timeout" not in done.stderr:  # 10 s on a busy machine: nothing was asked yet
            break
    raise Refused(done.stderr.strip())


def get(kind: str, name: str, ns: str) -> dict | None:
    """One object, None when there is none."""
    text = kubectl("get", kind, name, "-n", ns, "-o", "json", "--ignore-not-found")
    return json.loads(text) if text else None


def items(kind: str, ns: str, *args: str) -> list[dict]:
    return json.loads(kubectl("get", kind, "-n", ns, "-o", "json", *args))["items"]


def hold_back(job: dict, which: str) -> None:
    """Workers whose host name is like `which` do not get beyond an init container before release()."""
    spec = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    until = f"case $(hostname) in {which}) until [ -e /tmp/go ]; do sleep 0.1; done ;; esac"
    image = spec["containers"][0]["image"]
    spec["initContainers"] = [{"name": "held", "image": image, "command": ["sh", "-c", until]}]


def release(ns: str, *pods: str) -> None:
    """Each as soon as it is held: on a busy machine a kubelet may not have come to that container yet."""
    for pod in pods:
        wait(f"{pod} can be released", lambda pod=pod: let_go(ns, pod), 180)


def let_go(ns: str, pod: str) -> bool:
    """Whether the held container has ended. It does so at once, maybe before kubectl has the answer of exec."""
    with contextlib.suppress(Refused):
        kubectl("exec", "-n", ns, pod, "-c", "held", "--", "touch", "/tmp/go")
    seen = (get("pod", pod, ns) or {}).get("status", {}).get("initContainerStatuses", [])
    return any(c["name"] == "held" and "terminated" in c["state"] for c in seen)


def says(ns: str, pod: str, words: str) -> bool:
    """Whether the pod's log has the words."""
    try:
        return words in kubectl("logs", "-n", ns, pod, "-c", "main")
    except Refused:
        return False


def wait(what: str, look, seconds: float):
    """Less often than api.wait() by default: a look is a kubectl."""
    return api.wait(what, look, seconds, 0.3)


def pod_template(command: list[str], **pod_spec) -> dict:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": command,
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    container.update(pod_spec.pop("container", {}))
    return {"spec": {"terminationGracePeriodSeconds": 2, "containers": [container], **pod_spec}}


def horovodjob(name: str, command: list[str], workers: int = 2, slots: int = 1, **pod_spec) -> dict:
    """A small job; pod_spec is merged into the pod's spec, `container` into its container."""
    worker = {"replicas": workers, "template": pod_template(command, **pod_spec)}
    spec = {"runPolicy": {"cleanPodPolicy": "None"}, "replicaSpecs": {"Worker": worker}}
    return manifest("ringmaster.dev/v1beta1", "HorovodJob", name, spec=spec | {"slotsPerWorker": slots})


def apply(obj: dict, ns: str) -> str:
    return kubectl("apply", "-n", ns, "-f", "-", stdin=json.dumps(obj))


def namespace(name: str, **labels: str) -> str:
    """A namespace for one test, empty: what an earlier run left is deleted first."""
    kubectl("delete", "namespace", name, "--ignore-not-found", timeout=240)
    kubectl("create", "namespace", name)
    for key, value in labels.items():
        kubectl("label", "namespace", name, f"pod-security.kubernetes.io/{key}={value}")
    wait("the namespace's service account", lambda: get("serviceaccount", "default", name), 120)
    return name


def status_of(name: str, ns: str) -> dict:
    return (get("horovodjob", name, ns) or {}).get("status", {})


def wait_state(name: str, ns: str, *states: str, seconds: float = 240) -> dict:
    """Waits for one of the states and returns the status; another final state fails at once."""
    last: dict = {}

    def look():
        nonlocal last
        last = status_of(name, ns)
        state = last.get("state")
        if state in ("Succeeded", "Failed") and state not in states:
            raise AssertionError(
                f"job {name} is {state}, not {' or '.join(states)}\n"
                + json.dumps(last, indent=1)
                + "\n"
                + diagnosis(name, ns)
            )
        return state in states and last

    try:
        return wait(f"job {name} {' or '.join(states)}", look, seconds)
    except Late as late:
        raise Late(f"{late}\n{json.dumps(last, indent=1)}\n{diagnosis(name, ns)}") from None


def diagnosis(name: str, ns: str) -> str:
    """What a person would check next: pods, events and the ends of the logs."""
    logs = ("logs", "-l", f"ringmaster.dev/job-name={name}", "--tail", "15", "--all-containers", "--prefix")
    return diagnose(ns, ("get", "pods", "-o", "wide"), ("get", "events"), logs)


def workers(name: str, ns: str) -> list[dict]:
    return items("pods", ns, "-l", f"ringmaster.dev/job-name={name}")


def processes(program: str) -> list[int]:
    """Process ids, as this machine numbers them, whose argv[0] ends in /program or is it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            argv0 = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        except OSError:
            continue
        if argv0.rsplit("/", 1)[-1] == program:
            found.append(int(entry.name))
    return found


def in_this_cluster(pid: int) -> bool:
    """True for a process in a container of one of our nodes (their cgroups carry our id)."""
    import hashlib

    mark = "rm-" + hashlib.sha256(str(RUN.resolve()).encode()).hexdigest()[:6] + "-n"
    try:
        return mark in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def diagnose(ns: str, *commands: tuple[str, ...]) -> str:
    """The output of these commands of kubectl."""
    parts = []
    for args in commands:
        try:
            parts.append(kubectl(*args, "-n", ns))
        except (Refused, subprocess.TimeoutExpired) as e:
            parts.append(str(e))
    return "\n".join(parts)


def run_suite(suite: Suite) -> None:
    print(f"# seed {SEED} (E2E_SEED={SEED} repeats the choices)", flush=True)
    try:
        sys.exit(suite.main(sys.argv[1:]))
    except subprocess.TimeoutExpired as late:
        print(f"Bail out! {late}")
        sys.exit(1)
