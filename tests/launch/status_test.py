#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun --status: what running jobs of this host do. TAP.

usage: status_test.py [PART OF A NAME ...]     as agent_test.py
"""

import json
import os
import re
import signal
import subprocess

from launched import BIN, HOROVODRUN, environment, scratch, start
from tap import DEADLINE_S, Skip, has, main, read, same, wait_until

# The test's launchers have the test's own TMPDIR, but --status also looks in /tmp and /dev/shm, where others of this
# user may run: each test looks at its own jobs, by the launcher's pid or by the TMPDIR of the ranks.


def ask(folder, *words):
    return subprocess.run(
        [HOROVODRUN, "--status", *words],
        env=environment(TMPDIR=folder),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def shown(folder, *words):
    """What is shown of each job, by the pid of its launcher."""
    parts = re.split(r"^horovodrun, process (\d+)\n", ask(folder, *words).stdout, flags=re.MULTILINE)
    return dict(zip(map(int, parts[1::2]), parts[2::2]))


def jobs(folder):
    """The status and the ranks of the jobs in this folder, by JSON."""
    lines = [json.loads(line) for line in ask(folder, "--json", "--verbose").stdout.splitlines()]
    own = f"TMPDIR={folder}"
    return [
        (job, ranks)
        for job, ranks in zip(lines[::2], lines[1::2])
        if ranks and own in read(f"/proc/{ranks[0].get('pid')}/environ").split("\0")
    ]


def statuses(folder):
    return [job for job, _ in jobs(folder)]


def wait_for_state(folder, state):
    def has_state():
        found = statuses(folder)
        return found[0] if found and found[0]["state"] == state else None

    return wait_until(f"the job is {state}", has_state)


def world(folder, *flags, **more):
    env = environment(TMPDIR=folder, **more)
    words = [f"{BIN}/launch-world", "50", f"{folder}/go"]
    return start(folder, "-np", "2", *flags, *words, env=env)


def go(folder):
    open(f"{folder}/go", "w").close()


def test_where_no_job_runs_that_is_reported(folder):
    alone = ["unshare", "--map-root-user", "--mount", "bash", "-c"]  # with folders of its own
    empty = "exec 3<$0; mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && exec -a horovodrun /proc/self/fd/3 --status"
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        raise Skip("mount namespaces are not allowed here")
    asked = subprocess.run(
        [*alone, empty, HOROVODRUN],
        env=environment(TMPDIR="/tmp"), capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    same((asked.returncode, asked.stdout), (1, ""))
    same(
        asked.stderr,
        "horovodrun: --status: no horovodrun of this user and TMPDIR runs a job on this host\n",
    )


def test_a_running_job_is_shown(folder):
    run = world(folder)
    now = wait_for_state(folder, "Training")
    same((now["ranks"], now["workers"]), (2, 1))
    same(shown(folder)[run.pid].splitlines()[0], "Training: 2 ranks on 1 workers")
    table = [line.split() for line in shown(folder, "--verbose")[run.pid].splitlines()]
    same([row[2] for row in table if row and row[0] in ("0", "1")], ["InWorld", "InWorld"])
    go(folder)
    same(run.end(), 0)
    same(scratch(folder), [], "scratch")


def test_a_stall_is_shown_with_its_stacks(folder):
    run = world(folder, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    wait_for_state(folder, "Stalled")
    wait_until("the ranks are examined", lambda: statuses(folder)[0]["stall"].get("hasStacks"))
    text = shown(folder, "--verbose")[run.pid]
    has(text, "Stalled: rank 1 (host ")
    has(text, "usleep")
    has(run.err, "the job hangs")
    go(folder)
    same(run.end(), 0)


def test_all_jobs_of_the_user_are_shown(folder):
    runs = [world(folder) for _ in range(2)]
    wait_until("both train", lambda: [s["state"] for s in statuses(folder)] == ["Training"] * 2)
    same({r.pid for r in runs} - shown(folder).keys(), set())
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
    same({1, run.pid} & shown(folder).keys(), {run.pid})
    run.signal(signal.SIGKILL)
    wait_until("nothing runs", lambda: run.pid not in shown(folder))


def test_a_folder_of_another_user_is_not_opened(folder):
    if os.geteuid() != 0:
        return  # it cannot be made
    other = f"{folder}/hvd-0123456789ab"
    os.mkdir(other)
    os.mkfifo(f"{other}/status")
    os.chown(other, 65534, 65534)
    ask(folder)  # to open the pipe would take forever


def stats_dir(folder):
    """HVD_STATS_DIR of the ranks."""
    pid = jobs(folder)[0][1][0]["pid"]
    env = read(f"/proc/{pid}/environ").split("\0")
    return next(v.split("=", 1)[1] for v in env if v.startswith("HVD_STATS_DIR="))


def test_pages_are_in_memory_and_nothing_is_left_of_them(folder):
    run = world(folder)
    wait_for_state(folder, "Training")
    where = stats_dir(folder)
    same({"rank.0", "rank.1"} - set(os.listdir(where)), set())
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
