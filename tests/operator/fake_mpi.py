# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: MPIJobs that are too large, and MPIJobs whose annotations change while they run."""

from __future__ import annotations

from api import expect, wait
from fake_world import World, mpijob, suite

LAUNCH = "ringmaster.dev/launch"


def told(w: World, reason: str) -> list[str]:
    return [e["message"] for e in list(w.fake.objects["events"].values()) if e["reason"] == reason]


@suite.test
def an_mpijob_too_large_for_a_config_map_is_refused() -> None:
    name = "a-name-that-is-rather-long-for-a-job"
    with World(jobs=0, before=lambda fake: fake.put("mpijobs", mpijob(name, 8000))) as w:
        wait("it is reported", lambda: told(w, "ValidationError"))
        message = told(w, "ValidationError")[0]
        for part in ("spec.mpiReplicaSpecs.Worker.replicas", "8000 workers", "1048576", "fewer workers"):
            expect(part in message, f"the sentence says {part}", message)
        w.fake.put("mpijobs", mpijob("small"))
        wait("another is served", lambda: "ns/small-worker-1" in w.fake.objects["pods"])
        expect(w.fake.count("POST", "configmaps") == 1, "nothing of the large one was tried")
        expect(not any(name in key for key in w.fake.objects["pods"]), "nor any of its pods")


@suite.test
def an_mpijob_keeps_its_launch_method_when_the_annotation_changes() -> None:
    """begun by agents, then without the annotation; begun with ssh, then with it"""
    for first, then, secret in (
        ("agent", None, "m-token"),
        (None, "agent", "m-ssh"),
        ("agent", "x", "m-token"),
    ):
        begun = mpijob("m", **({LAUNCH: first} if first else {}))
        with World(jobs=0, before=lambda fake, begun=begun: fake.put("mpijobs", begun)) as w:
            w.run_pods(name="m")
            wait("it has begun", lambda w=w: w.fake.objects["mpijobs"]["ns/m"].get("status"))
            job = w.get("mpijobs", "m")
            job["metadata"]["annotations"] = {LAUNCH: then} if then else {}
            w.fake.put("mpijobs", job)
            wait("it is reported", lambda w=w: told(w, "LaunchNotChanged"))
            w.operator.stop()
            pod = w.get("pods", "m-worker-1")
            w.fake.put("pods", pod, "DELETED")
            w.operator = w.begin()
            wait("the worker again", lambda w=w: "ns/m-worker-1" in w.fake.objects["pods"])
            volumes = w.fake.objects["pods"]["ns/m-worker-1"]["spec"]["volumes"]
            names = [v["secret"]["secretName"] for v in volumes if "secret" in v]
            expect(names == [secret], "with the same Secret", names)
            expect(list(w.fake.objects["secrets"]) == [f"ns/{secret}"], "and there is no other")
