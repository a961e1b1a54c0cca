#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals to horovodrun: forwarded, ignored, stopping. TAP.

usage: signals_test.py [PART OF A NAME ...]
"""

import os
import re
import signal
import subprocess
import time

from launched import BIN, start, start_ranks, wait_for_ranks
from tap import has, is_alive, main, read, same, wait_until


def test_ctrl_c_is_forwarded_and_ranks_may_clean_up(folder):
    program = start_ranks(
        folder,
        2,
        f'trap "echo bye; exit 0" INT; : > {folder}/up.$HOROVOD_RANK; while :; do sleep 0.01; done',
        shell="bash",
    )
    wait_for_ranks(folder)
    program.signal(signal.SIGINT)
    same(program.end(), 130)
    same(program.out.count("bye"), 2)
    has(program.err, "horovodrun: stopped by SIGINT")


def test_what_nohup_ignored_stays_ignored_in_launcher_and_ranks(folder):
    ignored = signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP

    def ignore():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    program = start_ranks(
        folder,
        2,
        f'trap "echo heard" HUP INT QUIT TSTP; : > {folder}/up.$HOROVOD_RANK; '
        f"while [ ! -e {folder}/go ]; do sleep 0.01; done; grep SigIgn /proc/self/status",
        shell="bash",
        preexec_fn=ignore,
    )
    wait_for_ranks(folder)
    for number in ignored:
        program.signal(number)
    open(f"{folder}/go", "w", encoding="ascii").close()
    same(program.end(), 0)
    assert "heard" not in program.out, program.out
    masks = re.findall(r"SigIgn:\s+([0-9a-f]+)", program.out)
    same(len(masks), 2)
    for number in ignored:
        assert all(int(mask, 16) >> (number - 1) & 1 for mask in masks), f"{number} in {masks}"


def test_a_second_signal_kills_what_will_not_end(folder):
    for number, code in (signal.SIGINT, 130), (signal.SIGTERM, 143):
        sub = f"{folder}/{number}"
        os.mkdir(sub)
        program = start_ranks(
            sub,
            2,
            f'trap ": > {sub}/heard.$HOROVOD_RANK" INT TERM; echo $$ > {sub}/new.$HOROVOD_RANK; '
            f"mv {sub}/new.$HOROVOD_RANK {sub}/up.$HOROVOD_RANK; while :; do sleep 0.01; done",
            shell="bash",
        )
        wait_for_ranks(sub)
        pids = [int(read(f"{sub}/up.{i}")) for i in range(2)]
        program.signal(number)
        wait_until("ranks have it", lambda sub=sub: all(os.path.exists(f"{sub}/heard.{i}") for i in (0, 1)))
        assert is_alive(program.pid)
        program.signal(number)
        same(program.end(20), code)  # the first one gives them 30 s
        wait_until("all are gone", lambda pids=pids: not any(map(is_alive, pids)))


def test_a_launcher_killed_at_any_moment_leaves_nothing(folder):
    """From before its first system call to after its ranks run: each time a little later."""
    for moment in range(24):
        number = f"61.{os.getpid()}{moment:02}"
        program = start_ranks(folder, 3, f"sleep {number} & sleep {number}", shell="bash")
        time.sleep(moment * 0.0015)  # which moment that is is left to chance
        program.signal(signal.SIGKILL)
        same(program.end(), 137)

        def left(number=number):
            return subprocess.run(
                ["pgrep", "-f", f"sleep {number}"], stdout=subprocess.DEVNULL, check=False
            )

        wait_until("no process is left", lambda: left().returncode == 1)
        wait_until("no file is left", lambda: not [n for n in os.listdir(folder) if n.startswith("hvd-")])


def ranks_of(pid):
    """The children of a launcher but its guard."""
    children = read(f"/proc/{pid}/task/{pid}/children").split()
    return [int(c) for c in children if read(f"/proc/{c}/comm").strip() == "launch-world"]


def test_a_rank_killed_at_any_moment_ends_the_job_in_its_name(folder):
    """From its exec through hvd_init into its collectives."""
    for moment in range(12):
        program = start(folder, "-np", "3", os.path.join(BIN, "launch-world"), "1000000000")
        pids = wait_until("the ranks have begun", lambda p=program: (r := ranks_of(p.pid))[2:] and r)
        time.sleep(moment * 0.002)  # which moment that is is left to chance
        os.kill(pids[moment % 3], signal.SIGKILL)
        same(program.end(10), 137, program.err)
        has(program.err, f"rank {moment % 3} on localhost was killed by signal 9")
        assert not any(map(is_alive, pids)), pids
        same([n for n in os.listdir(folder) if n.startswith("hvd-")], [], "scratch")


def test_usr1_reaches_the_ranks_and_stops_nothing(folder):
    program = start_ranks(
        folder,
        2,
        f'trap "echo saved; exit 0" USR1; : > {folder}/up.$HOROVOD_RANK; while :; do sleep 0.01; done',
        shell="bash",
    )
    wait_for_ranks(folder)
    program.signal(signal.SIGUSR1)
    same(program.end(), 0)
    same(program.out.count("saved"), 2)


def state(pid):
    return read(f"/proc/{pid}/stat").rsplit(")", 1)[-1].split()[:1]


def test_ctrl_z_stops_the_ranks_and_fg_continues_them(folder):
    program = start_ranks(
        folder,
        2,
        f"echo $$ > {folder}/new.$HOROVOD_RANK; mv {folder}/new.$HOROVOD_RANK {folder}/pid.$HOROVOD_RANK; "
        f"while [ ! -e {folder}/go ]; do sleep 0.01; done",
        shell="bash",  # by fork(): what waits in vfork(), as dash does, is not stopped but waits on
        preexec_fn=os.setpgrp,  # as a shell does: a job of its own in our session
    )
    paths = [f"{folder}/pid.{i}" for i in range(2)]
    wait_until("ranks are up", lambda: all(map(os.path.exists, paths)))
    pids = [program.pid, *(int(read(p)) for p in paths)]
    for _ in range(2):
        program.signal(signal.SIGTSTP)
        wait_until("all are stopped", lambda: all(state(p) == ["T"] for p in pids))
        program.signal(signal.SIGCONT)
        wait_until("all go on", lambda: all(state(p) != ["T"] for p in pids))
    open(f"{folder}/go", "w", encoding="ascii").close()
    same(program.end(), 0)


def test_output_that_a_signal_cuts_off_is_reported_by_rank(folder):
    ours, theirs = os.pipe()
    program = start_ranks(
        folder,
        2,
        f"echo $$ > {folder}/pid.$HOROVOD_RANK; seq -f line-%g 1 $((5000 - 2000 * HOROVOD_RANK))",
        stdout=theirs,
    )
    os.close(theirs)
    pids = [f"{folder}/pid.{i}" for i in range(2)]
    wait_until("the ranks have ended", lambda: all(read(p) and not is_alive(int(read(p))) for p in pids))
    program.signal(signal.SIGTERM)
    same(program.end(), 143)
    with open(ours, encoding="ascii") as pipe:
        got = pipe.read()
    missed = len(got)
    for rank, n in (0, 5000), (1, 3000):
        whole = sum(len(f"[{rank}]<stdout>:line-{i}\n") for i in range(1, n + 1))
        here = sum(len(s) for s in re.split(r"(?<=\n)", got) if s.startswith(f"[{rank}]"))
        told = re.search(rf"output dropped.* rank={rank} stream=stdout bytes=(\d+)", program.err)
        gap = whole - here - (int(told[1]) if told else 0)
        assert 0 <= gap < len("[0]"), f"rank {rank}: {gap} bytes are not told:\n{program.err}"
        missed += (int(told[1]) if told else 0) - whole
    same(missed, 0, "bytes in all; the cut may lie in a prefix, whose rank only the launcher knows")
    has(program.err, "output dropped")


if __name__ == "__main__":
    main(globals())
