# SPDX-License-Identifier: Apache-2.0
"""For fake_test.py: PodGroups of jobs that are scaled and suspended, of both schedulers and both kinds of jobs."""

from __future__ import annotations

from api import expect, wait
from fake_world import World, mpijob, refuse, suite

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
