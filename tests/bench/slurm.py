#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long a step of Slurm takes until all ranks are past init: slurm.py BIN PLUGIN [--rounds N] [--check]

8 ranks on 4 nodes of a real Slurm (tests/slurm), in steps of one allocation, by

    srun              bench_start bare: the tasks only note the time
    srun --hvd        bench_start: hvd_init
    srun --mpi=pmix   bench_hello_mpi: MPI_Init of Open MPI

The three alternate within a round. Prints the medians in ms, from just before srun until the last rank has
noted the time, and until srun has ended; and the ratios. --check fails when a goal is missed: --hvd no slower
than --mpi=pmix, and at most 150 ms above the bare srun. A start that fails is counted and left out.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

from start import last_stamp

SLURM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "slurm")
RUN = os.environ.setdefault("RM_SLURM_RUN", "/run/ringmaster-slurm")
RANKS, NODES, ABOVE_BARE_MS, TIMEOUT_S = 8, 4, 150, 60
WAYS = {
    "srun": ([], ["bench_start", "bare"]),
    "srun --hvd": (["--hvd"], ["bench_start"]),
    "srun --mpi=pmix": (["--mpi=pmix"], ["bench_hello_mpi"]),
}


def install(bin_dir, plugin):
    """Copies below RUN, which all nodes see."""
    for folder in ("bin", "lib", "empty/python/_hvd", "empty/bin"):
        os.makedirs(f"{RUN}/{folder}", exist_ok=True)
    for name in ("bench_start", "bench_hello_mpi"):
        shutil.copy(f"{bin_dir}/{name}", f"{RUN}/bin/")
    shutil.copy(f"{bin_dir}/../lib/libhvd.so", f"{RUN}/lib/")
    shutil.copy(plugin, f"{RUN}/lib/")
    with open(plugin, "rb") as f:
        version = re.search(rb"@\(#\)spank_hvd (\d\S*)", f.read())[1].decode()
    with open(f"{RUN}/empty/python/_hvd/_version.py", "w", encoding="ascii") as f:
        f.write(f"RINGMASTER_VERSION = '{version}'\n")
    with open(f"{RUN}/etc/plugstack.conf", "w", encoding="ascii") as f:
        f.write(f"required {RUN}/lib/{os.path.basename(plugin)} run_dir={RUN}/steps dir={RUN}/empty\n")


def allocate():
    done = subprocess.run(
        [f"{SLURM}/on", "ctl", "salloc", f"-N{NODES}", f"-n{RANKS}", "--no-shell"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return re.search(r"Granted job allocation (\d+)", done.stderr).group(1)


def run_step(job, options, program):
    """(ms until the last rank is past init, ms until srun has ended)"""
    stamps = f"{RUN}/stamps"
    with open(stamps, "w", encoding="ascii"):
        pass
    command = [
        f"{SLURM}/on",
        "ctl",
        "env",
        f"BENCH_STAMPS={stamps}",
        "srun",
        "-Q",
        f"--jobid={job}",
        *options,
    ]
    command += [f"-N{NODES}", f"-n{RANKS}", "--ntasks-per-node=2", f"{RUN}/bin/{program[0]}", *program[1:]]
    began = time.monotonic_ns()
    subprocess.run(command, timeout=TIMEOUT_S, check=True, capture_output=True)
    ended = time.monotonic_ns()
    with open(stamps, encoding="ascii") as f:
        return (last_stamp(f.read(), RANKS) - began) / 1e6, (ended - began) / 1e6


def measure(job, rounds):
    took, failed = {way: [] for way in WAYS}, dict.fromkeys(WAYS, 0)
    for turn in range(rounds + 1):
        for way, (options, program) in WAYS.items():
            try:
                times = run_step(job, options, program)
            except (subprocess.SubprocessError, SystemExit) as e:
                failed[way] += 1
                print(f"{way}: {e} {getattr(e, 'stderr', '')}", file=sys.stderr)
                continue
            if turn > 0:  # the first finds cold caches
                took[way].append(times)
    return took, failed


def report(took, failed, load):
    """Prints the table; whether the goals are reached."""
    median = {way: [statistics.median(t) for t in zip(*times)] for way, times in took.items()}
    print(f"{RANKS} ranks on {NODES} nodes, ms, medians of {len(took['srun'])}, load average {load:.1f}")
    print(f"{'':16} {'past init':>10} {'fastest':>10} {'srun ended':>10} {'ratio':>6} {'failed':>6}")
    for way, (init, end) in median.items():
        fastest = min(t[0] for t in took[way])
        ratio = init / median["srun"][0]
        print(f"{way:16} {init:10.0f} {fastest:10.0f} {end:10.0f} {ratio:6.2f} {failed[way]:6}")
    bare, ours, pmix = (median[way][0] for way in WAYS)
    print(f"srun --hvd: {ours - bare:.0f} ms above srun, {ours / pmix:.2f} of srun --mpi=pmix")
    return ours <= pmix and ours - bare <= ABOVE_BARE_MS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("plugin")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    subprocess.run([f"{SLURM}/down"], check=True)
    try:
        subprocess.run([f"{SLURM}/up", str(NODES)], check=True)
        install(args.bin, args.plugin)
        took, failed = measure(allocate(), args.rounds)
        reached = report(took, failed, os.getloadavg()[0])
    finally:
        subprocess.run([f"{SLURM}/down"], check=True)
    if args.check and not reached:
        sys.exit("bench-slurm: a goal is missed")


if __name__ == "__main__":
    main()
