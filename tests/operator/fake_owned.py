# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: objects that hvd-operator makes for a job. Deleted ones are recreated; a foreign object in the
place of ours, which no watch shows, is left alone; PodGroups follow jobs that are scaled and suspended.
"""

from __future__ import annotations

from api import expect, wait
from fake_world import OPEN, World, launched, mpijob, refuse, suite

OWNED = {
    "services": ("l", "m"),
    "configmaps": ("l-hosts", "m-config"),
    "podgroups": ("l", "m"),
}


class Owners(World):
    """A job of each kind, both at work, under a gang scheduler."""

    def __init__(self, hook=None, gang: str = "volcano"):
        def jobs(fake) -> None:
            fake.put("horovodjobs", launched("l"))
            fake.put("mpijobs", mpijob("m"))

        super().__init__(hook, jobs=0, before=jobs, extra=[f"--gang-scheduling={gang}", *OPEN])

    def at_work(self) -> None:
        self.run_pods(name="l")
        self.run_pods(name="m")
        wait("the launcher", lambda: "ns/l-launcher-0" in self.fake.objects["pods"])
        self.set_pod("l-launcher-0", phase="Running")
        wait("the HorovodJob runs", lambda: self.state("l") == "Running")
        wait("all is there", lambda: not self.missing())

    def missing(self) -> list[str]:
        return [
            f"{plural}/{name}"
            for plural, names in OWNED.items()
            for name in names
            if f"ns/{name}" not in self.fake.objects[plural]
        ]

    def lose_all(self) -> None:
        for plural, names in OWNED.items():
            for name in names:
                self.delete(plural, name)


@suite.test
def deleted_objects_of_a_running_job_are_recreated() -> None:
    """Seen by a watch, or by a list because no watch was open."""
    for gang, is_watched in ("volcano", True), ("my-scheduler", True), ("volcano", False):
        away = []

        def hook(w, h, method, plural, query, away=away):
            if away and method == "GET" and plural in OWNED and "watch" in query:
                w.fake.answer(h, 410, '{"code": 410, "message": "gone"}')
                return True
            return False

        with Owners(hook, gang) as w:
            w.at_work()
            if not is_watched:
                away.append(1)
                w.fake.cut()
            w.lose_all()
            wait("all are present again", lambda w=w: not w.missing())
            expect(set(OWNED) <= w.fake.partial, "only metadata is requested", sorted(w.fake.partial))
            expect(w.state("l") == "Running", "the job continues")
            listed = [q for m, p, q in w.fake.requests if m == "GET" and p == "secrets" and "limit" in q]
            expect(not listed, "no Secret is listed", listed)


@suite.test
def objects_deleted_while_no_operator_ran_are_recreated() -> None:
    with Owners() as w:
        w.at_work()
        w.operator.stop()
        for plural in ("services", "configmaps"):
            for name in OWNED[plural]:
                w.delete(plural, name)
        w.operator = w.begin()
        wait("all are present again", lambda: not w.missing())


@suite.test
def without_the_right_to_list_objects_everything_else_works() -> None:
    with Owners(refuse("GET", " ".join(OWNED), *[(403, "forbidden")] * 99, part="limit")) as w:
        w.at_work()
        for kind in ("Service", "ConfigMap", "PodGroup"):
            says = f"{kind}s cannot be listed"
            wait(f"{kind}: told", lambda says=says: says in w.log())
            log = w.log()
            expect(log.count(says) == 1, f"{kind}: told once", log)


# --- foreign objects ---------------------------------------------------------------------
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


# --- PodGroups ---------------------------------------------------------------------------
GANGS = ("volcano", "my-scheduler")
SCALE = "replicaSpecs__Worker__replicas"


def group(w: World, name: str) -> dict:
    return w.fake.objects["podgroups"].get(f"ns/{name}", {})


def members(w: World, name: str) -> int:
    return group(w, name).get("spec", {}).get("minMember", 0)


def under(gang: str, hook=None) -> World:
    def with_an_mpijob(fake) -> None:
        fake.put("mpijobs", mpijob("m"))

    return World(hook, before=with_an_mpijob, extra=[f"--gang-scheduling={gang}"])


@suite.test
def a_podgroup_that_could_not_be_made_smaller_is_retried() -> None:
    for gang in GANGS:
        hook = refuse("PATCH", "podgroups", *[(500, "etcd is away")] * 4)
        with under(gang, hook) as w:
            w.serves_job()
            wait("both groups", lambda w=w: (members(w, "j0"), members(w, "m")) == (2, 3))
            w.change("horovodjobs", "j0", **{SCALE: 1})
            w.change("mpijobs", "m", mpiReplicaSpecs__Worker__replicas=1)
            wait("smaller ones", lambda w=w: (members(w, "j0"), members(w, "m")) == (1, 2))
            expect(len(hook.times) > 4, "it was retried", hook.times)


@suite.test
def a_podgroup_is_deleted_with_suspension_after_a_restart() -> None:
    for gang in GANGS:
        with under(gang) as w:
            w.serves_job()
            wait("both groups", lambda w=w: group(w, "j0") and group(w, "m"))
            w.operator.stop()
            w.change("horovodjobs", "j0", runPolicy__suspend=True)
            w.change("mpijobs", "m", runPolicy__suspend=True)
            w.operator = w.begin()
            wait("no group", lambda w=w: not group(w, "j0") and not group(w, "m"))


@suite.test
def a_foreign_podgroup_stays_when_a_job_of_its_name_is_suspended() -> None:
    with under("volcano") as w:
        w.operator.stop()
        w.fake.put("podgroups", {"metadata": {"name": "j0"}, "spec": {"minMember": 7}})
        w.change("horovodjobs", "j0", runPolicy__suspend=True)
        asked = w.fake.count("GET", "podgroups")
        w.operator = w.begin()
        wait(
            "it is looked at", lambda: w.state() == "Suspended" and w.fake.count("GET", "podgroups") > asked
        )
        w.change(
            "horovodjobs", "j0", runPolicy__suspend=False, runPolicy__schedulingPolicy={"gang": "none"}
        )
        w.run_pods()
        expect(members(w, "j0") == 7, "it is left alone")
