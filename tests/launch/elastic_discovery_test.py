#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun of elastic jobs whose hosts a discovery script prints. TAP. The processes do what the test says.

usage: elastic_discovery_test.py [PART OF A NAME ...]
"""

import os

from elastic_job import ADDED, REMOVED, Job, form, formed
from elastic_test import places
from launched import executable
from tap import has, is_alive, main, read, same, wait_until, write


def script(folder, body="cat {0}/hosts"):
    write(f"{folder}/hosts", "localhost:2\n")
    return executable(f"{folder}/discover", f"#!/bin/sh\n{body.format(folder)}\n")


def hosts(folder, text):
    """The script's output from now on; never half of it."""
    write(f"{folder}/hosts.new", text)
    os.rename(f"{folder}/hosts.new", f"{folder}/hosts")


def test_discovery_grows_and_shrinks_the_job(folder):
    job = Job(
        folder, "-np", "2", "--min-np", "1", "--max-np", "4", "--host-discovery-script", script(folder)
    )
    a, b = job.world(0, 1)
    hosts(folder, "localhost:4\n")
    c, d = job.member(2), job.member(3)
    c.ready()
    same([m.notified() for m in (a, b)], [ADDED, ADDED])
    d.ready()
    a.ready()
    b.ready()
    formed(a, b, c, d)
    hosts(folder, "localhost:1\n")
    for m in a, b, c, d:
        same(m.notified(), REMOVED)
        m.ready(is_last=m is not a)
    same(places(a.formed()), [(0, 1, 0)])
    job.gone(b, c, d)
    hosts(folder, "localhost:3\n")
    b, c = job.member(1, 2), job.member(2, 2)
    b.ready()
    same(a.notified(), ADDED)
    c.ready()
    a.ready()
    same(places(*formed(a, b, c)), [(0, 3, 2), (1, 3, 2), (2, 3, 2)])
    for m in a, b, c:
        m.do("os._exit(0)")
    job.end(0)


def test_hosts_that_are_all_replaced_give_their_state(folder):
    job = Job(folder, "-np", "2", "--host-discovery-script", script(folder))
    a, b = job.world(0, 1)
    a.commit()
    a.settles()
    hosts(folder, "127.0.0.1:2\n")  # another host, as far as the launcher knows
    job.said("all hosts that have the state of the job leave")
    c, d = job.member(8), job.member(9)
    c.ready()
    same([m.notified() for m in (a, b)], [ADDED | REMOVED] * 2)
    a.ready()
    b.ready(is_last=True)
    same(places(*formed(a, c)), [(0, 2, 1), (1, 2, 1)])
    job.gone(b)
    same([m.notified() for m in (a, c)], [REMOVED] * 2)
    d.ready()
    a.commit()
    c.ready()
    a.ready(is_last=True)
    same(places(*formed(c, d)), [(0, 2, 1), (1, 2, 1)])
    job.gone(a)
    for m in c, d:
        m.do("os._exit(0)")
    assert "begins again" not in job.end(0)


def test_a_discovery_script_that_fails_later_changes_nothing(folder):
    body = "[ ! -e {0}/broken ] || {{ echo >>{0}/tries; exit 7; }}; cat {0}/hosts"
    job = Job(folder, "-np", "2", "--min-np", "1", "--host-discovery-script", script(folder, body))
    a, b = job.world(0, 1)
    write(f"{folder}/broken", "")
    job.said("the host list stays as it is")
    has(job.run.err, "exited with code 7")
    job.until("it fails again", lambda: read(f"{folder}/tries").count("\n") >= 3)
    b.kill()
    a.broken()
    form(a)
    os.remove(f"{folder}/broken")
    hosts(folder, "localhost:3\n")
    job.member(2)
    a.do("os._exit(0)")
    same(job.end(0).count("the host list stays as it is"), 1)


def test_a_discovery_script_that_hangs_does_not_hold_up_the_job(folder):
    body = "[ ! -e {0}/hang ] || {{ echo $$ > {0}/pid; exec sleep 1000; }}; cat {0}/hosts"
    job = Job(folder, "-np", "2", "--min-np", "1", "--host-discovery-script", script(folder, body))
    a, b = job.world(0, 1)
    write(f"{folder}/hang", "")
    job.until("it hangs", lambda: os.path.exists(f"{folder}/pid") and os.path.getsize(f"{folder}/pid"))
    with open(f"{folder}/pid", encoding="ascii") as f:
        pid = int(f.read())
    assert is_alive(pid)
    b.kill()
    a.broken()
    form(a)
    a.do("os._exit(0)")
    job.end(0)
    wait_until("the script has ended", lambda: not is_alive(pid))


if __name__ == "__main__":
    main(globals())
