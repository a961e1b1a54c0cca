#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disturbs an elastic job at random, and checks that it ends as if nothing had happened.

    chaos.py --seconds 600 --every 3 --seed 1 -- horovodrun -np 4 -H localhost:4 --min-np 2 python3
    chaos.py --seconds 60 --every 0 --scale 2,4,1,3 -- horovodrun -np 2 --min-np 1 --max-np 4
             --host-discovery-script {script} python3
    chaos.py --on hosts|slurm|kube --seconds 600

    LAUNCHER... train.py  <-- strikes, sizes -- disturb.py -- then --> LAUNCHER... train.py --epochs E
            | record                                                            | record
            v                                                                   v
    check.py: each sample once an epoch;  the model's digest  ==  that of the undisturbed run

    --on local      what follows `--` starts train.py (this folder), which chaos.py appends with its options;
                    any launcher that runs processes on this machine is possible. In its words {script} is a
                    discovery script that prints DIR/hosts, and {dir} is DIR. Victims are ranks.
    --on hosts      four hosts and a fifth for horovodrun, as network namespaces: chaos_hosts.py
    --on slurm      horovodrun --slurm in an allocation of the test Slurm: chaos_slurm.py
    --on kube       a HorovodJob on the test cluster: chaos_kube.py

disturb.py says what is struck and what is spared. Each strike is a line of DIR/strikes.

--scale sets the next size when all ranks of a world of the last one have committed --settle steps, and
--hold seconds later at the earliest; the list is repeated until --seconds are over.

Exit status: 0 the job ended well, the record is right and the models are equal; 1 not so; 2 wrong usage.
"""

import argparse
import contextlib
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time

from check import check, summary
from disturb import Killer, Scaler
from watch import Late

POLL_S = 0.05


@contextlib.contextmanager
def ended_at_last(job):
    """The job does not outlive this; a Late gets the end of its log."""
    try:
        yield
    except Late as e:
        raise Late(f"{e}\n{job.tail()}") from None
    finally:
        job.end()


def disturb(driver, args):
    """(killer, scaler) of the disturbed run, which has ended with status 0."""
    stop = os.path.join(driver.folder, "stop")
    job = driver.job = driver.start("disturbed", "--until", stop, "--pace", str(args.pace))
    with open(os.path.join(driver.folder, "strikes"), "w", encoding="utf-8") as log, ended_at_last(job):
        job.wait("the first steps", lambda: job.has_saved(job.last_world(), args.settle), args.deadline)
        scaler = Scaler(driver, args)
        killer = Killer(driver, scaler, args, log)
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            job.update()
            if not job.is_running():
                raise Late(f"the job has ended with {job.status()}")
            if time.monotonic_ns() > job.last_save_ns + args.stall * 1e9:
                raise Late(f"no commit for {args.stall:g} s")
            killer.step()
            scaler.step(killer.holders)
            driver.tick()
            time.sleep(POLL_S)
        driver.heal()
        with open(stop, "w", encoding="ascii"):
            pass
        status = job.wait_end(args.deadline)
        if status != 0:
            raise Late(f"the job has ended with {status}")
    return killer, scaler


def repeat(driver, args, epochs):
    """The digest of as many epochs without disturbance."""
    job = driver.start("undisturbed", "--epochs", str(epochs))
    with ended_at_last(job):
        status = job.wait_end(args.deadline + epochs * args.steps * 0.05)
        if status != 0:
            raise Late(f"the undisturbed job has ended with {status}")
    return summary(job.lines)["digest"]


def longest_pause_s(lines):
    """Without a commit by any process."""
    times = sorted(line[1] for _, line in lines if line[0] == "save")
    return max((b - a for a, b in zip(times, times[1:])), default=0) / 1e9


def run(driver, args):
    """[what is wrong]"""
    try:
        driver.begin()
        killer, scaler = disturb(driver, args)
        job = driver.job
        problems = check(job.lines)
        of = summary(job.lines)
        digest = repeat(driver, args, of["epochs"])
    except Late as e:
        return [str(e)]
    finally:
        driver.end()
    if digest != of["digest"]:
        problems.append(f"the model is {of['digest']}, that of the undisturbed run {digest}")
    bases = {line[2]: line[6] for _, line in job.lines if line[0] == "world"}
    problems += [f"world {w} began again, from step 0" for w, _ in of["undone"] if bases[w] == 0]
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(killer.struck.items()))
    undone = [n for _, n in of["undone"]]
    print(
        f"chaos: on {args.on}, seed {args.seed}, {args.seconds:g} s: "
        f"{killer.struck.total()} strikes ({kinds}), {killer.n_of_rank_0} of rank 0; "
        f"{scaler.n_changes} changes of size; {of['worlds']} worlds, {of['processes']} processes; "
        f"{of['epochs']} epochs, {of['steps']} steps of {of['tried']} tried, "
        f"{sum(undone)} undone, at most {max(undone, default=0)} at once; "
        f"longest pause {longest_pause_s(job.lines):.1f} s; model {of['digest'][:16]}"
    )
    if scaler.took:
        took = ", ".join(f"{n}: {t:.1f}" for n, t in scaler.took)
        print(f"chaos: seconds until all ranks of a new size had a step: {took}")
    return problems


PLATFORMS = ("local", "hosts", "slurm", "kube")


def make_parser():
    parser = argparse.ArgumentParser(
        description="Disturbs an elastic job at random; checks samples and the model."
    )
    parser.add_argument("--on", choices=PLATFORMS, default="local", help="platform (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="of disturbance (default: %(default)s)")
    parser.add_argument(
        "--every", type=float, default=3, help="seconds between strikes; 0: none (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--scale", default="", metavar="N,N,...", help="sizes, one after the other")
    parser.add_argument("--hold", type=float, default=0, help="seconds of each size (default: %(default)s)")
    parser.add_argument(
        "--patience", type=float, default=30, help="seconds until strikes pause for a new size"
    )
    parser.add_argument(
        "--stall", type=float, default=120, help="seconds without a commit that are too many"
    )
    parser.add_argument(
        "--slots", type=int, default=4, help="local: that {script} prints without --scale (default: 4)"
    )
    parser.add_argument(
        "--host-line", default="localhost:{n}", help="of {script}; '127.0.0.{i}:1' for many hosts"
    )
    parser.add_argument(
        "--settle", type=int, default=5, help="steps that each world commits before the next size"
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
    parser.add_argument("launcher", nargs="*", metavar="LAUNCHER...", help="local: up to the interpreter")
    return parser


def parse_args():
    """(options, class of the platform)"""
    parser = make_parser()
    platform = importlib.import_module(f"chaos_{parser.parse_args().on}").Platform
    parser.set_defaults(**platform.defaults)
    args = parser.parse_args()
    try:
        args.scale = [int(n) for n in args.scale.split(",") if args.scale]
    except ValueError:
        parser.error(f"--scale {args.scale}: numbers with commas")
    if args.scale and not platform.can_scale:
        parser.error(f"--scale: the size of a job on {args.on} is that of its hosts")
    if bool(args.launcher) != (args.on == "local"):
        parser.error("LAUNCHER... is for --on local, which needs it")
    return args, platform


def main():
    args, platform = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a job is not left behind
    # not in /tmp: each node of the test Slurm has its own
    folder = tempfile.mkdtemp(prefix="hvd-chaos-", dir="/var/tmp")
    problems = run(platform(args, folder), args)
    for text in problems:
        print(f"chaos: on {args.on}, seed {args.seed}: {text}")
    if problems or args.keep:
        print(f"chaos: records and logs are in {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
