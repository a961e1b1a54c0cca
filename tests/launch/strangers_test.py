#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs among strangers that keep 500 connections to each listener and renew them. TAP.

usage: strangers_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)

The strangers are launch-strangers (strangers.c), in the network namespace of the job.
"""

import os
import signal
import sys
import time

from agent_test import Job
from hosts import Hosts
from launched import BIN, HOROVODRUN, environment
from tap import Program, has, main, read, same, say, wait_until, write

KINDS = "silent", "drip", "garbage", "half"
EACH = 500
# Strangers are at each listener of a rank 0.4 s before its peers (SLOW_LISTEN_MS: once they have found it).
RANK = f"exec env LD_PRELOAD={BIN}/slow-listen.so {BIN}/launch-world 20"
# What the strangers may cost. Measured on a quiet machine: below 0.3 s. Without limits the job ends after 30 s.
COST_S = 20
HOSTS = None


def inside():
    global HOSTS
    HOSTS = HOSTS or Hosts("a")
    return "ip", "netns", "exec", HOSTS.ns("a")


class Strangers:
    def __init__(self, folder, kind):
        words = [*inside(), f"{BIN}/launch-strangers", kind, str(EACH)]
        self.program = Program(words, environment(), folder, f"strangers-{kind}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.signal(signal.SIGTERM)
        same(self.program.end(), 0, self.program.err)

    def made(self):
        """Connections and listeners."""
        words = self.program.out.split()
        return int(words[0]), int(words[3])


def run_job(folder, name, transport, **env):
    env = environment(TMPDIR=folder, HVD_TRANSPORT=transport, HVD_START_TIMEOUT="60", **env)
    began = time.monotonic()
    job = Program([*inside(), HOROVODRUN, "-np", "4", "sh", "-c", RANK], env, folder, name)
    same(job.end(), 0, job.err)
    if transport == "auto":
        assert "shared memory" not in job.err.replace("listener=shared memory", ""), job.err
    return time.monotonic() - began


def check_start(folder, transport, listeners):
    base = min(run_job(folder, f"alone-{i}", transport) for i in range(2))
    for kind in KINDS:
        with Strangers(folder, kind) as strangers:
            took = run_job(folder, f"job-{kind}", transport, SLOW_LISTEN_MS="5000")
        made = strangers.made()
        say(
            f"# {transport}, {kind}: {took:.2f} s, alone {base:.2f} s, {made[0]} connections to {made[1]} listeners"
        )
        assert took < base + COST_S
        assert made[0] >= EACH and made[1] >= listeners, made


def test_a_job_with_shared_memory_starts(folder):
    check_start(folder, "auto", 7)


def test_a_job_over_tcp_starts(folder):
    check_start(folder, "tcp", 5)


def scrape_inside(folder, port):
    code = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/metrics', timeout=20).status)"
    client = Program([*inside(), sys.executable, "-c", code], environment(), folder, "scrape")
    same(client.end(), 0, client.err)
    has(client.out, "200")


def test_agents_meet_and_metrics_are_served(folder):
    rank = "sh", "-c", f"{BIN}/launch-world 20; while [ ! -e {folder}/go ]; do sleep 0.02; done"
    for kind in KINDS:
        sub = f"{folder}/{kind}"
        os.mkdir(sub)
        job = Job(sub, 4, HVD_START_TIMEOUT="60")
        with Strangers(sub, kind):
            for i in range(3):
                job.start(i, *rank, prefix=inside(), **({"HVD_METRICS_PORT": "7171"} if i == 0 else {}))
            time.sleep(1)  # of attack
            began = time.monotonic()
            job.start(3, *rank, prefix=inside())
            wait_until(lambda: f"all ranks have met\n{job.errors()}",  # noqa: B023
                       lambda j=job: all("fused=" in read(a.out_path) for a in j.agents.values()))  # fmt: skip
            took = time.monotonic() - began
            scrape_inside(sub, 7171)
            write(f"{folder}/go", "")
            same(job.end(), [0] * 4, job.errors())
        os.remove(f"{folder}/go")
        say(f"# agents, {kind}: {took:.2f} s")
        assert took < COST_S


if __name__ == "__main__":
    main(globals())
