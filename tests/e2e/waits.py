# SPDX-License-Identifier: Apache-2.0
"""End-to-end test of why a job does not run, in the words of real quotas, schedulers and kubelets; for e2e.py."""

from __future__ import annotations

import json

from cluster import Suite, apply, expect, horovodjob, kubectl, manifest, namespace, status_of, wait

NO_IMAGE = "localhost/no-such-image:1"


def jobs() -> dict[str, dict]:
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    env = {"envFrom": [{"configMapRef": {"name": "settings"}}]}
    made = {
        "gpus": horovodjob("gpus", ["true"], container={"resources": {"limits": {"nvidia.com/gpu": 3}}}),
        "claim": horovodjob("claim", ["true"], volumes=[{"name": "data"} | claim]),
        "image": horovodjob("image", ["true"], container={"image": NO_IMAGE}),
        "never": horovodjob("never", ["true"], container={"image": NO_IMAGE, "imagePullPolicy": "Never"}),
        "settings": horovodjob("settings", ["true"], container=env),
        "program": horovodjob("program", ["true"], schedulerName="nobody"),
    }
    made["gpus"]["spec"]["slotsPerWorker"] = 3
    return made


EXPECTED = {  # how the sentence begins, and more that it has
    "gpus": (
        "all 2 workers wait for the scheduler: 0/",
        " nodes are available: ",
        " Insufficient nvidia.com/gpu",
    ),
    "claim": ("all 2 workers wait for the scheduler: PersistentVolumeClaim data does not exist",),
    "image": ("worker 0 (node n", f") and 1 more cannot pull the image {NO_IMAGE}: "),
    "never": (
        "worker 0 (node n",
        f") and 1 more cannot pull the image {NO_IMAGE}: it is not on the node, and imagePullPolicy is Never",
    ),
    "settings": (
        "worker 0 (node n",
        ') and 1 more cannot start container main: configmap "settings" not found',
    ),
    "program": (
        "all 2 workers wait for the scheduler: none has considered it; see spec.schedulerName of the template",
    ),
}


def tests(suite: Suite) -> None:
    @suite.test
    def a_job_that_does_not_run_says_why() -> None:
        ns = namespace("e2e-why")
        limited = namespace("e2e-why-quota")
        quota = manifest("v1", "ResourceQuota", "team", spec={"hard": {"pods": "1"}})
        kubectl("apply", "-n", limited, "-f", "-", stdin=json.dumps(quota))
        wait(
            "the quota is in force",
            lambda: (
                "pods" in kubectl("get", "resourcequota", "team", "-n", limited, "-o", "jsonpath={.status}")
            ),
            60,
        )
        for job in jobs().values():
            apply(job, ns)
        apply(horovodjob("quota", ["sleep", "1000"]), limited)

        def told(name: str, ns: str, begin: str, *parts: str) -> bool:
            text = status_of(name, ns).get("message", "")
            return text.startswith(begin) and all(p in text for p in parts)

        for name, (begin, *parts) in EXPECTED.items():
            wait(f"{name}: {begin}", lambda n=name, b=begin, p=parts: told(n, ns, b, *p), 240)
            print(f"# {name}: {status_of(name, ns)['message']}")
        why = "'s pod: quota team: pods used 1 of 1, it needs 1"
        wait(f"quota: {why}", lambda: why in status_of("quota", limited).get("message", ""), 240)
        print(f"# quota: {status_of('quota', limited)['message']}")
        before = {name: status_of(name, ns) for name in EXPECTED}
        kubectl("create", "configmap", "settings", "-n", ns, "--from-literal=A=b")
        wait("the obstacle is gone", lambda: status_of("settings", ns).get("state") == "Succeeded", 240)
        for name in ("gpus", "claim", "never", "program"):
            now = status_of(name, ns)
            expect(now == before[name], f"{name}: the status is not written again", before[name], now)
        kubectl("delete", "namespace", ns, limited, "--wait=false")
