# SPDX-License-Identifier: Apache-2.0
"""The API server, the operator and the helpers of real_test.py and its parts. RM_RUN is the cluster, BIN
the folder of the programs.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from api import Api, Operator, Suite, install, manifest, wait

RUN = Path(os.environ["RM_RUN"])
BIN = Path(os.environ["BIN"])
LOG = RUN / "log/operator-under-test.log"
suite = Suite()
api = Api(str(RUN / "bin/kubectl"), str(RUN / "admin.kubeconfig"))
kubeconfig = install(api, RUN)


def start() -> Operator:
    return Operator(BIN / "hvd-operator", kubeconfig, LOG, "--http-port", "0")


class Current:
    """The operator that serves most tests."""

    operator = start()


def current() -> Operator:
    return Current.operator


def replace(new: Operator) -> None:
    Current.operator = new


@contextlib.contextmanager
def no_operator():
    """Within it none runs; then another one does."""
    current().kill()
    try:
        yield
    finally:
        replace(start())


def rival(*args: str) -> Operator:
    """One of several on a Lease; the operator of the other tests is stopped."""
    current().stop()
    return Operator(BIN / "hvd-operator", kubeconfig, LOG, *args)


def job(name: str = "j", workers: int = 2, clean: str | None = None, **pod) -> dict:
    spec = {"containers": [{"name": "train", "image": "i", "command": ["c", "x"]}], **pod}
    roles = {"Worker": {"replicas": workers, "template": {"spec": spec}}}
    out = manifest("ringmaster.dev/v1beta1", "HorovodJob", name, spec={"replicaSpecs": roles})
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


def report(rank: int, host: str, at_us: int, code: int = 3, sig: int = 0) -> str:
    return (
        f"ringmaster-failure/1 rank={rank} host={host} exit={code} signal={sig} "
        f'at={at_us} why=""\nlast line of rank {rank}\n'
    )


def runs(ns: str, body: dict | None = None, n: int = 2) -> dict[str, str]:
    """Creates the namespace and the job, which runs. Its pods."""
    api.namespace(ns)
    api.make(ns, body or job(workers=n))
    pods = running(ns, n)
    state(ns, "Running")
    return pods
