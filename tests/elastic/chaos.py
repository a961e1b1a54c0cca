#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills ranks of an elastic job at random, and checks that it ends as if nothing had happened.

    chaos.py --seconds 600 --every 3 --seed 1 -- horovodrun -np 4 -H localhost:4 --min-np 2 python3
    chaos.py --seconds 60 --every 0 --scale 2,4,1,3 -- horovodrun -np 2 --min-np 1 --max-np 4
             --host-discovery-script {script} python3

    LAUNCHER... train.py  <-- SIGKILL, sizes -- chaos.py -- then --> LAUNCHER... train.py --epochs E
            | record                                                            | record
            v                                                                   v
    check.py: each sample once an epoch;  the model's digest  ==  that of the undisturbed run

What follows `--` starts train.py (this folder), which chaos.py appends with its options; any launcher
that runs processes on this machine is possible. In its words {script} is a discovery script that prints
DIR/hosts, and {dir} is DIR. Victims are processes of any rank, spares included, and those that just
start. One that holds the only copy of the state that is left is spared until there is another one.

--scale writes the next number to DIR/hosts when all ranks of a world of the last number have committed
--settle steps; the list is repeated until --seconds are over.

Exit status: 0 the job ended well, the record is right and the models are equal; 1 not so; 2 wrong usage.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time

from check import check, summary
from watch import POLL_S, Job, Late, inner_pid, kill

HERE = os.path.dirname(os.path.abspath(__file__))


class Killer:
    """Kills a random rank about every so many seconds; 0: never."""

    def __init__(self, job, every_s, seed):
        self.job, self.every_s, self.random = job, every_s, random.Random(seed)
        self.n_killed = self.n_of_rank_0 = 0
        self._plan()

    def _plan(self):
        self.next = time.monotonic() + self.every_s * self.random.uniform(0.5, 1.5)

    def holders(self, pids):
        """Those that have been in a world: each has a copy of the state."""
        have = {
            self.job.processes[name]["pid"]
            for ranks in self.job.members.values()
            for name in ranks.values()
        }
        return {pid for pid in pids if inner_pid(pid) in have}

    def step(self):
        if not self.every_s or time.monotonic() < self.next:
            return
        pids = sorted(self.job.ranks())
        holders = self.holders(pids)
        victims = [pid for pid in pids if holders - {pid}]
        if not victims:
            return  # not yet
        victim = self.random.choice(victims)
        zero = self.job.members.get(self.job.last_world(), {}).get(0)
        self.n_of_rank_0 += bool(zero) and self.job.processes[zero]["pid"] == inner_pid(victim)
        kill(victim)
        self.n_killed += 1
        self._plan()


class Scaler:
    """Writes the number of slots to the file that the discovery script prints."""

    def __init__(self, job, path, line, sizes, settle):
        self.job, self.path, self.line, self.sizes, self.settle = job, path, line, sizes, settle
        self.place, self.n_changes, self.changed = 0, 0, None  # the first size is there already
        self.took = []

    def step(self):
        world = self.job.last_world()
        if not self.sizes or not self.job.has_saved(world, self.settle):
            return
        if self.job.sizes[world] == self.sizes[self.place]:
            if self.changed is not None:
                self.took.append(self.job.first_step_ns(world) / 1e9 - self.changed)
            self.place = (self.place + 1) % len(self.sizes)
            write_hosts(self.path, self.line, self.sizes[self.place])
            self.n_changes, self.changed = self.n_changes + 1, time.monotonic()


def write_hosts(path, line, n):
    """Atomically; {n} in line: one line; {i}: a line for each of 1 to n."""
    text = "".join(line.format(i=i, n=n) + "\n" for i in range(1, (n if "{i}" in line else 1) + 1))
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(text)
    os.rename(path + ".new", path)


def start(args, folder, name, *options):
    script = os.path.join(folder, "discover.sh")
    hosts = os.path.join(folder, "hosts")
    with open(script, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\nexec cat '{hosts}'\n")
    os.chmod(script, 0o755)
    write_hosts(hosts, args.host_line, args.scale[0] if args.scale else args.slots)
    words = [word.replace("{script}", script).replace("{dir}", folder) for word in args.launcher]
    own = os.path.join(folder, name)
    train = [
        "--records",
        os.path.join(own, "records"),
        "--steps",
        str(args.steps),
        "--batch",
        str(args.batch),
    ]
    return Job([*words, os.path.join(HERE, "train.py"), *train, *options], own)


def disturb(args, folder):
    """(job, killer, scaler) of the disturbed run, which has ended with status 0."""
    stop = os.path.join(folder, "stop")
    job = start(args, folder, "disturbed", "--until", stop, "--pace", str(args.pace))
    try:
        job.wait("the first steps", lambda: job.has_saved(job.last_world(), args.settle), args.deadline)
        killer = Killer(job, args.every, args.seed)
        scaler = Scaler(job, os.path.join(folder, "hosts"), args.host_line, args.scale, args.settle)
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            job.update()
            if not job.is_running():
                raise Late(f"the job has ended with {job.program.returncode} after {killer.n_killed} kills")
            killer.step()
            scaler.step()
            time.sleep(POLL_S)
        with open(stop, "w", encoding="ascii"):
            pass
        status = job.wait_end(args.deadline)
        if status != 0:
            raise Late(f"the job has ended with {status} after {killer.n_killed} kills")
    except Late as e:
        raise Late(f"{e}\n{job.tail()}") from None
    finally:
        job.end()
    return job, killer, scaler


def repeat(args, folder, epochs):
    """The digest of as many epochs without disturbance."""
    job = start(args, folder, "undisturbed", "--epochs", str(epochs))
    try:
        status = job.wait_end(args.deadline + epochs * args.steps * 0.05)
        if status != 0:
            raise Late(f"the undisturbed job has ended with {status}")
    except Late as e:
        raise Late(f"{e}\n{job.tail()}") from None
    finally:
        job.end()
    return summary(job.lines)["digest"]


def longest_pause_s(lines):
    """Without a commit by any process."""
    times = sorted(line[1] for _, line in lines if line[0] == "save")
    return max((b - a for a, b in zip(times, times[1:])), default=0) / 1e9


def run(args, folder):
    """[what is wrong]"""
    try:
        job, killer, scaler = disturb(args, folder)
        problems = check(job.lines)
        of = summary(job.lines)
        digest = repeat(args, folder, of["epochs"])
    except Late as e:
        return [str(e)]
    if digest != of["digest"]:
        problems.append(f"the model is {of['digest']}, that of the undisturbed run {digest}")
    print(
        f"chaos: seed {args.seed}: {killer.n_killed} kills, {killer.n_of_rank_0} of rank 0; "
        f"{scaler.n_changes} changes of size; {of['worlds']} worlds, {of['processes']} processes; "
        f"{of['epochs']} epochs, {of['steps']} steps of {of['tried']} tried; "
        f"longest pause {longest_pause_s(job.lines):.1f} s; model {of['digest'][:16]}"
    )
    if scaler.took:
        took = [round(t, 2) for t in scaler.took]
        print(f"chaos: seconds until all ranks of the new size had a step: {took}")
    return problems


def parse_args():
    parser = argparse.ArgumentParser(
        description="Kills ranks of an elastic job at random; checks samples and the model."
    )
    parser.add_argument("--seconds", type=float, default=60, help="of disturbance (default: %(default)s)")
    parser.add_argument(
        "--every", type=float, default=3, help="seconds between kills; 0: none (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument(
        "--scale", default="", metavar="N,N,...", help="numbers of slots, one after the other"
    )
    parser.add_argument(
        "--slots", type=int, default=4, help="that {script} prints without --scale (default: 4)"
    )
    parser.add_argument(
        "--host-line", default="localhost:{n}", help="of {script}; '127.0.0.{i}:1' for many hosts"
    )
    parser.add_argument(
        "--settle", type=int, default=5, help="steps that each world commits before the next change"
    )
    parser.add_argument(
        "--deadline", type=float, default=180, help="seconds for the start, and for the end"
    )
    parser.add_argument("--steps", type=int, default=50, help="of an epoch (default: %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=24, help="of all ranks; a multiple of each size of a world"
    )
    parser.add_argument("--pace", type=float, default=0.02, help="seconds of a step, at least")
    parser.add_argument("--keep", action="store_true", help="leave the records and logs")
    parser.add_argument("launcher", nargs="+", metavar="LAUNCHER...", help="up to the interpreter")
    args = parser.parse_args()
    try:
        args.scale = [int(n) for n in args.scale.split(",") if args.scale]
    except ValueError:
        parser.error(f"--scale {args.scale}: numbers with commas")
    return args


def main():
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a job is not left behind
    folder = tempfile.mkdtemp(prefix="hvd-chaos-")
    problems = run(args, folder)
    for text in problems:
        print(f"chaos: seed {args.seed}: {text}")
    if problems or args.keep:
        print(f"chaos: records and logs are in {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
