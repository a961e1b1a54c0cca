#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the GPU backend: on a GPU where there is one, else all that runs on the fakes of it.

usage: run.py [--tree DIR] [--out DIR] [--mode fake|gpu|auto] [--seconds N] [--limit N] [STAGE ...]

  STAGE      of stages.py; without one all but those on request
  --tree     a folder that `make gpu-carry` made; default: the one that this file lies in, else build/gpu
  --out      logs, JSON lines, figures and summary.txt; default $OUT, else build/logs/gpu
  --mode     auto: the fakes first, to know that the tests themselves work, then the GPU if there is a driver
             ($RM_GPU is the default)
  --seconds  for all stages together. A stage gets its own limit, or what is left less what later stages need
             at least (stages.LEAST, in proportion where the total is less)
  --limit    the most that a stage gets

TAP on stdout. A stage that fails or runs out of time does not keep the next from running. Exit code: 0 all
that ran passed, 1 something failed, ran out of time or was stopped by a signal, 77 --mode gpu and there is no
GPU. summary.txt, which is printed at the end, is written anew after each stage. RM_FAKE_FAULTS: faults of the
fakes (tests/fakes/cuda/fake_cuda.h).
"""

import argparse
import os
import sys
import time
from pathlib import Path

import harness
import stages

SKIP = "no GPU here: the tests of tests/gpu ran on the fakes alone"
NO_GPU = 77
SHOWN = 20  # failed points that the summary names


class Run:
    """All stages of all modes; benches: one of each mode that was begun."""

    def __init__(self, options):
        self.options, self.benches, self.began, self.stopped = options, [], time.monotonic(), ""

    def stop(self, name):
        """Of a signal's handler."""
        self.stopped = name
        for bench in self.benches:
            bench.stop(name)

    def rows(self, is_fake):
        """(name, limit, function) of the stages that are to run."""
        wanted = self.options.stages or set(stages.STAGES) - stages.ON_REQUEST
        for name, (gpu_s, fake_s, function) in stages.STAGES.items():
            limit_s = min(fake_s if is_fake else gpu_s, self.options.limit)
            if name in wanted and limit_s:
                yield name, limit_s, function

    def share(self, limit_s, names, i):
        """Seconds for the stage names[i]."""
        total = self.options.seconds
        if not total:
            return limit_s
        least = [stages.LEAST.get(name, 0) for name in names]
        later = sum(least[i + 1 :]) * min(1, total / max(1, sum(least)))
        return min(limit_s, self.began + total - time.monotonic() - later)

    def why_not(self, name, is_fake, seconds):
        """Why a stage cannot run, or ""."""
        if self.stopped:
            return f"the run was stopped by {self.stopped}"
        if seconds < 1:
            return "no time was left"
        missing = [m for m in stages.NEEDS.get(name, ()) if not harness.has(m)]
        if missing:
            return f"{sys.executable} has no {missing[0]}"
        return "" if is_fake or name == "inventory" else harness.no_gpu()

    def run(self, mode):
        bench = harness.Bench(self.options.tree, mode == "fake", self.options.out)
        self.benches.append(bench)
        rows = list(self.rows(bench.is_fake))
        for i, (name, limit_s, function) in enumerate(rows):
            seconds = self.share(limit_s, [row[0] for row in rows], i)
            why = self.why_not(name, bench.is_fake, seconds)
            if why:
                bench.skip_stage(name, why)
            else:
                bench.stage(name, seconds, function, self.write)
            self.write()
        return bench

    # --- the summary ---

    def summary(self):
        """A page."""
        ran = [(bench, row) for bench in self.benches for row in bench.stages]
        points = [(b, row, p) for b, row in ran for p in row["points"]]
        bad = [(b, row, p) for b, row, p in points if p["error"]]
        n_skipped = sum(p["skip"] is not None for _, _, p in points)
        seconds = time.monotonic() - self.began
        of = f" of {self.options.seconds:.0f} s" if self.options.seconds else ""
        out = [
            f"# tests of the GPU backend, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {seconds:.0f} s{of}",
            f"{len(points) - len(bad) - n_skipped} passed, {len(bad)} failed, {n_skipped} skipped"
            + (f"; stopped by {self.stopped}" if self.stopped else ""),
            "",
            *(self.benches[-1].facts if self.benches else []),
        ]
        if bad:
            bench, row, point = bad[0]
            out += ["", f"failed first: {bench.mark}{row['name']}: {point['name']}"]
            out += [f"    {line[:160]}" for line in point["error"].strip().splitlines()[:12]]
        out += ["", f"{'stage':<22} {'good':>5} {'bad':>4} {'seconds':>8} {'limit':>6}  result"]
        for bench, row in ran:
            n_bad = sum(p["error"] is not None for p in row["points"])
            good = sum(p["error"] is None and p["skip"] is None for p in row["points"])
            why = next(
                (f": {p['skip']}" for p in row["points"] if p["skip"] and row["result"] == "skipped"), ""
            )
            out.append(
                f"{bench.mark + row['name']:<22} {good:>5} {n_bad:>4} {row['seconds']:>8.1f}"
                f" {row['limit_s']:>6.0f}  {row['result']}{why}"
            )
        out += ["", "failed:"] if bad else []
        out += [f"    {bench.mark}{row['name']}: {p['name']}"[:160] for bench, row, p in bad[:SHOWN]]
        out += [f"    and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
        return "\n".join(out) + "\n"

    def write(self):
        file = Path(self.options.out) / "summary.txt"
        partial = file.with_suffix(".new")
        partial.write_text(self.summary())
        partial.replace(file)


def read_options():
    parser = argparse.ArgumentParser(description="Tests of the GPU backend.")
    parser.add_argument("--tree", default=harness.TREE)
    parser.add_argument(
        "--out", default=os.environ.get("OUT") or harness.ROOT / "build" / "logs" / "gpu", type=Path
    )
    parser.add_argument(
        "--mode", choices=("fake", "gpu", "auto"), default=os.environ.get("RM_GPU") or "auto"
    )
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--limit", type=float, default=3600)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(stages.STAGES))
    options = parser.parse_args()
    unknown = set(options.stages) - set(stages.STAGES)
    if unknown:
        parser.error(f"no stage {min(unknown)!r}; there are: {', '.join(stages.STAGES)}")
    if os.environ.get("RM_ONLY"):  # tests/run.py repeats what failed
        options.stages = [os.environ["RM_ONLY"]]
    return options


def main():
    options = read_options()
    has_gpu = not harness.no_gpu()
    modes = [options.mode] if options.mode != "auto" else ["fake", "gpu"] if has_gpu else ["fake"]
    run = Run(options)
    harness.stop_on_signals(run.stop)
    if has_gpu:
        harness.keep_gpu()
    try:
        for mode in modes:
            run.run(mode)
    finally:
        run.write()
    count = sum(bench.count for bench in run.benches)
    if options.mode == "auto" and not has_gpu:
        count += 1
        print(f"ok {count} - on a GPU # SKIP {SKIP}")
    failed = [
        row["name"]
        for bench in run.benches
        for row in bench.stages
        if any(p["error"] for p in row["points"])
    ]
    if failed and os.environ.get("RM_FAILED"):
        Path(os.environ["RM_FAILED"]).write_text("".join(f"{name}\n" for name in failed))
    print(f"1..{count}\n")
    print((options.out / "summary.txt").read_text(), flush=True)
    if failed or run.stopped:
        return 1
    return NO_GPU if options.mode == "gpu" and not has_gpu else 0


if __name__ == "__main__":
    sys.exit(main())
