#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the GPU backend on one GPU; on the fakes only that the measuring works, whose figures mean nothing.

usage: bench.py [--tree DIR] [--out DIR] [--mode fake|gpu] [--smoke]
       bench.py --report FILE        puts the figures of a run into tests/bench/README.md

Prints lines, and writes bench.json into --out ($OUT, else build/logs/gpu). --smoke: few repeats, a minute.
What is measured: the kernels that pack and unpack lists of tensors against a copy of the device
(bench_kernels.c); latency, allreduce and tables (bench_rank.py); training (bench_train.py). Peers are
measured in the same run, training in alternating rounds, of which the medians count.
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import harness
from harness import HERE, ROOT, interpreter

sys.path.insert(0, str(ROOT / "tests" / "bench"))
from resnet50 import gradients

BEGIN, END = "<!-- gpu results: written by tests/gpu/bench.py -->", "<!-- end of gpu results -->"
GOAL = 0.85  # of what a copy of the device moves, for lists of tensors
JUDGED = ("copy in", "copy out")  # by the kernels of a sum and an average of one type


def transformer(layers=24, width=1024, vocabulary=30522):
    """Shapes of an encoder's parameters."""
    shapes = [(vocabulary, width), (512, width)]
    for _ in range(layers):
        shapes += [(3 * width, width), (3 * width,), (width, width), (width,)]
        shapes += [(4 * width, width), (4 * width,), (width, 4 * width), (width,)]
        shapes += [(width,)] * 4
    return shapes


def counts_of(shapes):
    return [math.prod(shape) for shape in shapes]


def rows_of(ended):
    return [json.loads(line) for line in ended[0].out.splitlines() if line.startswith("{")]


class Measure:
    def __init__(self, bench, small):
        self.bench, self.small, self.rows, self.problems = bench, small, [], []

    def take(self, name, ends):
        """The rows that rank 0 printed, or what went wrong."""
        bad = [e.error() for e in ends if e.error()]
        rows = rows_of(ends)
        if bad or not rows:
            self.problems.append(f"{name}: {(bad or ['it printed nothing'])[0]}")
        for row in rows:
            print(json.dumps(row), flush=True)
        self.rows += rows

    def kernels(self):
        lists = {"resnet50": gradients(), "transformer": transformer()}
        paths = []
        for name, shapes in lists.items():
            path = Path(self.bench.tmp.name) / name
            counts = counts_of(shapes)
            if self.bench.is_fake:
                counts = [min(n, 5000) for n in counts]
            path.write_text("\n".join(map(str, counts)) + "\n")
            paths.append(path)
        repeats = 3 if self.small else 31
        megabytes = 4 if self.bench.is_fake else 1024
        argv = [self.bench.tree / "gpu" / "bench_kernels", repeats, *paths]
        ended = self.bench.command(argv, 120, RM_COPY_MB=megabytes)
        copy = None
        for line in ended.out.splitlines():
            words = line.split(",")
            if len(words) != 4:
                continue
            rate = int(words[3]) / float(words[2]) / 1e9
            copy = copy or rate
            row = {
                "part": "kernels",
                "list": words[0],
                "kernel": words[1],
                "gb_s": rate,
                "of_copy": rate / copy,
            }
            self.rows.append(row)
            print(json.dumps(row), flush=True)
        if ended.error() or copy is None:
            self.problems.append(f"kernels: {ended.error() or 'no rows'}")

    def ranks(self, part, n, *words, **extra):
        argv = [interpreter(), HERE / "bench_rank.py", part, 30 if self.small else 500, *words]
        if self.bench.is_fake:
            extra.update(RM_MOST=65536, RM_TENSORS=10)
        self.take(f"{part} {words}", self.bench.ranks(n, argv, 90, CHECKS_HOSTS=n, **extra))

    def training(self):
        steps, rounds = (5, 1) if self.small else (20, 5)
        for model in ("resnet50", "transformer"):
            if model == "resnet50" and not harness.has("torchvision"):
                continue
            for n in (1, 2):
                for _ in range(rounds):
                    for peer in ("ddp", "ours"):
                        argv = [interpreter(), HERE / "bench_train.py", model, peer, steps]
                        self.take(f"train {model} {peer} {n}", self.bench.ranks(n, argv, 60))

    def all(self):
        self.kernels()
        for n in (1, 2):
            for blocking in ("0", "1"):
                self.ranks("latency", n, NCCL_COMM_BLOCKING=blocking)
        self.ranks("allreduce", 2)
        if not self.bench.is_fake:
            self.ranks("allreduce", 2, "torch")
        self.ranks("tables", 2)
        if not self.bench.is_fake:
            self.training()


def machine(bench):
    """As hvd-gpu names it."""
    ended = bench.command([bench.tree / "bin" / "hvd-gpu", "info", bench.tree / "lib"])
    said = dict(line.split(" ", 1) for line in ended.out.splitlines() if " " in line)
    name = said.get("gpu", "no GPU").split(" ", 5)[-1]
    return {
        "gpu": name,
        "driver": said.get("driver", ""),
        "nccl": said.get("nccl", ""),
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


# --- the report ---


def median_of(rows, **what):
    values = [r["median_us"] for r in rows if all(r.get(k) == v for k, v in what.items())]
    return statistics.median(values) if values else None


def report(data):
    """Markdown of a run's figures."""
    m, rows = data["machine"], data["rows"]
    out = [
        f"One {m['gpu']} (driver {m['driver']}, NCCL {m['nccl']}, {m['processors']} processors), {m['date']}; "
        "2 ranks share the GPU.",
        "",
        "| list of tensors | kernel | GB/s | of a copy |",
        "|---|---|---:|---:|",
    ]
    for r in (r for r in rows if r["part"] == "kernels"):
        missed = " (goal 85%)" if r["kernel"] in JUDGED and r["of_copy"] < GOAL else ""
        out.append(f"| {r['list']} | {r['kernel']} | {r['gb_s']:.0f} | {r['of_copy']:.0%}{missed} |")
    out += ["", "| what | ranks | bytes | median | 99th of 100 |", "|---|---:|---:|---:|---:|"]
    for r in (r for r in rows if r["part"] in ("latency", "allreduce", "tables")):
        what = {"latency": "submit to launch", "allreduce": "allreduce", "tables": "a step, tables "}[
            r["part"]
        ]
        if r["part"] == "latency":
            what += f", NCCL_COMM_BLOCKING={r['blocking']}"
        if r["part"] == "tables":
            what += "kept" if r["hit"] else "new each time"
        what += ", torch.distributed" if r["peer"] == "torch" else ""
        out.append(
            f"| {what} | {r['ranks']} | {r['bytes']} | {r['median_us']:.1f} us | {r['p99_us']:.1f} us |"
        )
    trained = sorted({(r["model"], r["ranks"]) for r in rows if r["part"] == "train"})
    if trained:
        out += ["", "| training step | ranks | DDP with NCCL | ours |", "|---|---:|---:|---:|"]
    for model, ranks in trained:
        ddp, ours = (
            median_of(rows, part="train", model=model, ranks=ranks, peer=p) for p in ("ddp", "ours")
        )
        cells = [f"{us / 1e3:.2f} ms" if us else "failed" for us in (ddp, ours)]
        out.append(f"| {model} | {ranks} | {cells[0]} | {cells[1]} |")
    return "\n".join(out)


def write_report(path, readme):
    data = json.loads(Path(path).read_text())
    if data["is_fake"]:
        sys.exit("bench.py: the figures of a run on the fakes mean nothing")
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"bench.py: {readme} has no place for the figures")
    readme.write_text(f"{before}{BEGIN}\n\n{report(data)}\n\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(description="Measures the GPU backend.")
    parser.add_argument("--tree", default=ROOT / os.environ.get("BUILD", "build") / "plain")
    parser.add_argument("--out", default=os.environ.get("OUT") or ROOT / "build" / "logs" / "gpu")
    parser.add_argument("--mode", choices=("fake", "gpu"), default=os.environ.get("RM_GPU") or "gpu")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--report", metavar="FILE")
    parser.add_argument("--readme", default=ROOT / "tests" / "bench" / "README.md", type=Path)
    options = parser.parse_args()
    if options.report:
        write_report(options.report, options.readme)
        return 0
    is_fake = options.mode == "fake"
    if not is_fake and not harness.has_gpu():
        sys.exit("bench.py: no GPU here; --mode fake shows that the measuring works")
    bench = harness.Bench(options.tree, is_fake, options.out)
    measure = Measure(bench, options.smoke or is_fake)
    measure.all()
    data = {
        "is_fake": is_fake,
        "machine": machine(bench),
        "rows": measure.rows,
        "problems": measure.problems,
    }
    name = "bench-fake.json" if is_fake else "bench.json"
    (bench.out / name).write_text(json.dumps(data, indent=1) + "\n")
    for problem in measure.problems:
        print(f"problem: {problem}", file=sys.stderr)
    return 1 if measure.problems else 0


if __name__ == "__main__":
    sys.exit(main())
