# SPDX-License-Identifier: Apache-2.0
"""horovodrun --slurm in an allocation of the test Slurm (tests/slurm), four nodes with a rank each; for chaos.py.

    rank        a process that trains, SIGKILL
    agent       the hvd-agent of a node, SIGKILL
    step        scancel of the step that is the agent of a node
    node        a node is powered off: silence, no FIN. It comes back before Slurm gives it up (SlurmdTimeout),
                for a node that is given up leaves the allocation for good
    slurmctld   SIGKILL, and started again

Agents that Slurm starts end with their horovodrun, so the launcher is no victim. Its host list is that of the
allocation: the size changes with the nodes. The cluster is taken down if it did not run before. Needs root
and the installed tree (make stage).
"""

import contextlib
import os
import shutil
import subprocess
import time

import disturb
from watch import Job, kill, processes

HERE = os.path.dirname(os.path.abspath(__file__))
SLURM = os.path.join(HERE, "../slurm")
RUN = os.environ.setdefault("RM_SLURM_RUN", "/run/ringmaster-chaos")
NODES = ("node1", "node2", "node3", "node4")
PYTHON = "/usr/bin/python3"
PEER_TIMEOUT_S = 5
OFF_S = (2, 25)


def slurm(program, *words, **more):
    return subprocess.run(
        [os.path.join(SLURM, program), *words], stdin=subprocess.DEVNULL, check=False, timeout=300, **more
    )


def on_ctl(*words):
    """What a command prints, or nothing while slurmctld does not answer."""
    done = slurm("on", "ctl", *words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout if done.returncode == 0 else ""


class Platform(disturb.Driver):
    weights = {"rank": 6, "agent": 2, "step": 1, "node": 2, "slurmctld": 1}
    defaults = {"every": 4, "deadline": 300}
    can_scale = False

    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.off = {}  # node: when it is powered on
        self.keeps_cluster = os.path.exists(os.path.join(RUN, "nodes"))

    def begin(self):
        slurm("up", str(len(NODES))).check_returncode()
        self.stage = self.install()
        self.scripts = shutil.copytree(HERE, os.path.join(self.folder, "elastic"))

    def start(self, name, *options):
        own = os.path.join(self.folder, name)
        train = self.train(own, *options, scripts=self.scripts)
        run = [os.path.join(self.stage, "bin/horovodrun"), "--slurm", "--verbose", *disturb.BOUNDS, PYTHON]
        salloc = ["salloc", "-Q", "--no-kill", f"-N{len(NODES)}", "--ntasks-per-node=1"]
        env = [
            f"PYTHONPATH={self.stage}/python",
            f"HVD_PEER_TIMEOUT={PEER_TIMEOUT_S}",
            "OMP_NUM_THREADS=1",
        ]
        return Job([os.path.join(SLURM, "on"), "ctl", "/usr/bin/env", *env, *salloc, *run, *train], own)

    def victims(self, kind):
        on = [node for node in NODES if node not in self.off]
        if kind == "agent":
            return [self.victim(f"agent {pid}", node, kill, pid) for node in on for pid in agents_on(node)]
        if kind == "step":
            return [self.victim(f"step {step}", node, cancel, step) for step, node in steps() if node in on]
        if kind == "node":
            return [self.victim("power", node, self.power_off, node) for node in on]
        if kind == "slurmctld":
            return [disturb.Victim(kind, frozenset(), lambda: slurm("power", "cycle", "ctl"))]
        return super().victims(kind)

    def victim(self, name, node, strike, what):
        return disturb.Victim(f"{name} of {node}", self.names_on(node), lambda: strike(what))

    def power_off(self, node):
        self.off[node] = time.monotonic() + self.random.uniform(*OFF_S)
        slurm("power", "off", node).check_returncode()

    def tick(self):
        for node in [node for node, at in self.off.items() if time.monotonic() >= at]:
            slurm("power", "on", node).check_returncode()
            del self.off[node]

    def heal(self):
        self.off = dict.fromkeys(self.off, 0)
        self.tick()

    def end(self):
        for name in "disturbed", "undisturbed":  # for a look at it
            with contextlib.suppress(OSError):
                shutil.copytree(os.path.join(RUN, "log"), os.path.join(self.folder, name, "slurm"))
        if not self.keeps_cluster:
            slurm("down")


def agents_on(node):
    with open(os.path.join(RUN, f"{node}.pid"), encoding="ascii") as f:
        own = os.readlink(f"/proc/{int(f.read())}/ns/pid")
    for pid, argv in sorted(processes()):
        with contextlib.suppress(OSError):
            if os.path.basename(argv[0]) == "hvd-agent" and os.readlink(f"/proc/{pid}/ns/pid") == own:
                yield pid


def steps():
    """[(step, node)] of the agents."""
    lines = [line.split() for line in on_ctl("squeue", "-h", "-s", "-o", "%i %N").splitlines()]
    return sorted((words[0], words[1]) for words in lines if len(words) == 2 and words[1] in NODES)


def cancel(step):
    on_ctl("scancel", step)
