#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the GPU backend on one GPU; on the fakes only that the measuring works, whose figures mean nothing.

usage: bench.py [--tree DIR] [--out DIR] [--mode fake|gpu] [--smoke] [--limit SECONDS] [PART ...]
       bench.py --report FILE ...    puts the figures of runs into tests/bench/README.md

  PART     kernels latency allreduce tables training; without one all but training, which takes minutes
  --smoke  few repeats, a minute
  --limit  the most that a part may take; each part has a limit of its own, too

Each figure is printed and appended to a file of JSON lines when it exists, so that a run that is killed keeps
its figures. The file is bench.jsonl in --out ($OUT, else build/logs/gpu), or bench-PART.jsonl of parts that
were named. A part that runs out of time is reported as a problem and the next one starts.

What is measured: the kernels that pack and unpack lists of tensors against a copy of the device
(bench_kernels.c); latency, allreduce and tables (bench_rank.py); training (bench_train.py). Two ranks share
the GPU, through MPS where that is (mps.py). Peers are measured in the same run, training in alternating
rounds, of which the medians count.
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
import mps
from harness import HERE, ROOT, interpreter

sys.path.insert(0, str(ROOT / "tests" / "bench"))
from resnet50 import gradients

BEGIN, END = "<!-- gpu results: written by tests/gpu/bench.py -->", "<!-- end of gpu results -->"
GOAL = 0.85  # of what a copy of the device moves, for lists of tensors
JUDGED = ("copy in", "copy out")  # by the kernels of a sum and an average of one type
# of training: bench_train.py's name, the report's
PEERS = (
    ("ddp", "DDP with NCCL"),
    ("ours", "DistributedOptimizer"),
    ("ddp-hvd", "DDP with hvd"),
)


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


def name_of(parts, is_fake):
    """Of a run's files."""
    return "-".join(["bench", *parts, *(["fake"] if is_fake else [])])


class Measure:
    """One run. rows: the figures, a machine row before them, and problems among them."""

    def __init__(self, bench, is_small, parts=()):
        self.bench, self.is_small = bench, is_small or bench.is_fake
        self.parts = list(parts) or [p for p in PARTS if p != "training"]
        self.rows = []
        self.file = bench.open(f"{name_of(parts, bench.is_fake)}.jsonl")

    def row(self, **row):
        """Prints and keeps it."""
        text = json.dumps(row)
        self.rows.append(row)
        self.file.write(f"{text}\n")
        self.bench.say(text)

    def problem(self, part, text):
        self.row(part="problem", of=part, text=text)

    def problems_of(self, part):
        return [r["text"] for r in self.rows if r["part"] == "problem" and r["of"] == part]

    def run(self, most_s=3600):
        """All parts, each within its limit."""
        with mps.shared(self.bench) as sharing:
            self.row(part="machine", sharing=sharing, **machine(self.bench))
            for part in self.parts:
                limit_s, measure = PARTS[part]
                with self.bench.limit(min(limit_s, most_s)) as limit:
                    measure(self)
                if limit.why:
                    self.problem(part, limit.why)

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
        repeats = 3 if self.is_small else 31
        megabytes = 4 if self.bench.is_fake else 1024
        argv = [self.bench.tree / "gpu" / "bench_kernels", repeats, *paths]
        copies = []

        def take(line):
            words = line.split(",")
            if len(words) != 4:
                return
            rate = int(words[3]) / float(words[2]) / 1e9
            copies.append(rate)  # the first line is the copy
            of_copy = rate / copies[0]
            self.row(part="kernels", list=words[0], kernel=words[1], gb_s=rate, of_copy=of_copy)

        ended = self.bench.command(argv, on_line=take, RM_COPY_MB=megabytes)
        if ended.error() or not copies:
            self.problem("kernels", ended.error() or "no rows")

    def ranks(self, part, n, argv, timeout=90, **extra):
        """A script on n ranks, of which rank 0 prints rows."""
        n_before = len(self.rows)

        def take(line):
            if line.startswith("{") and line.endswith("}\n"):
                self.row(**json.loads(line))

        ends = self.bench.ranks(n, [interpreter(), *argv], timeout, take, CHECKS_HOSTS=n, **extra)
        bad = [e.error() for e in ends if e.error()]
        if bad or len(self.rows) == n_before:
            words = " ".join(str(a) for a in argv[1:])
            self.problem(part, f"{words} on {n}: {(bad or ['it printed nothing'])[0]}")

    def collectives(self, part, n, *words, **extra):
        if self.bench.is_fake:
            extra.update(RM_MOST=65536, RM_TENSORS=10)
        self.ranks(part, n, [HERE / "bench_rank.py", part, 30 if self.is_small else 500, *words], **extra)

    def latency(self):
        for n in (1, 2):
            for blocking in ("0", "1"):
                self.collectives("latency", n, NCCL_COMM_BLOCKING=blocking)

    def allreduce(self):
        self.collectives("allreduce", 2)
        if harness.has("torch") and not self.bench.is_fake:
            self.collectives("allreduce", 2, "torch")

    def tables(self):
        self.collectives("tables", 2)

    def training(self):
        """On 2 ranks: DistributedOptimizer reduces nothing on one."""
        models = {"resnet50": 20} if harness.has("torchvision") else {}
        models["transformer"] = 8  # steps
        for _ in range(1 if self.is_small else 3):
            began = time.monotonic()
            for model, steps in models.items():
                for peer, _ in PEERS:
                    argv = [HERE / "bench_train.py", model, peer, 5 if self.is_small else steps]
                    self.ranks("training", 2, argv)
            if self.bench.left() < time.monotonic() - began:
                return  # no time for another round


# part: seconds, what measures it
PARTS = {
    "kernels": (60, Measure.kernels),
    "latency": (90, Measure.latency),
    "allreduce": (90, Measure.allreduce),
    "tables": (60, Measure.tables),
    "training": (540, Measure.training),
}


def machine(bench):
    """As hvd-gpu names it."""
    ended = bench.command([bench.tree / "bin" / "hvd-gpu", "info", bench.tree / "lib"], 30)
    said = dict(line.split(" ", 1) for line in ended.out.splitlines() if " " in line)
    return {
        "is_fake": bench.is_fake,
        "gpu": said.get("gpu", "no GPU").split(" ", 5)[-1],
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


def report(rows):
    """Markdown of the figures of runs on one machine."""
    m = next(r for r in rows if r["part"] == "machine")
    out = [
        f"One {m['gpu']} (driver {m['driver']}, NCCL {m['nccl']}, {m['processors']} processors), {m['date']}; "
        f"2 ranks share the GPU {m['sharing']}.",
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
        titles = " | ".join(title for _, title in PEERS)
        out += ["", f"| training step | ranks | {titles} |", "|---|---:|" + "---:|" * len(PEERS)]
    for model, ranks in trained:
        times = (median_of(rows, part="train", model=model, ranks=ranks, peer=p) for p, _ in PEERS)
        cells = " | ".join(f"{us / 1e3:.2f} ms" if us else "no figure" for us in times)
        out.append(f"| {model} | {ranks} | {cells} |")
    return "\n".join(out)


def write_report(paths, readme):
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    rows = [json.loads(line) for line in lines if line.endswith("}")]  # the last one may be cut off
    machines = [r for r in rows if r["part"] == "machine"]
    if not machines or any(m["is_fake"] for m in machines):
        sys.exit("bench.py: the figures of a run on the fakes mean nothing")
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"bench.py: {readme} has no place for the figures")
    readme.write_text(f"{before}{BEGIN}\n\n{report(rows)}\n\n{END}{after}")
    for row in rows:
        if row["part"] == "problem":
            print(f"problem: {row['of']}: {row['text']}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description="Measures the GPU backend.")
    parser.add_argument("--tree", default=harness.TREE)
    parser.add_argument("--out", default=os.environ.get("OUT") or ROOT / "build" / "logs" / "gpu")
    parser.add_argument("--mode", choices=("fake", "gpu"), default=os.environ.get("RM_GPU") or "gpu")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--limit", type=float, default=3600)
    parser.add_argument("--report", metavar="FILE", nargs="+")
    parser.add_argument("--readme", default=ROOT / "tests" / "bench" / "README.md", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    if options.report:
        write_report(options.report, options.readme)
        return 0
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {min(unknown)!r}; there are: {', '.join(PARTS)}")
    is_fake = options.mode == "fake"
    if not is_fake and harness.no_gpu():
        sys.exit(f"bench.py: {harness.no_gpu()}; --mode fake shows that the measuring works")
    bench = harness.Bench(options.tree, is_fake, options.out, name_of(options.parts, is_fake))
    harness.stop_on_signals(bench.stop)
    measure = Measure(bench, options.smoke, options.parts)
    with bench.limit(2 * 3600):
        measure.run(options.limit)
    return 1 if bench.stopped or any(r["part"] == "problem" for r in measure.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
