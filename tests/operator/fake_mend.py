# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: what somebody deletes of a job that runs is made again."""

from __future__ import annotations

import json

from api import expect, wait
from fake_mpi import mpijob
from fake_world import OPEN, World, suite

OWNED = {
    "services": ("l", "m"),
    "configmaps": ("l-hosts", "m-config"),
    "podgroups": ("l", "m"),
}


def launched(name: str) -> dict:
    def role(**more: object) -> dict:
        return {"template": {"spec": {"containers": [{"name": "c", "image": "i", **more}]}}}

    sets = {"Launcher": role(command=["x"]), "Worker": {"replicas": 2, **role()}}
    return {"metadata": {"name": name, "generation": 1}, "spec": {"replicaSpecs": sets}}


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
        launcher = json.loads(json.dumps(self.fake.objects["pods"]["ns/l-launcher-0"]))
        launcher["status"] = {"phase": "Running"}
        self.fake.put("pods", launcher)
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
                self.fake.put(
                    plural, json.loads(json.dumps(self.fake.objects[plural][f"ns/{name}"])), "DELETED"
                )


@suite.test
def what_somebody_deletes_of_a_job_that_runs_is_made_again() -> None:
    for gang in ("volcano", "my-scheduler"):
        with Owners(gang=gang) as w:
            w.at_work()
            w.lose_all()
            wait("all is there again", lambda w=w: not w.missing())
            expect(set(OWNED) <= w.fake.partial, "only metadata is asked for", sorted(w.fake.partial))
            expect(w.state("l") == "Running", "the job goes on")
            listed = [q for m, p, q in w.fake.requests if m == "GET" and p == "secrets" and "limit" in q]
            expect(not listed, "no Secret is listed", listed)


@suite.test
def what_somebody_deletes_while_no_watch_is_open_is_made_again() -> None:
    away = []

    def hook(w, h, method, plural, query):
        if away and method == "GET" and plural in OWNED and "watch" in query:
            w.fake.answer(h, 410, '{"code": 410, "message": "gone"}')
            return True
        return False

    with Owners(hook) as w:
        w.at_work()
        away.append(1)
        w.fake.cut()
        w.lose_all()
        wait("all is there again", lambda: not w.missing())


@suite.test
def what_somebody_deleted_while_no_operator_ran_is_made_again() -> None:
    with Owners() as w:
        w.at_work()
        w.operator.stop()
        for plural in ("services", "configmaps"):
            for name in OWNED[plural]:
                w.fake.put(plural, json.loads(json.dumps(w.fake.objects[plural][f"ns/{name}"])), "DELETED")
        w.operator = w.begin()
        wait("all is there again", lambda: not w.missing())


@suite.test
def without_the_right_to_list_them_all_else_is_done() -> None:
    def hook(w, h, method, plural, query):
        if method == "GET" and plural in OWNED and "limit" in query:
            w.fake.answer(h, 403, f'{{"code": 403, "message": "{plural} is forbidden"}}')
            return True
        return False

    with Owners(hook) as w:
        w.at_work()
        for kind in ("Service", "ConfigMap", "PodGroup"):
            says = f"{kind}s cannot be listed"
            wait(f"{kind}: told", lambda says=says: says in (w.dir / "log").read_text())
            log = (w.dir / "log").read_text()
            expect(log.count(says) == 1, f"{kind}: told once", log)


@suite.test
def a_secret_that_somebody_deleted_is_there_when_all_pods_are_made_anew() -> None:
    with World() as w:
        w.goes_on()
        w.fake.put("secrets", json.loads(json.dumps(w.fake.objects["secrets"]["ns/j0-token"])), "DELETED")
        pod = json.loads(json.dumps(w.fake.objects["pods"]["ns/j0-worker-0"]))
        old = pod["metadata"]["uid"]
        w.fake.put("pods", pod, "DELETED")
        wait(
            "new pods",
            lambda: (
                w.fake.objects["pods"].get("ns/j0-worker-0", {}).get("metadata", {}).get("uid", old) != old
            ),
        )
        expect("ns/j0-token" in w.fake.objects["secrets"], "after their Secret")
