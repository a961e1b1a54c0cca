#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a ring exchange data with their neighbours (ring_capi.c):

    tests/bench/ring.py BIN [BIN...] [--both] [--np N] [--rounds N] [--line DELAY_US]

BIN: folder of horovodrun, bench_ring and its ../lib; of several the runs alternate, so builds can be
compared. Without --line: over shared memory, and over TCP on the loopback device. With it: over TCP, ranks
alternately in two network namespaces joined by a line of 10 Gbit/s with this one-way delay (tune.py's; needs
root). Prints the median over runs of each figure, in microseconds."""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from tune import NET, Line

MBIT = 10000


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD_", "HVD_"))}
    return {**clean, **{k: str(v) for k, v in more.items()}}


def local_run(bins, np, transport, ways):
    cmd = [bins / "horovodrun", "-np", str(np), "--no-tag-output", bins / "bench_ring", transport, *ways]
    env = environment(HVD_TRANSPORT=transport) if transport == "tcp" else environment()
    return subprocess.run(cmd, env=env, check=True, capture_output=True, text=True).stdout


def line_run(line, bins, np, ways):
    ranks = []
    for rank in range(np):
        place = {"RANK": rank, "WORLD_SIZE": np, "LOCAL_RANK": rank // 2, "LOCAL_WORLD_SIZE": np // 2}
        master = {"MASTER_ADDR": f"{NET}.1", "MASTER_PORT": 29581, "HVD_TRANSPORT": "tcp"}
        cmd = ["ip", "netns", "exec", line.names[rank % 2], bins / "bench_ring", "line", *ways]
        ranks.append(
            subprocess.Popen(cmd, env=environment(**place, **master), stdout=subprocess.PIPE, text=True)
        )
    out = [r.communicate(timeout=600)[0] for r in ranks]
    if any(r.returncode for r in ranks):
        sys.exit("ring.py: a rank failed")
    return out[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bin", type=Path, nargs="+")
    p.add_argument("--both", action="store_true", help="with both neighbours")
    p.add_argument("--np", type=int, default=4)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--line", type=int, metavar="DELAY_US")
    args = p.parse_args()
    figures, ways = {}, ["both"] * args.both

    def keep(number, text):
        for row in text.splitlines():
            if row.startswith("AR,"):
                _, name, _, size, _, *us = row.split(",")
                figures.setdefault((name, int(size), number), []).append([float(x) for x in us])

    def measure(run):
        for _ in range(args.rounds):
            for number, bins in enumerate(args.bin):
                keep(number, run(bins.resolve()))

    if args.line is None:
        measure(lambda bins: local_run(bins, args.np, "shm", ways))
        measure(lambda bins: local_run(bins, args.np, "tcp", ways))
    else:
        with Line(args.bin[0], MBIT, args.line) as line:
            measure(lambda bins: line_run(line, bins, args.np, ways))
    for name, size, number in sorted(figures):
        columns = zip(*figures[name, size, number])
        text = "  ".join(
            f"{what} {statistics.median(v):10.1f}"
            for what, v in zip(("median", "min", "p90", "mean"), columns)
        )
        print(f"{name:5} {size:>9} B  {args.bin[number]}  {text}")


if __name__ == "__main__":
    main()
