#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A horovodrun that takes over an elastic job whose horovodrun was lost. TAP. Processes: elastic_member.py.

usage: elastic_takeover_test.py [PART OF A NAME ...]
"""

import json
import os
import signal
import subprocess
import sys

from agent_test import AGENT, free_port
from elastic_job import ADDED, Job, formed
from launched import environment, start
from tap import DEADLINE_S, Program, has, main, same, secret, wait_until

TERM = 1 << 16  # of generations


class Named:
    """A job by the name of its folder, and the agents of this host, which outlive its horovodruns."""

    def __init__(self, folder, *words, **more):
        self.folder, self.words, self.n = folder, words, 0
        self.env = environment(
            HVD_AGENT_PORT=str(free_port()), HVD_ELASTIC_JOB=f"job {folder}", TMPDIR=folder, **more
        )
        self.token = secret(folder)
        self.agent = Program(
            [AGENT, "serve", "--bind", "127.0.0.1", "--token-file", self.token], self.env, folder, "serve"
        )
        wait_until("the agent serves", lambda: "serving" in self.agent.err)
        self.job = Job(folder, *self._options(), starts=self._start)

    def _options(self):
        port = self.env["HVD_AGENT_PORT"]
        return ["--token-file", self.token, "--agent-port", port, "--verbose", *self.words]

    def _start(self, *words):
        self.command, self.n = words, self.n + 1
        return start(self.folder, *words, env=self.env, name=f"run{self.n}")

    def lose_leader(self, number=signal.SIGKILL):
        self.job.run.signal(number)
        same(self.job.run.end(), 128 + number)
        wait_until("the agent has seen it", lambda: self.agent.err.count("are kept for another") == self.n)

    def gone(self, *members):
        """These have ended, without a horovodrun."""

        def are_gone():
            self.job.pump()
            return all(m.connection.fileno() < 0 for m in members)

        wait_until(f"{members} have ended", are_gone)

    def lead_again(self):
        """Another horovodrun, which has got the report of the agent."""
        self.job.run = self._start(*self.command)
        self.job.said("host is ready")

    def end(self, code=0):
        err = self.job.run
        same(err.end(), code, f"exit code\n{err.out}{err.err}")
        wait_until(
            "the agent of the job ends", lambda: "process of a job or command exited" in self.agent.err
        )
        self.agent.signal(signal.SIGTERM)
        same(self.agent.end(), 128 + signal.SIGTERM, self.agent.err)
        self.job.nothing_is_left()
        return err.err


def loses_rank_1(a, b, generation):
    """The world works on without a word of its leader, which then forms the next one, of a alone."""
    has(a.says("still here"), "[0]<stdout>:")
    same((a.packets, b.packets), ([], []), "nothing was sent to them")
    b.kill()
    has(a.broken(), "rank 1 on localhost was killed by signal 9")
    a.ready()
    (world,) = formed(a)
    same((world.generation, world.rank, world.n_new), (generation, 0, 0))


def test_a_world_works_on_and_its_next_leader_forms_the_next_one(folder):
    named = Named(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    a, b = named.job.world(0, 1)
    named.lose_leader()
    named.lead_again()
    has(named.job.run.err, "a process is adopted slot=1 host=localhost world=1 rank=1")
    loses_rank_1(a, b, TERM + 1)
    successor = named.job.member(1, 2)
    successor.ready()
    same(a.notified(), ADDED)
    a.ready()
    same([w.generation for w in formed(a, successor)], [TERM + 2] * 2)
    for m in a, successor:
        m.do("os._exit(0)")
    named.end()


def test_sigterm_leaves_the_job_and_sigint_ends_it(folder):
    named = Named(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    a, b = named.job.world(0, 1)
    named.lose_leader(signal.SIGTERM)
    named.lead_again()
    same((a.packets, b.packets), ([], []), "nothing was sent to them")
    named.job.run.signal(signal.SIGINT)
    named.end(128 + signal.SIGINT)


def test_what_happens_without_a_leader_is_seen_by_the_next_one(folder):
    named = Named(folder, "-np", "3", "--min-np", "1", "-H", "localhost:3")
    a, b, c = named.job.world(0, 1, 2)
    named.lose_leader()
    b.kill()
    named.gone(b)
    a.ready()  # its collective has failed
    c.ready()
    a.does("pass")
    c.does("pass")
    named.lead_again()
    worlds = formed(a, c)
    same([(w.generation, w.rank) for w in worlds], [(TERM + 1, 0), (TERM + 1, 1)])
    named.job.member(1, 1)  # the number of its process is not known any more
    for m in a, c:
        m.do("os._exit(0)")
    named.end()


def test_a_job_that_ended_well_meanwhile_ends_well(folder):
    named = Named(folder, "-np", "2", "--min-np", "2", "-H", "localhost:2")
    a, b = named.job.world(0, 1)
    named.lose_leader()
    a.do("os._exit(0)")
    b.do("os._exit(0)")
    named.gone(a, b)
    named.lead_again()
    named.end()


def test_leaders_are_lost_one_after_another(folder):
    named = Named(folder, "-np", "2", "--min-np", "2", "-H", "localhost:2")
    a, b = named.job.world(0, 1)
    for n in range(1, 4):
        named.lose_leader()
        named.lead_again()
        a.ready()
        has(b.broken(), "a member has left the world")
        b.ready()
        same({w.generation for w in formed(a, b)}, {n * TERM + 1})
    for m in a, b:
        m.do("os._exit(0)")
    named.end()


def test_a_leader_that_was_cut_off_leads_the_same_processes_again(folder):
    named = Named(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2", HVD_PEER_TIMEOUT="3")
    a, b = named.job.world(0, 1)
    os.kill(a.parent, signal.SIGSTOP)  # its agent is silent
    named.job.said("all hosts are lost, their processes are adopted if they come back")
    os.kill(a.parent, signal.SIGCONT)
    named.job.said("a process is adopted slot=1 host=localhost world=1 rank=1")
    loses_rank_1(a, b, TERM + 2)
    a.do("os._exit(0)")
    named.end()


def report_of(named, **more):
    return subprocess.run(
        [AGENT, "report", "--json"],
        env={**named.env, **more},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_the_operator_can_ask_for_the_live_report(folder):
    port = str(free_port())
    named = Named(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2", HVD_STATUS_PORT=port)
    named.job.world(0, 1)
    report = report_of(named, HVD_TOKEN_FILE=named.token)
    same(report.returncode, 0, report.stderr)
    same(json.loads(report.stdout)["ranks"], 2)
    os.makedirs(f"{folder}/other")
    refused = report_of(named, HVD_TOKEN_FILE=secret(f"{folder}/other", text="6a" * 32 + "\n"))
    same(refused.returncode, 1, refused.stdout)
    has(refused.stderr, "token")
    named.lose_leader()
    named.lead_again()
    same(json.loads(report_of(named, HVD_TOKEN_FILE=named.token).stdout)["generation"], 1)
    named.job.run.signal(signal.SIGINT)
    named.end(128 + signal.SIGINT)


def test_processes_are_stopped_when_no_leader_comes(folder):
    named = Named(folder, "-np", "2", "--min-np", "1", "--elastic-timeout", "3", "-H", "localhost:2")
    a, b = named.job.world(0, 1)
    named.lose_leader()
    named.gone(a, b)
    named.agent.signal(signal.SIGTERM)
    same(named.agent.end(), 128 + signal.SIGTERM, named.agent.err)
    named.job.nothing_is_left()


def test_an_agent_that_is_stopped_without_a_leader_ends_at_once(folder):
    named = Named(folder, "-np", "2", "--min-np", "1", "-H", "localhost:2")
    a, b = named.job.world(0, 1)
    named.lose_leader()
    named.agent.signal(signal.SIGTERM)
    named.gone(a, b)
    same(named.agent.end(), 128 + signal.SIGTERM, named.agent.err)
    has(named.agent.err, "process of a job or command exited")
    named.job.nothing_is_left()


def test_a_name_has_no_effect_without_agents_that_serve(folder):
    env = environment(HVD_ELASTIC_JOB="lab", TMPDIR=folder)
    program = start(folder, "-np", "1", "--min-np", "1", "sleep", "60", env=env)
    has_said = "without --token-file no other horovodrun can take this job over"
    wait_until("it warns", lambda: has_said in program.err)
    has(program.err, 'HVD_ELASTIC_JOB="lab"')
    program.signal(signal.SIGINT)
    same(program.end(), 128 + signal.SIGINT)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main(globals())
