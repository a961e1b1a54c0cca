#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Before all workers of a job are present: late, replaced, leaving and absent workers. TAP.

usage: start_test.py [PART OF A NAME ...]     as agent_test.py
"""

import os
import signal
import time

from agent_test import BIN, Job, failure, loop
from tap import has, has_signal, main, read, same, wait_until


def test_workers_start_in_any_order_and_late(folder):
    job = Job(folder, 3)
    for i in 2, 1:
        job.start(i, f"{BIN}/launch-rank")
    wait_until("worker 1 and 2 wait", lambda: all(job.agents[i].process.poll() is None for i in (1, 2)))
    job.start(0, f"{BIN}/launch-rank")
    same(job.end(), [0, 0, 0], job.errors())


def test_no_rank_starts_before_all_are_here(folder):
    job = Job(folder, 2)
    job.start(0, "sh", "-c", f": > {folder}/up.0")
    wait_until("the hub listens", lambda: "worker connected" in job.agents[0].err)
    assert not os.path.exists(f"{folder}/up.0")
    job.start(1, "true")
    same(job.end(), [0, 0], job.errors())
    assert os.path.exists(f"{folder}/up.0")


def test_a_hub_that_is_replaced_before_the_start_is_no_failure(folder):
    job = Job(folder, 3)
    first = job.start(0, "true", name="first")
    job.start(1, "true")
    wait_until("worker 1 is here", lambda: "worker connected worker=1" in first.err)
    first.signal(signal.SIGKILL)
    same(first.end(), 137)
    job.start(0, "true")
    job.start(2, "true")
    same(job.end(), [0, 0, 0], job.errors())


def test_a_missing_worker_0_is_named(folder):
    job = Job(folder, 2, HVD_START_TIMEOUT="1")
    job.start(1, "true")
    same(job.end(), [124], job.errors())
    has(job.log(1), "worker 1 could not reach worker 0 at 127.0.0.1:")


def ends_at_once(job, index, ready):
    """SIGTERM ends the agent without a wait for an answer, which takes 3 s. Of three turns the best counts, for
    others have processors too; ready(agent, turn) is so before the signal."""
    took = []
    while not took or (min(took) >= 2.5 and len(took) < 3):
        agent = job.start(index, "true", name=f"early{len(took)}")
        wait_until("worker 1 is here", lambda: ready(agent, len(took)))  # noqa: B023
        begin = time.monotonic()
        agent.signal(signal.SIGTERM)
        same(agent.end(), 143)
        took.append(time.monotonic() - begin)
    assert min(took) < 2.5, f"it waited for an answer: {took}"
    has(read(f"{job.folder}/early0.log"), f"worker {index} received SIGTERM before the job started")


def test_sigterm_before_the_start_ends_that_agent_alone(folder):
    """Its pod was deleted and is recreated: nothing was lost, and the other agents wait for the next one."""
    job = Job(folder, 3)
    hub = job.start(0, "true")
    ends_at_once(job, 1, lambda _, turn: hub.err.count("worker connected worker=1") > turn)
    has(hub.err, 'worker=1 address=127.0.0.1 cause="it received a signal before the start"')
    for i in 1, 2:
        job.start(i, "true")
    same(job.end(), [0, 0, 0], job.errors())
    same([job.log(i) for i in range(3)], ["", "", ""])


def test_sigterm_of_worker_0_before_the_start_ends_that_agent_alone(folder):
    job = Job(folder, 3)
    job.start(1, "true")
    ends_at_once(job, 0, lambda hub, _: "worker connected worker=1" in hub.err)
    for i in 0, 2:
        job.start(i, "true")
    same(job.end(), [0, 0, 0], job.errors())
    has(job.agents[1].err, "connection to worker 0 lost before the start, retrying")


def test_sigterm_that_crosses_the_start_is_named(folder):
    """The hub has started the job when it receives LEAVING."""
    job = Job(folder, 3)
    for i in 0, 1:
        job.start(i, "sh", "-c", loop(folder))
    wait_until("worker 1 is here", lambda: "worker connected worker=1" in job.agents[0].err)
    job.agents[1].signal(signal.SIGSTOP)
    job.start(2, "sh", "-c", loop(folder))
    wait_until("worker 0 runs", lambda: "ranks started" in job.agents[0].err)
    job.agents[1].signal(signal.SIGTERM)
    job.agents[1].signal(signal.SIGCONT)
    same(job.end(), [143] * 3, job.errors())
    has(job.logs_name(failure(-1, 0, signal.SIGTERM)), "worker 1 received SIGTERM")


def test_sigterm_while_worker_0_is_missing_ends_the_agent(folder):
    job = Job(folder, 2)
    agent = job.start(1, "true", HVD_CHECKIN_ADDR="127.0.0.1")
    wait_until("it takes signals", lambda: has_signal(agent.pid, "SigBlk", signal.SIGTERM))
    agent.signal(signal.SIGTERM)
    same(agent.end(20), 143)  # HVD_START_TIMEOUT is 30 s


if __name__ == "__main__":
    main(globals())
