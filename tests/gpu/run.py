#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the GPU backend: on a GPU where there is one, else all that runs on the fakes of it.

usage: run.py [--tree DIR] [--out DIR] [--mode fake|gpu|auto] [STAGE ...]

  --tree   build/plain (default), or build/gpu of `make gpu-carry`, which needs nothing but libc, Python 3.11
           and numpy where it runs
  --out    logs and JSON; default $OUT, else build/logs/gpu
  --mode   auto: the fakes first, to know that the tests themselves work, then the GPU if there is a driver
           ($RM_GPU is the default)

TAP on stdout. Each stage has a budget; a stage that fails does not keep the next from running. On one GPU
ranks share it: NCCL takes them for hosts of their own (NCCL_HOSTID). The stages are in stages.py.
"""

import argparse
import os
import sys
from pathlib import Path

import harness
import stages

SKIP = "no GPU here: the tests of tests/gpu ran on the fakes alone"


def run(mode, options):
    is_fake = mode == "fake"
    bench = harness.Bench(options.tree, is_fake, options.out)
    for name, (budget_s, fake_s, function) in stages.STAGES.items():
        if options.stages and name not in options.stages:
            continue
        if not (fake_s if is_fake else budget_s):
            continue
        bench.stage(name, fake_s if is_fake else budget_s, function)
    bench.write("fake.json" if is_fake else "gpu.json")
    return bench


def main():
    parser = argparse.ArgumentParser(description="Tests of the GPU backend.")
    parser.add_argument("--tree", default=harness.ROOT / os.environ.get("BUILD", "build") / "plain")
    parser.add_argument("--out", default=os.environ.get("OUT") or harness.ROOT / "build" / "logs" / "gpu")
    parser.add_argument(
        "--mode", choices=("fake", "gpu", "auto"), default=os.environ.get("RM_GPU") or "auto"
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(stages.STAGES))
    options = parser.parse_args()
    unknown = set(options.stages) - set(stages.STAGES)
    if unknown:
        parser.error(f"no stage {min(unknown)!r}; there are: {', '.join(stages.STAGES)}")
    if os.environ.get("RM_ONLY"):  # tests/run.py repeats what failed
        options.stages = [os.environ["RM_ONLY"]]
    modes = [options.mode] if options.mode != "auto" else ["fake", "gpu"]
    if options.mode == "auto" and not harness.has_gpu():
        modes.remove("gpu")
    count = n_failed = 0
    failed = []
    for mode in modes:
        bench = run(mode, options)
        failed += [s["name"] for s in bench.stages if any(p["error"] for p in s["points"])]
        count, n_failed = count + bench.count, n_failed + bench.n_failed
    if "gpu" not in modes and options.mode != "fake":
        count += 1
        print(f"ok {count} - on a GPU # SKIP {SKIP}")
    if failed and os.environ.get("RM_FAILED"):
        Path(os.environ["RM_FAILED"]).write_text("".join(f"{name}\n" for name in failed))
    print(f"1..{count}")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
