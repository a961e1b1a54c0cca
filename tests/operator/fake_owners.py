# SPDX-License-Identifier: Apache-2.0
"""Ownership of objects that hvd-operator changes or deletes and no watch shows: a foreign object in the
place of ours is left alone. Part of fake_test.py.
"""

from __future__ import annotations

from api import expect, wait
from fake_world import World, refuse, suite

GANG = ["--gang-scheduling=volcano"]


def stranger_takes(w: World, plural: str) -> dict:
    """Another object of the same name replaces ours, and no watch has reported it yet."""
    with w.fake.changed:
        w.fake.version += 1
        meta = {"name": "j0", "namespace": "ns", "uid": "theirs", "resourceVersion": str(w.fake.version)}
        w.fake.objects[plural]["ns/j0"] = {"metadata": meta, "spec": {"theirs": True}}
    return w.get(plural, "j0")


@suite.test
def a_foreign_object_in_the_place_of_ours_is_not_changed() -> None:
    with World(extra=GANG) as w:
        w.serves_job()
        theirs = stranger_takes(w, "podgroups")
        w.change("horovodjobs", "j0", replicaSpecs__Worker__replicas=3)
        wait("it is logged", lambda: "PodGroup j0: exists and does not belong" in w.log())
        expect(w.get("podgroups", "j0") == theirs, "theirs is as it was", w.get("podgroups", "j0"))
        w.delete("podgroups", "j0")
        w.run_pods(3)
        wait("ours is recreated", lambda: "ns/j0" in w.fake.objects["podgroups"])


@suite.test
def a_foreign_object_in_the_place_of_ours_is_not_deleted() -> None:
    unseen = refuse("GET", "podgroups", *[(403, "forbidden")] * 99, part="limit")  # so no watch shows it
    with World(unseen, extra=GANG) as w:
        w.serves_job()
        theirs = stranger_takes(w, "podgroups")
        for i in range(2):
            w.set_pod(f"j0-worker-{i}", phase="Succeeded")
        wait("the job has ended", lambda: w.state() == "Succeeded")
        wait("ours was to go", lambda: w.fake.count("DELETE", "podgroups"))
        w.job_runs("j1")
        expect(w.fake.objects["podgroups"].get("ns/j0") == theirs, "theirs is there", w.fake.objects)


@suite.test
def our_recreated_object_is_brought_up_to_date() -> None:
    """With the same owner and another uid: a former leader's late answer, or a restored backup."""
    with World(extra=GANG) as w:
        w.serves_job()
        with w.fake.changed:
            w.fake.objects["podgroups"]["ns/j0"]["metadata"]["uid"] = "another"
        w.change("horovodjobs", "j0", replicaSpecs__Worker__replicas=3)
        wait("its size", lambda: w.fake.objects["podgroups"]["ns/j0"]["spec"]["minMember"] == 3)
        w.run_pods(3)
        log = w.log()
        expect("sync failed" not in log, "at once", log)


@suite.test
def an_answer_that_shows_no_object_is_not_taken_for_one() -> None:
    pages = []

    def hook(w, h, method, plural, query):
        if method == "POST" and plural == "secrets" and not pages:
            pages.append(w.fake.answer(h, 200, "<html>log in first</html>"))
            return True
        return False

    with World(hook) as w:
        w.serves_job()
        expect(len(w.fake.objects["secrets"]) == 1, "it was created", w.fake.objects["secrets"])
        expect("Secret j0-token: the API server's answer shows no object" in w.log(), "the log", w.log())
