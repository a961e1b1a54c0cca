# SPDX-License-Identifier: Apache-2.0
"""A job over hosts that are network namespaces of this machine, by hvd-agent serve; for chaos.py. Needs root.

    a            horovodrun, whose hosts a discovery script prints
    b, c, d, e   hvd-agent serve, and a rank each; a size of N is N of them, new ones first: of 1 and then
                 3 hosts all are replaced

    rank       a process that trains, SIGKILL
    agent      an hvd-agent, SIGKILL: the one that serves, which is started again, or one of the job
    cut        the cable of a host is taken out: silence, no FIN. It is put in again after less than the peer
               timeout or more. Without a all hosts are lost to horovodrun, which adopts their processes later
    launcher   horovodrun, SIGKILL; another one takes over

The job has a name, so that its processes outlive horovodrun. Needs root and the installed tree (make stage).
A horovodrun that takes the job over, or again, knows the hosts of its list only. So the list stays while it is
away, and horovodrun is not struck while processes are left on hosts that are not listed any more.
"""

import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../launch"))
import disturb  # noqa: E402
from hosts import Hosts  # noqa: E402
from launched import environment, executable  # noqa: E402
from tap import secret, wait_until  # noqa: E402
from watch import Job, kill, processes  # noqa: E402

LAUNCHER, HOSTS = "a", "bcde"  # as many as disturb.BOUNDS has
PYTHON = "/usr/bin/python3"
PEER_TIMEOUT_S = 5
AGAIN_S = 1  # until an agent or horovodrun is started again
SEEN_S = 15  # after horovodrun was away: until it has all hosts again


class Led(Job):
    """A job whose horovodrun can be lost and replaced."""

    again = None  # when the next one starts

    def lose_launcher(self):
        kill(self.program.pid)
        self.program.wait()
        self.again = time.monotonic() + AGAIN_S

    def is_running(self):
        return self.again is not None or super().is_running()

    def tick(self):
        if self.again is not None and time.monotonic() >= self.again:
            self.again = None
            self.launch()


class Platform(disturb.Driver):
    weights = {"rank": 6, "agent": 2, "cut": 1, "launcher": 1}
    defaults = {"scale": "2,4,1,3", "hold": 15, "every": 4, "deadline": 300}
    hands_over = True

    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.hosts, self.serving, self.n_served = None, {}, 0
        self.due = {}  # host without an agent: when it gets one
        self.cuts = {}  # host: when it is joined again
        self.list, self.listed = os.path.join(folder, "hosts"), []
        self.away = 0  # when horovodrun was away last

    def begin(self):
        self.hosts = Hosts(LAUNCHER + HOSTS)
        stage = self.install()
        self.bin = os.path.join(stage, "bin")
        self.token = secret(self.folder)
        self.script = executable(
            os.path.join(self.folder, "discover.sh"), f"#!/bin/sh\ncat '{self.list}'\n"
        )
        self.env = environment(
            PYTHONPATH=os.path.join(stage, "python"),
            TMPDIR=self.folder,
            OMP_NUM_THREADS="1",
            HVD_PEER_TIMEOUT=str(PEER_TIMEOUT_S),
        )
        for host in HOSTS:
            self.serve(host)

    def serve(self, host):
        self.n_served += 1
        agent = self.hosts.start(
            host,
            *(os.path.join(self.bin, "hvd-agent"), "serve", "--token-file", self.token),
            env=self.env,
            folder=self.folder,
            tag=f"serve-{host}-{self.n_served}",
        )
        self.serving[host] = agent

    def start(self, name, *options):
        self.scale(self.args.scale[0] if self.args.scale else len(HOSTS))
        for host, agent in self.serving.items():
            wait_until(f"{host} serves: {agent.err}", lambda agent=agent: "serving" in agent.err)
        own = os.path.join(self.folder, name)
        run = [os.path.join(self.bin, "horovodrun"), "--verbose", "--token-file", self.token]
        run += ["--host-discovery-script", self.script, *disturb.BOUNDS, PYTHON]
        env = {**self.env, "HVD_ELASTIC_JOB": f"{self.folder} {name}"}
        return Led([*self.hosts.prefix(LAUNCHER), *run, *self.train(own, *options)], own, env)

    def scale(self, n):
        self.listed = sorted(HOSTS, key=lambda host: host in self.listed)[:n]
        disturb.write_hosts(self.list, [f"{host}:1" for host in self.listed])

    def stays(self, name, n):
        host = self.job.processes.get(name, {}).get("host")
        return host is None or host in self.listed

    def victims(self, kind):
        if kind == "agent":
            return [v for host in HOSTS for v in self.agents(host)]
        can_lose_launcher = self.is_handed_over()
        if kind == "cut":
            return [
                disturb.Victim(host, self.names_on(host), lambda host=host: self.cut(host), returns=True)
                for host in (LAUNCHER if can_lose_launcher else "") + HOSTS
                if host not in self.cuts
            ]
        if kind == "launcher":
            there = ["horovodrun"] if can_lose_launcher and self.job.again is None else []
            return [disturb.Victim(name, frozenset(), self.job.lose_launcher) for name in there]
        return super().victims(kind)

    def is_handed_over(self):
        """No process is left on a host that is not listed."""
        return all(self.stays(name, 0) for name in self.job.writers().values() if name)

    def can_scale_now(self):
        return time.monotonic() > self.away + SEEN_S

    def agents(self, host):
        """With each of them all ranks of the host may end."""
        here = set(self.hosts.pids(host))
        for pid, argv in sorted(processes()):
            if pid in here and os.path.basename(argv[0]) == "hvd-agent":
                what = "serves" if pid == self.serving[host].pid else "of the job"
                yield disturb.Victim(
                    f"agent {pid} on {host}, which {what}", self.names_on(host), lambda pid=pid: kill(pid)
                )

    def cut(self, host):
        self.cuts[host] = time.monotonic() + PEER_TIMEOUT_S * self.random.uniform(0.1, 3)
        self.hosts.cut(host)

    def tick(self):
        now = time.monotonic()
        self.job.tick()
        if LAUNCHER in self.cuts or self.job.again is not None:
            self.away = now
        for host in [host for host, at in self.cuts.items() if now >= at]:
            self.hosts.join(host)
            del self.cuts[host]
        for host, agent in self.serving.items():
            if agent.process.poll() is None:
                continue
            if now >= self.due.setdefault(host, now + AGAIN_S):
                del self.due[host]
                self.serve(host)

    def heal(self):
        def is_whole():
            self.tick()
            return not self.cuts and not self.due and self.job.again is None

        wait_until("all hosts are back", is_whole)

    def end(self):
        for agent in self.serving.values():
            agent.signal(signal.SIGKILL)
            agent.process.wait()
        if self.hosts:
            self.hosts.remove()
