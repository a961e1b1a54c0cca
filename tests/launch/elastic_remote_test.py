#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs over three hosts, by ssh and by hvd-agent serve: ranks, agents, hosts are lost and return. TAP.

usage: elastic_remote_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import functools
import os
import signal
import time

import over_ssh
import serve_test
from elastic_job import ADDED, REMOVED, Job, form, formed
from over_ssh import hosts
from tap import has, is_alive, main, read, same, wait_until

WORDS = ["-np", "3", "--min-np", "2", "-H", "a,b,c", "--start-timeout", "5"]
QUICK = {"HVD_PEER_TIMEOUT": "3"}
ONE_S = 1.0  # "fail with the cause on every survivor within 1 s of a death"


def meet(member, world):
    """A process reaches the rendezvous of its world."""
    member.does(f"socket.create_connection(({world.host!r}, {world.port}), 10).close()")


def broken_within(limit_s, members, cause):
    start = time.monotonic()
    for m in members:
        has(m.broken(), cause)
    took_s = time.monotonic() - start
    assert took_s < limit_s, f"{cause}: {took_s:.3f} s"


def joins(job, slot, incarnation, survivors):
    """The successor in a slot comes into the world of the survivors; returns it."""
    new = job.member(slot, incarnation)
    new.ready()
    for m in survivors:
        same(m.notified(), ADDED)
        m.ready()
    for m, world in zip((*survivors, new), formed(*survivors, new)):
        meet(m, world)
    return new


def lose_ranks_agents_and_hosts(job, net):
    """What a job of the hosts a, b and c survives, in turn. Ends the job."""
    a, b, c = (job.member(i) for i in range(3))
    for m, world in zip((a, b, c), form(a, b, c)):
        meet(m, world)
    b.kill()
    broken_within(ONE_S, (a, c), "rank 1 on b was killed by signal 9")
    form(a, c)
    b = joins(job, 1, 2, (a, c))

    os.kill(c.parent, signal.SIGKILL)
    broken_within(ONE_S, (a, b), "host c was lost: ")
    form(a, b)
    wait_until("its rank has ended", lambda: not is_alive(c.pid))
    c = joins(job, 2, 2, (a, b))

    net.cut("b")
    broken_within(60, (a, c), "host b was lost: ")  # after HVD_PEER_TIMEOUT
    form(a, c)
    wait_until("its rank has ended", lambda: not is_alive(b.pid))
    net.join("b")
    b = joins(job, 1, 3, (a, c))
    for m in a, b, c:
        m.do("os._exit(0)")
    return job.end(0)


def test_losses_in_a_job_by_ssh(folder):
    job = Job(folder, *WORDS, starts=functools.partial(over_ssh.start, folder, env=QUICK))
    lose_ranks_agents_and_hosts(job, hosts())
    hosts().nothing_left()


def test_losses_in_a_job_of_agents_that_serve(folder):
    serve_test.HOSTS = hosts()
    with serve_test.Serving(folder, "bc") as s:
        job = Job(folder, *WORDS, starts=functools.partial(s.start, env=QUICK))
        lose_ranks_agents_and_hosts(job, hosts())
        s.only_serving()


def test_an_agent_that_serves_is_started_again(folder):
    serve_test.HOSTS = hosts()
    with serve_test.Serving(folder, "bc") as s:
        job = Job(folder, *WORDS, starts=functools.partial(s.start, env=QUICK))
        a, b, c = job.world(0, 1, 2)
        s.agents["b"].signal(signal.SIGKILL)
        s.agents.pop("b").end()
        broken_within(60, (a, c), "host b was lost: ")
        form(a, c)
        wait_until("its rank has ended", lambda: not is_alive(b.pid))
        s.serve("b", s.token)
        b = joins(job, 1, 2, (a, c))
        for m in a, b, c:
            m.do("os._exit(0)")
        job.end(0)


def test_a_host_that_is_announced_to_go_leaves_at_a_commit(folder):
    serve_test.HOSTS = hosts()
    with serve_test.Serving(folder, "bc") as s:
        job = Job(folder, *WORDS, starts=functools.partial(s.start, env=QUICK))
        a, b, c = job.world(0, 1, 2)
        s.agents["b"].signal(signal.SIGTERM)
        for m in a, b, c:
            same(m.notified(), REMOVED)
        a.ready()
        c.ready()
        b.ready(is_last=True)
        for m, world in zip((a, c), formed(a, c)):
            meet(m, world)
        job.gone(b)
        same(s.agents.pop("b").end(), 143, "the agent that serves ends with its processes")
        for m in a, c:
            m.do("os._exit(0)")
        job.end(0)


def test_processes_that_do_not_leave_in_time_are_stopped(folder):
    serve_test.HOSTS = hosts()
    with serve_test.Serving(folder, "c") as s:
        s.serve("b", s.token, env={"HVD_LEAVE_TIME": "1"})
        job = Job(folder, *WORDS, starts=functools.partial(s.start, env=QUICK))
        a, b, c = job.world(0, 1, 2)
        s.agents["b"].signal(signal.SIGTERM)
        for m in a, b, c:
            same(m.notified(), REMOVED)
        broken_within(30, (a, c), "its hvd-agent received SIGTERM")
        job.gone(b)
        form(a, c)
        s.agents.pop("b").end()
        for m in a, c:
            m.do("os._exit(0)")
        job.end(0)


def test_a_host_without_time_to_leave_is_lost_at_once(folder):
    serve_test.HOSTS = hosts()
    with serve_test.Serving(folder, "c") as s:
        s.serve("b", s.token, env={"HVD_LEAVE_TIME": "0"})
        job = Job(folder, *WORDS, starts=functools.partial(s.start, env=QUICK))
        a, b, c = job.world(0, 1, 2)
        s.agents["b"].signal(signal.SIGTERM)
        broken_within(30, (a, c), "its hvd-agent received SIGTERM")
        job.gone(b)
        form(a, c)
        s.agents.pop("b").end()
        for m in a, c:
            m.do("os._exit(0)")
        job.end(0)


def test_a_host_on_which_no_process_works_is_retired(folder):
    """Where another one takes its place, as HVD_TERMINATION_LOG says; elsewhere its slot is excluded only."""
    serve_test.HOSTS = hosts()
    log = f"{folder}/termination"
    with serve_test.Serving(folder, "c") as s:
        s.serve("b", s.token, env={"HVD_TERMINATION_LOG": log})
        job = Job(folder, *WORDS, "--min-np", "1", starts=functools.partial(s.start, env=QUICK))
        a, b, c = job.world(0, 1, 2)
        b.fails("no luck here")
        broken_within(30, (a, c), "rank 1 on b exited with code 3")
        form(a, c)
        b = job.member(1, 2)
        b.fails("no luck here")
        same(s.agents.pop("b").end(), 75, "the agent that serves ends")
        has(read(log), "rank=1 host=b exit=3 ")
        has(read(log), "no luck here")
        job.said("no process works on a host host=b")
        a.commit()  # or the job would end after the third failure
        a.settles()
        c.fails("no luck here")
        has(a.broken(), "rank 1 on c exited with code 3")
        form(a)
        job.member(2, 2).fails("no luck here")
        job.said("slot=2 host=c for_s=")
        s.serve("b", s.token)
        b = joins(job, 1, 3, (a,))
        same(s.agents["c"].process.poll(), None, "the agent without the variable serves on")
        for m in a, b:
            m.do("os._exit(0)")
        job.end(0)


def test_the_next_leader_numbers_the_hosts_in_another_order(folder):
    serve_test.HOSTS = hosts()
    commands = []
    with serve_test.Serving(folder, "bc") as s:

        def starts(*words):
            commands.append(words)
            env = {**QUICK, "HVD_ELASTIC_JOB": f"job {folder}"}
            return s.start(*words, env=env, tag=f"run{len(commands)}")

        job = Job(folder, "-np", "2", "--min-np", "1", "--verbose", "-H", "b,c", starts=starts)
        b, c = job.world(0, 1)
        job.run.signal(signal.SIGKILL)
        same(job.run.end(), 137)
        job.run = starts(*("c,b" if word == "b,c" else word for word in commands[0]))
        job.said("a process is adopted slot=1 host=b world=1 rank=0")
        job.said("a process is adopted slot=0 host=c world=1 rank=1")
        has(b.says("still here"), "[0]<stdout>:")
        has(c.says("still here, too"), "[1]<stdout>:")
        for m in b, c:
            m.do("os._exit(0)")
        job.end(0)


if __name__ == "__main__":
    main(globals())
