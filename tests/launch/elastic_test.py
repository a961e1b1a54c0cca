#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun of elastic jobs: worlds, losses, limits, hosts. TAP. The processes do what the test says.

usage: elastic_test.py [PART OF A NAME ...]
"""

import json
import os
import signal
import socket
import subprocess
import sys

from elastic_job import ADDED, Job, form, formed, ready_message
from launched import HOROVODRUN, environment, start
from tap import DEADLINE_S, Skip, has, is_alive, main, same, wait_until, write


def places(*worlds):
    return [(w.rank, w.size, w.n_new) for w in worlds]


def test_the_first_world_forms_at_np_and_grows_at_a_commit(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:3")
    a, b, c = (job.member(i) for i in range(3))
    worlds = form(b, a)
    same(places(*worlds), [(1, 2, 2), (0, 2, 2)])
    same((worlds[0].generation, worlds[0].local_rank, worlds[0].local_size), (1, 1, 2))
    c.ready()
    same([m.notified() for m in (a, b)], [ADDED, ADDED])
    a.ready()
    b.ready()
    same(places(*formed(a, b, c)), [(0, 3, 1), (1, 3, 1), (2, 3, 1)])
    for m in a, b, c:
        m.do("os._exit(0)")
    job.end(0)


def test_survivors_of_a_kill_form_a_world_and_its_successor_joins(folder):
    job = Job(folder, "-np", "3", "--min-np", "2", "-H", "localhost:3")
    a, b, c = job.world(0, 1, 2)
    b.kill()
    for m in a, c:
        has(m.broken(), "rank 1 on localhost was killed by signal 9")
    worlds = form(c, a)
    same(places(*worlds), [(1, 2, 0), (0, 2, 0)])
    same(worlds[0].generation, 2)
    successor = job.member(1, 2)
    successor.ready()
    same([m.notified() for m in (a, c)], [ADDED, ADDED])
    a.ready()
    c.ready()
    # those that have a rank keep it
    same(places(*formed(a, c, successor)), [(0, 3, 1), (1, 3, 1), (2, 3, 1)])
    for m in a, c, successor:
        m.do("os._exit(0)")
    job.end(0)


def test_a_process_that_has_failed_is_not_waited_for(folder):
    job = Job(folder, "-np", "3", "--min-np", "2", "-H", "localhost:3")
    a, b, c = job.world(0, 1, 2)
    b.reports_end("ended: ValueError: a bad sample")
    for m in a, c:
        same(m.broken(), "rank 1 on localhost ended: ValueError: a bad sample")
    same(places(*form(a, c)), [(0, 2, 0), (1, 2, 0)])
    assert is_alive(b.pid)
    b.fails("ValueError: a bad sample", 1)
    successor = job.member(1, 2)
    has(job.run.err, 'a process has failed slot=1 world=1 cause="rank 1 on localhost exited with code 1"')
    successor.ready()
    same([m.notified() for m in (a, c)], [ADDED, ADDED])
    a.ready()
    c.ready()
    formed(a, c, successor)
    for m in a, c, successor:
        m.do("os._exit(0)")
    job.end(0)


def test_rank_0_is_the_oldest_survivor(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    a, b = job.world(0, 1)
    a.kill()
    b.broken()
    same(places(*form(b)), [(0, 1, 0)])
    new = job.member(0, 2)
    new.ready()
    b.notified()
    b.ready()
    same(places(*formed(b, new)), [(0, 2, 1), (1, 2, 1)])
    b.do("os._exit(0)")
    new.do("os._exit(0)")
    job.end(0)


def test_a_job_of_fixed_size_waits_for_the_successor(folder):
    job = Job(folder, "-np", "2", "--min-np", "2", "-H", "localhost:2")
    a, b = job.world(0, 1)
    b.kill()
    a.broken()
    a.ready()
    b = job.member(1, 2)
    b.ready()
    same(places(*formed(a, b)), [(0, 2, 1), (1, 2, 1)])
    a.kill()
    job.gone(a)
    job.run.signal(signal.SIGTERM)
    job.end(143)


def test_children_of_a_killed_process_die_with_it(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    a, b = job.world(0, 1)
    b.does("child = os.fork()\nwhile child == 0: signal.pause()\ntest.send(str(child).encode())")
    child = int(b.words[0])
    b.kill()
    job.member(1, 2)
    wait_until("the child has ended", lambda: not is_alive(child))
    assert is_alive(a.pid)
    job.run.signal(signal.SIGTERM)
    job.end(143)


def test_the_same_failure_in_a_slot_ends_the_job_at_the_third_time(folder):
    job = Job(folder, "-np", "1", "--min-np", "1", "-H", "localhost:1")
    for incarnation in 1, 2, 3:
        m = job.member(0, incarnation)
        form(m)
        m.fails(f"step {incarnation}: loss is NaN")
    err = job.end(3)
    has(err, "the same failure 3 times, without a commit in between")
    has(err, "step 3: loss is NaN")


def test_the_same_failure_of_three_worlds_ends_the_job(folder):
    job = Job(folder, "-np", "2", "--min-np", "2", "--max-np", "2", "-H", "localhost:3")
    a, b = job.world(0, 1)
    b.fails()
    a.broken()
    b = job.member(1, 2)
    form(a, b)
    b.fails()  # this slot is excluded now, another one comes in
    a.broken()
    c = job.member(2)
    form(a, c)
    c.fails()
    has(job.end(3), "the same failure 3 times, without a commit in between")


def test_a_commit_in_between_is_progress(folder):
    job = Job(
        folder, "-np", "2", "--min-np", "1", "-H", "localhost:2", "--blacklist-cooldown-range", "0", "0"
    )
    a, b = job.world(0, 1)
    for incarnation in range(2, 6):
        b.fails()
        a.broken()
        a.ready()
        formed(a)
        a.commit()
        b = job.member(1, incarnation)
        b.ready()
        a.notified()
        a.ready()
        formed(a, b)
    for m in a, b:
        m.do("os._exit(0)")
    job.end(0)


def test_all_processes_fail_three_times_although_they_commit(folder):
    job = Job(folder, "-np", "1", "--min-np", "1", "-H", "localhost:1")
    for incarnation in range(1, 4):
        m = job.member(0, incarnation)
        form(m)
        m.commit()
        m.settles()
        m.fails()
    job.member(0, 4).ready(is_last=True)
    err = job.end(3)
    has(err, "no process of the last world is left, the job begins again from its checkpoint")
    has(err, "the same failure has ended all processes 3 times")


def test_a_slot_that_fails_twice_is_excluded_for_a_time_that_ends(folder):
    job = Job(
        folder, "-np", "2", "--min-np", "1", "-H", "localhost:2", "--blacklist-cooldown-range", "1", "2"
    )
    a, b = job.world(0, 1)
    for incarnation in 1, 2:
        b = job.member(1, incarnation)
        if incarnation > 1:
            b.ready()
            a.notified()
            a.ready()
            formed(a, b)
        a.commit()
        b.fails()
        a.broken()
        same(places(*form(a)), [(0, 1, 0)])
    job.said("a slot is excluded after the same failure again")
    has(job.run.err, "slot=1 host=localhost")
    b = job.member(1, 3)
    b.ready()
    same(a.notified(), ADDED)
    same(job.run.err.count("a slot is excluded after the same failure again"), 1)
    a.do("os._exit(0)")
    job.end(0)


def test_reset_limit(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2", "--reset-limit", "1")
    a, b = job.world(0, 1)
    b.kill()
    a.broken()
    form(a)
    a.kill()
    job.member(0, 2).ready(is_last=True)
    err = job.end(137)
    has(err, "the world was reset 1 times, the limit is 1")
    has(err, "rank 0 on localhost was killed by signal 9")


def test_a_job_that_cannot_start_says_what_it_waited_for(folder):
    job = Job(folder, "-np", "2", "--min-np", "2", "-H", "localhost:2", "--elastic-timeout", "2")
    a, _ = job.member(0), job.member(1)
    a.ready()
    has(job.end(124), "1 of at least 2 ranks are ready, 1 start")


def test_a_job_below_its_minimum_ends_after_a_time(folder):
    job = Job(folder, "-np", "2", "--min-np", "2", "-H", "localhost:2", "--elastic-timeout", "2")
    a, b = job.world(0, 1)
    b.kill()
    a.broken()
    a.ready()
    err = job.end(137)
    has(err, "rank 1 on localhost was killed by signal 9")
    has(err, "1 of at least 2 ranks are ready, 1 start")


def test_a_member_that_does_not_leave_a_broken_world_is_stopped(folder):
    job = Job(folder, "-np", "2", "--min-np", "2", "-H", "localhost:2", "--elastic-timeout", "4")
    a, b = job.world(0, 1)
    b.kill()
    a.broken()
    job.gone(a)  # after half of that time
    form(job.member(0, 2), job.member(1, 2))
    job.run.signal(signal.SIGINT)
    job.end(130)


def test_success_ends_the_job_and_stops_those_outside_the_world(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:3")
    a, b = job.world(0, 1)
    c = job.member(2)
    c.does("signal.signal(signal.SIGTERM, lambda *_: (test.send(b'SIGTERM'), os._exit(0)))")
    a.do("os._exit(0)")
    c.heard("SIGTERM")
    assert is_alive(b.pid)
    b.do("os._exit(0)")
    job.end(0, 4)  # before the time after which what does not end is killed


def test_a_failure_after_success_is_the_result(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:3")
    a, b = job.world(0, 1)
    c = job.member(2)
    a.do("os._exit(0)")
    job.gone(c)  # horovodrun knows
    b.fails("cannot save", 5)
    err = job.end(5)
    has(err, "a rank failed after another one had ended with success")
    has(err, "cannot save")


def test_stop_signals_reach_all_processes(folder):
    for number in signal.SIGINT, signal.SIGTERM:
        where = f"{folder}/{number}"
        os.mkdir(where)
        job = Job(where, "-np", "2", "--min-np", "1", "-H", "localhost:3")
        members = [*job.world(0, 1), job.member(2)]
        for m in members:
            m.does(f"signal.signal({number}, lambda *_: (test.send(b'caught'), os._exit(0)))")
        job.run.signal(number)
        for m in members:
            m.heard("caught")
        same(job.end(128 + number), f"horovodrun: stopped by {signal.Signals(number).name}\n")


def test_a_second_stop_signal_kills(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    members = job.world(0, 1)
    for m in members:
        m.does("signal.signal(signal.SIGTERM, lambda *_: test.send(b'caught'))")
    job.run.signal(signal.SIGTERM)
    for m in members:
        m.heard("caught")
    job.run.signal(signal.SIGTERM)
    job.end(143, 20)  # the first one gives them 30 s


def test_usr1_reaches_the_processes_and_stops_nothing(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    members = job.world(0, 1)
    for m in members:
        m.does("signal.signal(signal.SIGUSR1, lambda *_: test.send(b'caught'))")
    job.run.signal(signal.SIGUSR1)
    for m in members:
        m.heard("caught")
        m.do("os._exit(0)")
    job.end(0)


def test_a_killed_horovodrun_leaves_nothing(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:3")
    members = [*job.world(0, 1), job.member(2)]
    job.run.signal(signal.SIGKILL)
    same(job.run.end(), 137)
    wait_until("all have ended", lambda: not any(is_alive(m.pid) for m in members))
    job.nothing_is_left()


def test_a_command_that_cannot_run_ends_the_job_at_once(folder):
    plain = f"{folder}/plain"
    write(plain, "text\n")
    for command, code in ("no-such-command", 127), (plain, 126):
        run = start(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2", command)
        same(run.end(), code, run.err)
        has(run.err, command)


def test_output_has_the_rank_of_the_present_world(folder):
    job = Job(folder, "-np", "3", "--min-np", "1", "-H", "localhost:3")
    a, b, c = job.world(0, 1, 2)
    same([m.says(f"first {m.slot}") for m in (a, b, c)], [f"[{i}]<stdout>:first {i}" for i in range(3)])
    a.kill()
    for m in b, c:
        m.broken()
    ranks = [w.rank for w in form(b, c)]
    same(sorted(ranks), [0, 1])
    same(
        [m.says(f"second {m.slot}") for m in (b, c)],
        [f"[{r}]<stdout>:second {s}" for r, s in zip(ranks, (1, 2))],
    )
    b.do("os._exit(0)")
    c.do("os._exit(0)")
    job.end(0)


def test_the_last_output_of_a_process_is_not_lost(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    a, b = job.world(0, 1)
    b.do("for i in range(20000): print('line', i)\nsys.stdout.flush(); os._exit(3)")
    a.broken()
    form(a)
    b = job.member(1, 2)
    b.says("I am new")
    a.do("os._exit(0)")
    job.end(0)
    wanted = [f"[1]<stdout>:line {i}" for i in range(20000)]
    same([x for x in job.run.out.splitlines() if "line" in x] == wanted, True, "whole and in order")


def answer(name, packet):
    """What a process gets that connects where the launcher listens and sends this first; empty: it is disconnected."""
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stranger.settimeout(60)
    stranger.connect("\0" + name)
    try:
        stranger.send(packet)
        return stranger.recv(4096)
    except (BrokenPipeError, ConnectionResetError):
        return b""


def test_strangers_are_disconnected(folder):
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    a, b = job.world(0, 1)
    first = ready_message(0, 1, 0)
    for packet in (
        ready_message(0, 2, 0), ready_message(2, 1, 0), ready_message(2**32 - 1, 1, 0), ready_message(0, 0, 0),
        first[:-1], first + b"x", b"\x02" + bytes(4), b"\x03" + bytes(60), b"\x09", bytes(4000),
    ):  # fmt: skip
        same(answer(a.door, packet), b"", f"answer to {packet[:20]}")
    b.kill()  # the members have kept their connections
    a.broken()
    form(a)
    a.do("os._exit(0)")
    job.end(0)


def test_another_user_is_disconnected(folder):
    if os.geteuid() != 0:
        raise Skip("needs root to become another user")
    job = Job(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    a, b = job.world(0, 1)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        os._exit(answer(a.door, ready_message(0, 1, 1)) != b"")
    same(os.waitpid(child, 0)[1], 0, "it was not disconnected")
    b.kill()
    a.broken()
    form(a)
    a.do("os._exit(0)")
    job.end(0)


def test_the_agent_of_a_host_is_killed_and_comes_back(folder):
    job = Job(folder, "-np", "4", "--min-np", "2", "-H", "localhost:2,127.0.0.2:2")
    members = job.world(0, 1, 2, 3)
    kept, lost = members[:2], members[2:]
    agents = [m.parent for m in members]
    assert agents[0] == agents[1] != agents[2] == agents[3], agents
    os.kill(agents[2], signal.SIGKILL)
    for m in kept:
        has(m.broken(), "host 127.0.0.2 was lost")
    same(places(*form(*kept)), [(0, 2, 0), (1, 2, 0)])
    wait_until("its processes have ended", lambda: not any(is_alive(m.pid) for m in lost))
    has(
        job.run.err,
        'a host is lost host=127.0.0.2 cause="its agent exited or the connection broke" retry_s=1',
    )
    new = [job.member(2, 2), job.member(3, 2)]
    new[0].ready()
    same([m.notified() for m in kept], [ADDED, ADDED])
    new[1].ready()
    new[1].settles()  # its agent is another one
    for m in kept:
        m.ready()
    formed(*kept, *new)
    for m in kept + new:
        m.do("os._exit(0)")
    job.end(0)


def status(job, *words):
    asked = subprocess.run(
        [HOROVODRUN, "--status", *words],
        env=environment(TMPDIR=job.folder), capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    return asked.stdout


def reports(job):
    """What --status shows of this job; others may run on this host."""
    found = [json.loads(line) for line in status(job, "--json").splitlines()]
    return [r for r in found if r.get("elastic", {}).get("maxRanks") == 37]


def test_status_shows_worlds_and_what_the_job_waits_for(folder):
    job = Job(folder, "-np", "2", "--min-np", "2", "--max-np", "37", "-H", "localhost:3")
    members = [job.member(slot) for slot in range(3)]
    a, b, c = members
    (now,) = reports(job)
    same(
        (now["state"], now["generation"], now["ranks"], now["workers"], now["workersPresent"]),
        ("Meeting", 0, 0, 1, 1),
    )
    same(now["elastic"]["waitsFor"], "0 of at least 2 ranks are ready, 3 start")
    form(a, b)
    c.ready()
    a.notified()
    b.notified()
    (now,) = reports(job)
    same((now["state"], now["generation"], now["ranks"]), ("Starting", 1, 2))
    wanted = {
        "minRanks": 2,
        "maxRanks": 37,
        "ready": 1,
        "resets": 0,
        "slotsExcluded": 0,
        "excludedSeconds": 0,
    }
    same({k: v for k, v in now["elastic"].items() if v != ""}, wanted)
    b.fails()
    a.broken()
    (now,) = reports(job)
    same(
        (now["state"], now["elastic"]["lastFailure"]), ("Meeting", "rank 1 on localhost exited with code 3")
    )
    has(
        now["elastic"]["waitsFor"],
        "1 of at least 2 ranks are ready, 1 have not left the last world",
    )
    job.member(1, 2).fails()
    job.said("a slot is excluded after the same failure again")
    (now,) = reports(job)
    same(now["elastic"]["slotsExcluded"], 1)
    assert 0 < now["elastic"]["excludedSeconds"] <= 30, now
    a.ready()
    formed(a, c)
    text = status(job)
    has(text, "Elastic: 2 to 37 ranks, world 2, 1 resets, 0 more ready\n")
    has(text, "Excluded after failures: 1 slots, the first one for ")
    has(text, "Last failure: rank 1 on localhost exited with code 3\n")
    job.run.signal(signal.SIGTERM)
    job.end(143)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main(globals())
