#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs with spares, and with processes that are late for the first world. TAP.

usage: elastic_spares_test.py [PART OF A NAME ...]     as elastic_test.py
"""

from elastic_job import ADDED, REMOVED, Job, form, formed
from tap import has, main, read, same, write


def end(job, *members):
    for m in members:
        m.do("os._exit(0)")
    job.end(0)


def test_a_spare_takes_the_place_of_a_lost_process(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "--spares", "1", "-H", "localhost:3")
    a, b, spare = (job.member(i) for i in range(3))
    form(a, b)
    spare.ready()
    spare.settles()
    b.kill()
    has(a.broken(), "rank 1 on localhost was killed by signal 9")
    a.ready()
    same([w.rank for w in formed(a, spare)], [0, 1])
    job.member(1, 2).ready()  # the next spare: the world stays as it is
    a.settles()
    same(a.packets, [])
    end(job, a, spare)


def test_the_spares_are_the_last_slots_of_a_list_that_changes(folder):
    write(f"{folder}/hosts", "localhost:3\n")
    job = Job(
        folder, "-np", "2", "--min-np", "1", "--max-np", "4", "--spares", "1",
        "--host-discovery-script", f"cat {folder}/hosts",
    )  # fmt: skip
    a, b, spare = (job.member(i) for i in range(3))
    form(a, b)
    spare.ready()
    spare.settles()
    same((a.packets, b.packets), ([], []), read(f"{folder}/hosts"))
    write(f"{folder}/hosts", "localhost:4\n")
    same([m.notified() for m in (a, b)], [ADDED, ADDED])
    a.ready()
    b.ready()
    formed(a, b, spare)
    job.member(3)  # the spare of the larger job
    write(f"{folder}/hosts", "localhost:2\n")
    same([m.notified() for m in (a, b, spare)], [REMOVED] * 3)
    a.ready()
    spare.ready(is_last=True)
    b.ready(is_last=True)
    same(a.formed().size, 1)
    end(job, a)


def test_the_first_world_does_not_wait_for_ever(folder):
    job = Job(folder, "-np", "3", "--min-np", "2", "-H", "localhost:3")
    a, b, late = (job.member(i) for i in range(3))
    form(a, b)  # 30 s later
    has(job.run.err, "the job starts with fewer processes, others are late ready=2 np=3 min_np=2")
    late.ready()
    same([m.notified() for m in (a, b)], [ADDED, ADDED])
    a.ready()
    b.ready()
    formed(a, b, late)
    end(job, a, b, late)


if __name__ == "__main__":
    main(globals())
