# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: MPIJobs that are too large."""

from __future__ import annotations

from api import expect, wait
from fake_world import World, mpijob, suite


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
