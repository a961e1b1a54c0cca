# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: deleted objects of a running job are recreated."""

from __future__ import annotations

from api import expect, wait
from fake_world import OPEN, World, launched, mpijob, suite

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
    def hook(w, h, method, plural, query):
        if method == "GET" and plural in OWNED and "limit" in query:
            w.fake.answer(h, 403, f'{{"code": 403, "message": "{plural} is forbidden"}}')
            return True
        return False

    with Owners(hook) as w:
        w.at_work()
        for kind in ("Service", "ConfigMap", "PodGroup"):
            says = f"{kind}s cannot be listed"
            wait(f"{kind}: told", lambda says=says: says in w.log())
            log = w.log()
            expect(log.count(says) == 1, f"{kind}: told once", log)


@suite.test
def a_deleted_secret_exists_when_all_pods_are_recreated() -> None:
    with World() as w:
        w.serves_job()
        w.delete("secrets", "j0-token")
        old = w.get("pods", "j0-worker-0")["metadata"]["uid"]
        w.delete("pods", "j0-worker-0")

        def is_new() -> bool:
            pod = w.fake.objects["pods"].get("ns/j0-worker-0")
            return bool(pod) and pod["metadata"]["uid"] != old

        wait("new pods", is_new)
        expect("ns/j0-token" in w.fake.objects["secrets"], "after their Secret")
