#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-agent await: starts a launcher when all of its hosts can be reached. TAP.

usage: await_test.py [PART OF A NAME ...]     as agent_test.py; each host is an address of this one
"""

import os
import re
import signal
import time

from agent_test import AGENT, failure, free_port
from launched import HOROVODRUN, environment, pid_namespace
from tap import Program, children, has, has_signal, main, read, same, secret, wait_until, write


class Hosts:
    """Hosts 127.0.0.1 and following, and a launcher that waits for them."""

    def __init__(self, folder, n, text=None, **more):
        self.folder, self.serving = folder, {}
        self.token = secret(folder)
        write(f"{folder}/hosts", text or "".join(f"127.0.0.{i + 1} slots=2\n" for i in range(n)))
        self.env = environment(HVD_AGENT_PORT=str(free_port()), HVD_TOKEN_FILE=self.token, TMPDIR=folder)
        self.env.update(more)

    def serve(self, i):
        words = [AGENT, "serve", "--bind", f"127.0.0.{i + 1}"]
        self.serving[i] = Program(words, self.env, self.folder, f"serve{i}")
        wait_until(f"host {i} serves", lambda: "serving" in self.serving[i].err)

    def launch(self, *command, prefix=(), words=()):
        words = words or [
            "--hostfile",
            f"{self.folder}/hosts",
            "--termination-log",
            f"{self.folder}/log",
            "--",
        ]
        return Program([*prefix, AGENT, "await", *words, *command], self.env, self.folder, "launcher")

    def log(self):
        return read(f"{self.folder}/log")

    def end(self):
        for agent in self.serving.values():
            agent.signal(signal.SIGTERM)
            agent.end()


def test_the_command_starts_when_the_last_host_serves(folder):
    hosts = Hosts(folder, 3)
    hosts.serve(2)
    p = hosts.launch("sh", "-c", 'echo "$$ $0 $1 $HVD_AGENT_PORT"; exit 7', "a b", "")
    hosts.serve(0)
    same((p.process.poll(), p.out), (None, ""), "host 1 is not there")
    hosts.serve(1)
    same(p.end(), 7, p.err)
    same(p.out, f"{p.pid} a b  {hosts.env['HVD_AGENT_PORT']}\n", "process, words, environment")
    has(p.err, "all hosts can be reached hosts=3")
    same(hosts.log(), "")
    hosts.end()


def test_horovodrun_as_the_command_leaves_the_failure(folder):
    """The first failure is written to the file; ranks do not get its name."""
    hosts = Hosts(folder, 1)
    hosts.serve(0)
    sentence = "XID 31 (GPU memory page fault) on GPU 0 (PCI 0000:3B:00.0) of rank 1 (host b)"
    rank = f'echo "log $HVD_TERMINATION_LOG"; [ $HOROVOD_RANK = 1 ] || exec sleep 60; echo "E: {sentence}; x"; exit 3'
    p = hosts.launch(HOROVODRUN, "-np", "2", "sh", "-c", rank)
    same(p.end(), 3, p.err)
    assert re.match(failure(1, 3) + re.escape(f'"{sentence}"'), hosts.log()), hosts.log()
    has(hosts.log(), f"\nlog \nE: {sentence}; x\n")
    again = f"{HOROVODRUN} -np 1 sh -c 'exit 5' || exec {HOROVODRUN} -np 1 true"
    same(hosts.launch("sh", "-c", again).end(), 0)
    same(hosts.log(), "", "what went well in the end leaves nothing")
    hosts.end()


def test_an_absent_host_is_named_at_the_timeout(folder):
    hosts = Hosts(folder, 2, HVD_START_TIMEOUT="1")
    hosts.serve(0)
    p = hosts.launch("touch", f"{folder}/ran")
    same(p.end(), 124, p.err)
    assert re.match(failure(-1, 124), hosts.log()), hosts.log()
    has(
        hosts.log(),
        'why="waited 1 s for host 127.0.0.2 (2 of 2), which could not be reached: check its pod: ',
    )
    has(p.err, "hvd-agent[await]: waited 1 s for host 127.0.0.2")
    assert not os.path.exists(f"{folder}/ran")
    hosts.end()


def test_a_name_that_is_not_known_yet_is_waited_for(folder):
    hosts = Hosts(folder, 1, "no-such-host.invalid slots=1\n", HVD_START_TIMEOUT="1")
    same(hosts.launch("true").end(), 124)
    has(hosts.log(), "host no-such-host.invalid (1 of 1)")


def test_a_command_that_is_not_there_fails_at_once(folder):
    hosts = Hosts(folder, 1)
    begin = time.monotonic()
    same(hosts.launch("no-such-program").end(), 127)
    assert time.monotonic() - begin < 10
    assert re.match(failure(-1, 127), hosts.log()), hosts.log()
    has(hosts.log(), "command no-such-program was not found in PATH")


def test_process_1_is_ended_by_a_signal_while_it_waits_and_the_command_as_ever(folder):
    inside = pid_namespace()
    hosts = Hosts(folder, 1)

    def process_1(p):
        return wait_until("process 1", lambda: children(p.pid))[0]

    p = hosts.launch("true", prefix=inside)
    pid = process_1(p)
    wait_until("it catches signals", lambda: has_signal(pid, "SigCgt", signal.SIGTERM))
    os.kill(pid, signal.SIGTERM)
    same(p.end(), 143, p.err)
    hosts.serve(0)
    p = hosts.launch(
        "bash", "-c", f"trap 'exit 5' TERM; : > {folder}/up; while :; do sleep 0.02; done", prefix=inside
    )
    wait_until("the command runs", lambda: os.path.exists(f"{folder}/up"))
    os.kill(process_1(p), signal.SIGTERM)
    same(p.end(), 5, p.err)
    hosts.end()


def test_what_the_command_finds_is_as_without_us(folder):
    """No signal is blocked or ignored, no descriptor is left open."""
    hosts = Hosts(folder, 1)
    hosts.serve(0)
    show = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd | wc -l"
    p = hosts.launch("sh", "-c", show)
    same(p.end(), 0, p.err)
    plain = Program(["sh", "-c", show], hosts.env, folder, "plain")
    plain.end()
    same(p.out, plain.out)
    hosts.end()


def test_mistakes_are_named(folder):
    hosts = Hosts(folder, 1, "a slots=many\n")
    same(hosts.launch("true").end(), 125)
    has(hosts.log(), f"{folder}/hosts: ")
    for words, part in (
        (["--hostfile", "h"], "a command is missing"),
        (["--", "true"], "--hostfile is missing"),
        (["--hostfile"], "a value is missing after --hostfile"),
        (["--fast", "--", "true"], "unknown option --fast"),
    ):
        p = hosts.launch(words=words)
        same(p.end(), 2)
        has(p.err, part)


if __name__ == "__main__":
    main(globals())
