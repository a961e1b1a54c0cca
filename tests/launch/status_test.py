#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun --status: what running jobs of this host do. TAP.

usage: status_test.py [PART OF A NAME ...]     as agent_test.py
"""

import json
import os
import signal
import subprocess

from launched import BIN, HOROVODRUN, environment, scratch, start
from tap import DEADLINE_S, has, main, read, same, wait_until


def ask(folder, *words):
    return subprocess.run(
        [HOROVODRUN, "--status", *words],
        env=environment(TMPDIR=folder),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def statuses(folder):
    """The jobs in this folder, by JSON."""
    return [json.loads(line) for line in ask(folder, "--json").stdout.splitlines()]


def wait_for_state(folder, state):
    def has_state():
        jobs = statuses(folder)
        return jobs[0] if jobs and jobs[0]["state"] == state else None

    return wait_until(f"the job is {state}", has_state)


def world(folder, *flags, **more):
    env = environment(TMPDIR=folder, **more)
    words = [f"{BIN}/launch-world", "50", f"{folder}/go"]
    return start(folder, "-np", "2", *flags, *words, env=env)


def go(folder):
    open(f"{folder}/go", "w").close()


def test_a_running_job_is_shown(folder):
    asked = ask(folder)
    same((asked.returncode, asked.stdout), (1, ""))
    same(
        asked.stderr,
        "horovodrun: --status: no horovodrun of this user and TMPDIR runs a job on this host\n",
    )
    run = world(folder)
    now = wait_for_state(folder, "Training")
    same((now["ranks"], now["workers"]), (2, 1))
    lines = ask(folder).stdout.splitlines()
    same(lines[:2], [f"horovodrun, process {run.pid}", "Training: 2 ranks on 1 workers"])
    table = [line.split() for line in ask(folder, "--verbose").stdout.splitlines()]
    same([row[2] for row in table if row and row[0] in ("0", "1")], ["InWorld", "InWorld"])
    go(folder)
    same(run.end(), 0)
    same(scratch(folder), [], "scratch")


def test_a_stall_is_shown_with_its_stacks(folder):
    run = world(folder, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    wait_for_state(folder, "Stalled")
    wait_until("the ranks are examined", lambda: statuses(folder)[0]["stall"].get("hasStacks"))
    text = ask(folder, "--verbose").stdout
    has(text, "Stalled: rank 1 (host ")
    has(text, "usleep")
    has(run.err, "the job hangs")
    go(folder)
    same(run.end(), 0)


def test_all_jobs_of_the_user_are_shown(folder):
    runs = [world(folder) for _ in range(2)]
    wait_until("both train", lambda: [s["state"] for s in statuses(folder)] == ["Training"] * 2)
    same(ask(folder).stdout.count("horovodrun, process "), 2)
    go(folder)
    same([r.end() for r in runs], [0, 0])


def test_what_a_killed_horovodrun_left_is_no_job(folder):
    run = world(folder)
    wait_for_state(folder, "Training")
    os.makedirs(f"{folder}/hvd-0123456789ab")
    with open(f"{folder}/hvd-0123456789ab/status", "w", encoding="ascii") as f:
        f.write("1 1 none\n")
    with open(f"{folder}/hvd-0123456789ab/token", "w", encoding="ascii") as f:
        f.write("ab" * 32)
    os.chmod(f"{folder}/hvd-0123456789ab/token", 0o600)
    same(len(statuses(folder)), 1)
    run.signal(signal.SIGKILL)
    wait_until("nothing runs", lambda: ask(folder).returncode == 1)


def test_a_folder_of_another_user_is_not_opened(folder):
    if os.geteuid() != 0:
        return  # it cannot be made
    other = f"{folder}/hvd-0123456789ab"
    os.mkdir(other)
    os.mkfifo(f"{other}/status")
    os.chown(other, 65534, 65534)
    same(ask(folder).returncode, 1)


def stats_dir(folder):
    """HVD_STATS_DIR of the ranks."""
    pid = json.loads(ask(folder, "--json", "--verbose").stdout.splitlines()[1])[0]["pid"]
    env = read(f"/proc/{pid}/environ").split("\0")
    return next(v.split("=", 1)[1] for v in env if v.startswith("HVD_STATS_DIR="))


def test_pages_are_in_memory_and_nothing_is_left_of_them(folder):
    run = world(folder)
    wait_for_state(folder, "Training")
    where = stats_dir(folder)
    same(sorted(os.listdir(where))[:2], ["rank.0", "rank.1"])
    fs = subprocess.run(["stat", "-f", "-c", "%T", where], capture_output=True, text=True, check=True)
    same(fs.stdout, "tmpfs\n")
    run.signal(signal.SIGKILL)
    wait_until("the guard has removed them", lambda: not os.path.exists(where))
    run = world(folder)
    wait_for_state(folder, "Training")
    where = stats_dir(folder)
    go(folder)
    same(run.end(), 0)
    assert not os.path.exists(where)


def test_the_status_file_is_private(folder):
    run = world(folder)
    wait_for_state(folder, "Training")
    (own,) = scratch(folder)
    same(oct(os.stat(f"{folder}/{own}/status").st_mode & 0o777), oct(0o600))
    has(read(f"{folder}/{own}/status"), f" {run.pid} ")
    go(folder)
    same(run.end(), 0)


if __name__ == "__main__":
    main(globals())
