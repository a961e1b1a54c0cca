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

from launched import BIN, UNTIL_GO, looping, scratch, start, start_ranks, up
from tap import children, has, is_alive, main, read, same, wait_until


def signalled(folder, number, first):
    """Two ranks that carry out first, whose launcher then receives a signal."""
    program = start(folder, "-np", "2", *looping(folder, first, "bash"))
    up(folder, 2)
    program.signal(number)
    return program


def test_ctrl_c_is_forwarded_and_ranks_may_clean_up(folder):
    program = signalled(folder, signal.SIGINT, 'trap "echo bye; exit 0" INT')
    same(program.end(), 130)
    same(program.out.count("bye"), 2)
    has(program.err, "horovodrun: stopped by SIGINT")


def test_usr1_reaches_the_ranks_and_stops_nothing(folder):
    program = signalled(folder, signal.SIGUSR1, 'trap "echo saved; exit 0" USR1')
    same(program.end(), 0)
    same(program.out.count("saved"), 2)


def test_what_nohup_ignored_stays_ignored_in_launcher_and_ranks(folder):
    ignored = signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP

    def ignore():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    first, loop = 'trap "echo caught" HUP INT QUIT TSTP', UNTIL_GO.format(folder)
    ranks = looping(folder, first, "bash", f"{loop}; grep SigIgn /proc/self/status")
    program = start(folder, "-np", "2", *ranks, preexec_fn=ignore)
    up(folder, 2)
    for number in ignored:
        program.signal(number)
    open(f"{folder}/go", "w", encoding="ascii").close()
    same(program.end(), 0)
    assert "caught" not in program.out, program.out
    masks = re.findall(r"SigIgn:\s+([0-9a-f]+)", program.out)
    same(len(masks), 2)
    for number in ignored:
        assert all(int(mask, 16) >> (number - 1) & 1 for mask in masks), f"{number} in {masks}"


def test_a_second_signal_kills_what_will_not_end(folder):
    for number, code in (signal.SIGINT, 130), (signal.SIGTERM, 143):
        sub = f"{folder}/{number}"
        os.mkdir(sub)
        program = signalled(sub, number, f'trap ": > {sub}/caught.$HOROVOD_RANK" INT TERM')
        pids = up(sub, 2)
        wait_until(
            "ranks have it", lambda sub=sub: all(os.path.exists(f"{sub}/caught.{i}") for i in (0, 1))
        )
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
        wait_until("no file is left", lambda: not scratch(folder))


def test_a_rank_killed_at_any_moment_ends_the_job_in_its_name(folder):
    """From its exec through hvd_init into its collectives."""
    for moment in range(12):
        program = start(folder, "-np", "3", os.path.join(BIN, "launch-world"), "1000000000")
        pids = wait_until(
            "the ranks have begun", lambda p=program: (r := children(p.pid, "launch-world"))[2:] and r
        )
        time.sleep(moment * 0.002)  # which moment that is is left to chance
        os.kill(pids[moment % 3], signal.SIGKILL)
        same(program.end(10), 137, program.err)
        has(program.err, f"rank {moment % 3} on localhost was killed by signal 9")
        assert not any(map(is_alive, pids)), pids
        same(scratch(folder), [], "scratch")


def state(pid):
    return read(f"/proc/{pid}/stat").rsplit(")", 1)[-1].split()[:1]


def test_ctrl_z_stops_the_ranks_and_fg_continues_them(folder):
    # bash, by fork(): what waits in vfork(), as dash does, is not stopped but waits on
    ranks = looping(folder, shell="bash", loop=UNTIL_GO.format(folder))
    # setpgrp, as a shell does: a job of its own in our session
    program = start(folder, "-np", "2", *ranks, preexec_fn=os.setpgrp)
    pids = [program.pid, *up(folder, 2)]
    for _ in range(2):
        program.signal(signal.SIGTSTP)
        wait_until("all are stopped", lambda: all(state(p) == ["T"] for p in pids))
        program.signal(signal.SIGCONT)
        wait_until("all continue", lambda: all(state(p) != ["T"] for p in pids))
    open(f"{folder}/go", "w", encoding="ascii").close()
    same(program.end(), 0)


def test_output_that_a_signal_cuts_off_is_reported_by_rank(folder):
    program = start_ranks(
        folder,
        2,
        f"echo $$ > {folder}/pid.$HOROVOD_RANK; seq -f line-%g 1 $((5000 - 2000 * HOROVOD_RANK))",
        stdout=subprocess.PIPE,
    )
    pids = [f"{folder}/pid.{i}" for i in range(2)]
    wait_until("the ranks have ended", lambda: all(read(p) and not is_alive(int(read(p))) for p in pids))
    program.signal(signal.SIGTERM)
    same(program.end(), 143)
    got = program.process.stdout.read().decode()
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
