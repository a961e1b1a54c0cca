#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-agent report: what the agents of a job say about it while it runs. TAP.

usage: report_test.py [PART OF A NAME ...]     as agent_test.py
"""

import json
import os
import re
import signal
import subprocess

from agent_test import AGENT, UP, Job
from launched import BIN, UNTIL_GO
from tap import DEADLINE_S, has, main, same, secret, wait_until


def ask(job, *words, worker=0, **more):
    env = dict(job.env, HVD_WORKER_INDEX=str(worker), **more)
    return subprocess.run(
        [AGENT, "report", *words], env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )


def report(job, *words, **more):
    """The report as JSON; None while the agent does not answer."""
    asked = ask(job, "--json", *words, **more)
    return json.loads(asked.stdout) if asked.returncode == 0 else None


def wait_for_state(job, state):
    def has_state():
        now = report(job)
        return now if now and now["state"] == state else None

    return wait_until(f"the job is {state}", has_state)


def world(folder, steps):
    """Ranks that wait for the file go in the world, and then take steps."""
    return [f"{BIN}/launch-world", str(steps), f"{folder}/go"]


def go(folder):
    open(f"{folder}/go", "w").close()


def test_a_job_meets_starts_trains(folder):
    job = Job(folder, 2, 1)
    job.start(0, *world(folder, 50))
    now = wait_for_state(job, "Meeting")
    same((now["workers"], now["ranks"]), (2, 0))
    has(ask(job).stdout, "Meeting: 1 of 2 workers are present\n")
    job.start(1, *world(folder, 50))
    now = wait_for_state(job, "Training")
    same((now["ranks"], now["workersPresent"], now["slots"], now["generation"]), (2, 2, 1, 0))
    has(ask(job).stdout, "Training: 2 ranks on 2 workers\n")
    ranks = report(job, "--ranks", worker=1)  # any worker of the job may ask
    same([(r["rank"], r["state"]) for r in ranks], [(0, "InWorld"), (1, "InWorld")])
    for r in ranks:
        has(os.readlink(f"/proc/{r['pid']}/exe"), "launch-world")
        assert r["residentBytes"] > 100000, r
    has(ask(job, "--ranks").stdout.splitlines()[2], " InWorld ")
    seconds = report(job)["seconds"]
    assert seconds["meeting"] > 0 and seconds["stalled"] == 0, seconds
    go(folder)
    same(job.end(), [0, 0], job.errors())


def test_ranks_without_the_runtime_are_starting(folder):
    job = Job(folder, 1, 2).start_all("sh", "-c", UP.format(folder) + UNTIL_GO.format(folder))
    job.ranks_up(2)
    now = wait_for_state(job, "Starting")
    same(now["ranks"], 2)
    wait_until("both have a record", lambda: all(r["pid"] for r in report(job, "--ranks")))
    same([r["state"] for r in report(job, "--ranks")], ["Started"] * 2)
    go(folder)
    same(job.end(), [0], job.errors())


def test_a_reader_without_the_token_is_refused(folder):
    job = Job(folder, 1, 2).start_all(*world(folder, 1))
    wait_for_state(job, "Training")
    asked = ask(job, HVD_TOKEN_FILE=secret(folder, "other", "ab" * 32))
    same((asked.returncode, asked.stdout), (1, ""))
    has(asked.stderr, "hvd-agent: report: ")
    has(asked.stderr, "token")
    asked = ask(job, HVD_JOB_ID="ns/other/uid")
    same((asked.returncode, asked.stdout), (1, ""))
    go(folder)
    same(job.end(), [0], job.errors())


def test_without_an_agent_there_is_one_sentence(folder):
    asked = ask(Job(folder, 1))
    same((asked.returncode, asked.stdout), (1, ""))
    same(asked.stderr, "hvd-agent: report: cannot connect to the agent: Connection refused\n")


def test_wrong_options_are_named(folder):
    job = Job(folder, 1)
    for words, why in (
        (["--jsn"], "unknown option: --jsn"),
        (["--ranks", "--stacks"], "only one kind of report at once: --stacks"),
        (["--stacks", "--json"], "stacks are text, without --json"),
    ):
        asked = ask(job, *words)
        same((asked.returncode, asked.stdout), (2, ""))
        has(asked.stderr, f"hvd-agent: report: {why}")


def test_a_stall_is_reported_while_it_lasts(folder):
    job = Job(folder, 2, 1, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    job.start_all(*world(folder, 50))
    now = wait_for_state(job, "Stalled")
    stall = now["stall"]
    same((stall["missingRanks"], stall["rank"], stall["operation"]), ([1], 1, "ALLREDUCE"))
    same(stall["tensor"], "tensor/0")
    has(stall["message"], 'tensor "tensor/0" (ALLREDUCE)')
    has(ask(job).stdout, "Stalled: ")
    now = wait_until(
        "the ranks are examined", lambda: report(job)["stall"].get("hasStacks") and report(job)
    )
    has(now["stall"]["message"], "rank 1 (host ")
    same(now["stall"]["cause"], "Sleeping")
    stacks = ask(job, "--stacks").stdout
    has(stacks, now["stall"]["message"] + "\n")
    has(stacks, "usleep")
    has(ask(job, "--examine").stdout, "usleep")
    go(folder)
    same(job.end(), [0, 0], job.errors())


def test_a_stall_that_lasts_is_examined_once(folder):
    """Rank 0 writes its record each second; an examination takes longer, and its end is logged."""
    job = Job(folder, 1, 2, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    job.start_all(*world(folder, 50))
    wait_for_state(job, "Stalled")
    wait_until("the stall lasts", lambda: re.search(r"has waited 1[0-9] s", job.errors()))
    same(job.errors().count("the job hangs"), 1)
    go(folder)
    same(job.end(), [0], job.errors())


def test_pages_of_other_hosts_are_not_examined(folder):
    """The user has chosen a folder that all workers share."""
    stats = f"{folder}/stats"
    os.mkdir(stats)
    job = Job(folder, 3, 1, HOROVOD_STALL_CHECK_TIME_SECONDS="1", HVD_STATS_DIR=stats)
    job.start_all(*world(folder, 50))
    wait_for_state(job, "Stalled")
    now = wait_until(
        "the ranks are examined", lambda: report(job)["stall"].get("hasStacks") and report(job)
    )
    same(now["stall"]["cause"], "Sleeping")
    stacks = ask(job, "--stacks").stdout
    assert "has ended" not in stacks, stacks
    has(stacks, "usleep")
    go(folder)
    same(job.end(), [0, 0, 0], job.errors())


def wait_for_records(job):
    wait_until("all have a record", lambda: all(r["pid"] for r in report(job, "--ranks") or [{"pid": 0}]))


def leave_stall(stats, generation, size):
    """A record as a rank 0 that was killed leaves it."""
    with open(f"{stats}/stall.tmp", "w") as f:
        f.write(f"ringmaster-stall/1\nsince_us 1\nseen_us 2\ngeneration {generation}\nsize {size}\npid 1\n")
        f.write("op ALLREDUCE\ntensor left/0\nn_missing 1\nmissing 1 \n")
    os.rename(f"{stats}/stall.tmp", f"{stats}/stall")


def test_a_record_of_another_world_is_no_stall(folder):
    stats = f"{folder}/stats"
    os.mkdir(stats)
    leave_stall(stats, 7, 2)
    job = Job(folder, 1, 2, HVD_STATS_DIR=stats)
    job.start_all("sh", "-c", UP.format(folder) + UNTIL_GO.format(folder))
    job.ranks_up(2)
    wait_for_records(job)  # the file was sent with them
    same(report(job).get("stall"), None)
    leave_stall(stats, 0, 2)
    same(wait_until("the stall of this world", lambda: report(job).get("stall"))["tensor"], "left/0")
    go(folder)
    same(job.end(), [0], job.errors())


def test_a_stall_file_that_is_a_fifo_delays_nothing(folder):
    stats = f"{folder}/stats"
    os.mkdir(stats)
    os.mkfifo(f"{stats}/stall")
    job = Job(folder, 1, 2, HVD_STATS_DIR=stats)
    job.start_all("sh", "-c", UP.format(folder) + UNTIL_GO.format(folder))
    job.ranks_up(2)
    wait_for_records(job)
    go(folder)
    same(job.end(), [0], job.errors())


def test_a_stopped_process_is_named(folder):
    job = Job(folder, 1, 2)
    job.start_all(*world(folder, 50))
    wait_for_state(job, "Training")
    pid = report(job, "--ranks")[1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    stall = wait_for_state(job, "Stalled")["stall"]
    same((stall["rank"], stall["cause"], stall["missingRanks"]), (1, "Stopped", [1]))
    has(stall["message"], f"pid {pid}")
    os.kill(pid, signal.SIGCONT)
    wait_for_state(job, "Training")
    go(folder)
    same(job.end(), [0], job.errors())
    has(job.agents[0].err, "the stall is over")


def test_many_readers_do_not_disturb_the_job(folder):
    job = Job(folder, 1, 2).start_all(*world(folder, 5))
    wait_for_state(job, "Training")
    env = dict(job.env, HVD_WORKER_INDEX="0")
    readers = [
        subprocess.Popen([AGENT, "report"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(60)
    ]
    answers = [r.communicate(timeout=DEADLINE_S)[0] for r in readers]
    assert any(b"Training" in a for a in answers), answers
    for r, answer in zip(readers, answers):
        same(r.returncode == 0, b"Training" in answer)
    job.agents[0].signal(signal.SIGTERM)
    assert job.end() != [0]


if __name__ == "__main__":
    main(globals())
