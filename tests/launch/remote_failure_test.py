#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts over ssh that fail, and hosts, agents and ranks that die: one error message, and nothing is left. TAP.

usage: remote_failure_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import ctypes
import glob
import os
import re
import signal
import subprocess
import sys
import time

from launched import HOROVODRUN, LOOP, agent_of_another_version, executable, looping, scratch, up
from over_ssh import RANK, agents, alone, hosts, refused, run, start
from tap import has, is_alive, main, read, same, wait_until, write


def test_starts_that_fail_are_explained(folder):
    plain = "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/key"], check=True)
    agentless = alone(folder)
    for why, words, more in (
        ("nosuch: its name does not resolve (DNS)", "-np 3 -H a,b,nosuch", {}),
        ("b: ssh connection refused: no sshd listens on that port there", "-np 2 -H a,b -p 2299", {}),
        ("b: there is no hvd-agent, neither at the same path as here nor in PATH", "-np 2 -H a,b",
         {"program": agentless}),
        ("b: ssh login was refused (permission denied)", "-np 1 -H b",
         {"env": {"HVD_SSH": f"{plain} -i {folder}/key"}}),
        ("b: the identity file of -i does not exist", "-np 1 -H b -i /no/such",
         {"env": {"HVD_SSH": f"{plain} -o IdentityAgent=none"}}),
        ("root@b: a user name is not allowed here", "-np 1 -H root@b", {}),
        ("b: command /no/ssh", "-np 1 -H b", {"env": {"HVD_SSH": "/no/ssh"}}),
        ("b: command no-such-python", "-np 1 -H b no-such-python", {"code": 127}),
    ):  # fmt: skip
        refused(folder, f"horovodrun: host {why}", *words.split(), "true", **more)


def test_an_unknown_and_a_changed_host_key(folder):
    known = f"{hosts().folder}/known_hosts"
    before = read(known)
    try:
        write(known, "".join(x + "\n" for x in before.splitlines() if not x.startswith("c,")))
        refused(folder, "horovodrun: host c: its host key is not known (host key verification failed)",
                "-np", "3", "-H", "a,b,c", "true")  # fmt: skip
        keys = before.splitlines()
        write(known, keys[0] + "\n" + keys[1] + f"\nc,{hosts().address('c')} {keys[0].split(' ', 1)[1]}\n")
        refused(folder, "horovodrun: host c: its host key is not the known one",
                "-np", "3", "-H", "a,b,c", "true")  # fmt: skip
    finally:
        write(known, before)


def test_a_host_that_does_not_answer(folder):
    started = time.monotonic()
    refused(
        folder, "horovodrun: host silent: ", "-np", "2", "-H", "a,silent", "--start-timeout", "2", "true"
    )
    assert time.monotonic() - started < 25


def test_an_sshd_that_accepts_and_sends_nothing(folder):
    p = hosts().start("b", sys.executable, "-c",
                      "import socket, time; s = socket.socket(); s.bind(('', 2250)); s.listen(); time.sleep(60)",
                      folder=folder, tag="mute")  # fmt: skip
    wait_until("it listens", lambda: "2250" in hosts().sockets("b", "-l"))
    hosts().kept = {p.pid}
    q = start(folder, "-np", "2", "-H", "a,b", "-p", "2250", "--start-timeout", "2", "true")
    code, took = q.end(), q.err
    p.process.kill()
    p.process.wait()
    hosts().kept = set()
    same(code, 125, took)
    has(q.err, "horovodrun: host b: ")
    assert re.search(r"not ready within 2 s|does not answer ssh", q.err), q.err
    hosts().nothing_left()


def test_all_hosts_that_fail_are_named(folder):
    p = refused(folder, "(also failed: ", "-np", "4", "-H", "a,b,c,d", "-p", "2299", "true")
    found = re.search(r"host (\w): ssh connection refused: .* \(also failed: (\w), (\w)\)\n", p.err)
    assert found and sorted(found.groups()) == ["b", "c", "d"], p.err


def test_an_agent_of_another_version(folder):
    program = alone(folder)
    versions = agent_of_another_version(f"{folder}/bin/hvd-agent")
    refused(folder, f"host b: {versions}", "-np", "2", "-H", "a,b", "true", program=program)


def test_an_agent_that_is_something_else(folder):
    program = alone(folder)
    for script, sentence in {
        "echo my own words >&2; exit 3": "ssh exited before the agent started: my own words",
        "exit 0": "ssh exited before the agent started, without a message",
        "echo HVD-AGENT/2 9.9; exec cat": "its hvd-agent has another version (2 9.9)",
        "echo 'hvd-agent: unknown command attach' >&2; exit 2": "its hvd-agent has an older version",
        "while echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; do :; done": "its login shell prints too much",
    }.items():
        executable(f"{folder}/new", f"#!/bin/sh\n{script}\n")
        os.rename(f"{folder}/new", f"{folder}/bin/hvd-agent")
        refused(folder, f"horovodrun: host b: {sentence}", "-np", "1", "-H", "b", "true", program=program)


def test_a_launcher_that_is_stopped(folder):
    """It looks like the loss of its host: the ranks exit."""
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder), env={"HVD_PEER_TIMEOUT": "1.5"})
    pids = up(folder, 3)
    p.signal(signal.SIGSTOP)
    wait_until("its ranks have ended", lambda: not any(map(is_alive, pids)))
    p.signal(signal.SIGCONT)
    same(p.end(), 125, p.err)
    hosts().nothing_left()


def test_signals_reach_all_hosts(folder):
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder, 'trap "echo got; exit 0" TERM'))
    up(folder, 3)
    p.signal(signal.SIGTERM)
    same(p.end(), 143, p.err)
    for rank in range(3):
        has(p.out, f"[{rank}]<stdout>:got\n")
    has(p.err, "horovodrun: stopped by SIGTERM\n")
    hosts().nothing_left()


def test_a_second_signal_kills(folder):
    p = start(folder, "-np", "2", "-H", "a,b", *looping(folder, 'trap "echo got" TERM'))
    up(folder, 2)
    p.signal(signal.SIGTERM)
    wait_until("the first came", lambda: p.out.count("got") >= 2)
    p.signal(signal.SIGTERM)
    same(p.end(20), 143, p.err)  # the first one gives them 30 s
    hosts().nothing_left()


def test_a_signal_before_the_start(folder):
    p = start(folder, "-np", "2", "-H", "a,silent", "true")
    wait_until("ssh runs", lambda: any("ssh" in read(f"/proc/{q}/comm") for q in hosts().pids("a")))
    p.signal(signal.SIGINT)
    same(p.end(20), 130, p.err)
    hosts().nothing_left()


def test_the_launcher_is_killed_at_any_stage(folder):
    stages = {
        "connecting": lambda: any(read(f"/proc/{q}/comm") == "ssh\n" for q in hosts().pids("a")),
        "an agent is there": lambda: agents("b"),
        "a rank is there": lambda: os.path.exists(f"{folder}/up.1"),
        "all ranks are there": lambda: all(os.path.exists(f"{folder}/up.{i}") for i in range(4)),
    }
    for stage, is_reached in stages.items():
        for path in glob.glob(f"{folder}/up.*"):
            os.unlink(path)
        p = start(folder, "-np", "4", "-H", "a,b,c,d", *looping(folder))
        wait_until(stage, is_reached)
        launcher = [q for q in hosts().pids("a") if read(f"/proc/{q}/cmdline").split("\0")[0] == HOROVODRUN]
        os.kill(p.pid, signal.SIGKILL)
        p.end()
        assert launcher, stage
        hosts().nothing_left(9)
    same(scratch(folder), [], "scratch")


def ssh_clients(name):
    """Those of host a that lead to a host."""
    words = {q: read(f"/proc/{q}/cmdline") for q in hosts().pids("a") if read(f"/proc/{q}/comm") == "ssh\n"}
    return [q for q, text in words.items() if f"\0{name}\0" in text]


def test_an_ssh_client_or_an_agent_is_killed(folder):
    broke = "was lost: its agent exited or the connection broke"
    for turn, (find, name, number, where, fanout, code, sentence) in enumerate((
        (ssh_clients, "b", signal.SIGKILL, "a,b,c", "32", 125, f"host b {broke}"),
        (agents, "c", signal.SIGKILL, "a,b,c", "32", 125, f"host c {broke}"),
        (agents, "c", signal.SIGTERM, "a,b,c", "32", 143, "host c: its hvd-agent received SIGTERM"),
        (agents, "c", signal.SIGKILL, "b,c,d", "1", 125, f"host c {broke}"),  # in the middle of a tree
    )):  # fmt: skip
        sub = f"{folder}/{turn}"
        os.mkdir(sub)
        p = start(sub, "-np", "3", "-H", where, *looping(sub), env={"HVD_SSH_FANOUT": fanout})
        up(sub, 3)
        os.kill(find(name)[0], number)
        same(p.end(), code, p.err)
        has(p.err, f"horovodrun: {sentence}")
        hosts().nothing_left()


def start_with_pid(pid):
    """Starts a process that leads its own group and has this pid; False if it is taken."""
    words = [0] * 11  # struct clone_args of clone3
    target = ctypes.c_int(pid)
    words[4], words[8], words[9] = signal.SIGCHLD, ctypes.addressof(target), 1
    args = (ctypes.c_uint64 * len(words))(*words)
    got = ctypes.PyDLL(None).syscall(435, args, ctypes.sizeof(args))
    if got == 0:
        os.setpgid(0, 0)
        os.execvp("sleep", ["sleep", "1000"])
    return got == pid


def test_a_pid_that_ssh_no_longer_has_is_not_killed(folder):
    """Its standard error stays open for a moment, in which another process gets the pid."""
    script = f"{folder}/myssh"
    executable(
        script, '#!/bin/sh\nsetsid sleep 3 </dev/null >/dev/null &\nexec ssh -o BatchMode=yes "$@"\n'
    )
    env = {"HVD_SSH": script, "HVD_SSH_FANOUT": "1"}
    p = start(folder, "-np", "2", "-H", "b,c", *looping(folder), env=env)
    up(folder, 2)
    (ssh,) = [q for q in hosts().pids("b") if read(f"/proc/{q}/comm") == "ssh\n"]
    os.kill(ssh, signal.SIGKILL)
    wait_until("it is reaped", lambda: not os.path.exists(f"/proc/{ssh}"))
    assert start_with_pid(ssh)
    try:
        same(p.end(), 125, p.err)
        assert is_alive(ssh)
    finally:
        os.kill(ssh, signal.SIGKILL)
        os.waitpid(ssh, 0)
    hosts().nothing_left()


def test_ssh_and_agents_are_killed_as_soon_as_they_exist(folder):
    for find in ssh_clients, agents:
        p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder), tag=find.__name__)
        os.kill(wait_until(find.__name__, lambda find=find: find("b"))[0], signal.SIGKILL)
        same(p.end(), 125, p.err)
        assert re.search("horovodrun: host b(:| was lost:) ", p.err), p.err
        hosts().nothing_left()


def test_the_launcher_is_killed_while_it_stops(folder):
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder, 'trap "echo got" TERM'))
    up(folder, 3)
    p.signal(signal.SIGTERM)
    wait_until("all ranks have received it", lambda: p.out.count("got") >= 3)
    p.signal(signal.SIGKILL)
    p.end()
    hosts().nothing_left(9)


def test_what_a_rank_started_ends_too(folder):
    p = start(folder, "-np", "2", "-H", "b,c", "sh", "-c",
              f"(trap '' TERM HUP; {LOOP}) & echo $! > {folder}/up.$HOROVOD_RANK; wait")  # fmt: skip
    pids = up(folder, 2)
    assert all(map(is_alive, pids))
    os.kill(p.pid, signal.SIGKILL)
    p.end()
    wait_until("they have ended", lambda: not any(map(is_alive, pids)))
    hosts().nothing_left()


def test_a_host_that_falls_silent(folder):
    h = hosts()
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder), env={"HVD_PEER_TIMEOUT": "6"})
    up(folder, 3)
    h.cut("c")
    try:
        same(p.end(), 125, p.err)
        has(p.err, "horovodrun: host c was lost: its agent was silent for 6 s")
        wait_until("its ranks have ended too", lambda: not agents("c"))
    finally:
        h.join("c")
    for q in h.pids("c"):  # sshd's own sessions wait for TCP, as for any lost client
        if "sshd" in read(f"/proc/{q}/comm"):
            os.kill(q, signal.SIGKILL)
    h.nothing_left()


def test_a_tree_names_a_host_far_down(folder):
    p = run(folder, "-np", "3", "-H", "b,c,nosuch", "true", code=125, env={"HVD_SSH_FANOUT": "1"})
    has(p.err, "horovodrun: host nosuch: its name does not resolve (DNS)")


def test_each_rank_is_killed_while_it_starts(folder):
    """The job ends as a whole wherever the other ranks are by then."""
    for victim in range(3):
        script = f"if [ $HOROVOD_RANK = {victim} ]; then kill -9 $$; fi; exec {RANK}"
        p = run(folder, "-np", "3", "-H", "a,b,c", "sh", "-c", script, code=137, tag=f"run{victim}")
        has(p.err, f"horovodrun: rank {victim} on {'abc'[victim]} was killed by signal 9")


if __name__ == "__main__":
    main(globals(), hosts)
