#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every peer in turn for several rounds and writes the tables.

    tests/bench/run.py BIN PYTHONPATH [--peers VENV] [--horovod VENV] [--torch VENV] [--only PARTS]
                       [--tensorflow VENV] [--horovod-tf VENV]
                       [--names PEERS] [--rounds N] [--out DIR] [--check]

BIN holds the bench_* programs and horovodrun; PYTHONPATH the built packages; --peers Intel MPI and oneCCL,
--horovod the original Horovod, --torch the newest PyTorch, --tensorflow the newest TensorFlow,
--horovod-tf the original with TensorFlow 2.12. A peer that is missing is left out, with the reason. Parts:

    allreduce   every peer, every size
    queue       4 KiB through the queue
    submit      cost of a submission to the submitting thread
    tf          an allreduce in a tf.function
    step        the gradients of ResNet-50
    train       a CNN by DistributedOptimizer and by DDP
    train-tf    the same CNN by DistributedGradientTape
    memory      allreduce against plain copies
    start       from a launcher's exec until all ranks are past init (three times the rounds)

Peers alternate within a round, so that load on the machine affects all of them; a figure is the median over
the rounds of the peers' medians. Writes results.json and results.md to DIR (default build/bench);
parts that were not run keep their earlier figures. --check fails when a goal (report.GOALS) is missed.
"""

import argparse
import dataclasses
import functools
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time

import report
from resnet50 import gradients

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "bench")
TIMEOUT_S = 300
PYTHON = "/usr/bin/python3"  # Debian's, whose PyTorch is the original Horovod's too
PYTHON_START = f"{HERE}/start_torch.py"


N = "{n}"  # in a command: the number of ranks
TRAININGS = {"1,199,882": 128, "18,915,722": 2048}  # parameters: width of the hidden layer
START_TURNS, START_RANKS = 3, (2, 8, 64)  # starts a round


@dataclasses.dataclass
class Peer:
    """A row of a table: how it is started and what it requires."""

    name: str
    transport: str
    command: list
    env: dict = dataclasses.field(default_factory=dict)
    crowded: dict = dataclasses.field(default_factory=dict)  # more environment where ranks outnumber CPUs
    ranks: tuple = (2, 4)
    needs: tuple = ()  # (message when it is missing, is it present)

    def missing(self):
        """Why it cannot run, or None."""
        return next(
            (f"{self.name}, {self.transport}: {why}" for why, there in self.needs if not there), None
        )

    def start(self, n, extra):
        """Rows {bytes: (median, min, p90, mean)} of one run; raises with the last lines on failure."""
        command = [word if word != N else str(n) for word in self.command]
        crowded = self.crowded if n > (os.cpu_count() or 1) else {}
        done = subprocess.run(
            command,
            env={**os.environ, **self.env, **crowded, **extra},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        rows = {}
        for m in re.finditer(r"AR,[^,]+,\d+,(\d+),\d+" + r",(-?[\d.]+)" * 4, done.stdout):
            rows[int(m.group(1))] = tuple(float(m.group(i)) for i in range(2, 6))
        if done.returncode != 0 or not rows:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
            raise RuntimeError(f"{' '.join(command)[:300]}: exit status {done.returncode}\n{tail}")
        return rows


@functools.lru_cache(maxsize=None)
def has_torch():
    done = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False)
    return f"{PYTHON} has no torch", done.returncode == 0


def over(transport):
    return {} if transport == "shm" else {"HVD_TRANSPORT": transport}


def training(name, kind, run, env, needs, framework="torch"):
    """A peer for each number of parameters."""
    env = {"OMP_NUM_THREADS": "1", **env}
    for parameters, hidden in TRAININGS.items():
        command = [*run, f"{HERE}/train_{framework}.py", kind, name, str(hidden)]
        yield Peer(name, parameters, command, env, ranks=(2,), needs=needs)


class Programs:
    """All programs that are measured."""

    def __init__(self, bin_dir, python_path, venvs):
        self.bin, self.intel, self.horovod, self.newest = bin_dir, venvs.peers, venvs.horovod, venvs.torch
        self.tensorflows = {"2.12": venvs.horovod_tf, "newest": venvs.tensorflow}
        self.py = {"PYTHONPATH": python_path}
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        self.mpirun = ["mpirun.openmpi", "--oversubscribe", *root]
        self.hrun = [f"{self.bin}/horovodrun", "-np", N]
        self.mpich_run = ["mpiexec.mpich", "-np", N]
        # --bind-to none as Horovod's manual says, or all threads of a rank share one CPU
        self.unbound = [*self.mpirun, "--bind-to", "none", "-np", N]
        self.original_python = f"{self.horovod}/bin/python"
        self.has_original = "no --horovod VENV", os.access(self.original_python, os.X_OK)

    def built(self, *names):
        return tuple((f"{n} is not built", os.access(f"{self.bin}/{n}", os.X_OK)) for n in names)

    # --- ours ---
    def backend(self, transport="shm", check=None):
        """check: crc or mac, for HVD_DATA_CRC=1 or HVD_DATA_MAC=1."""
        name, env = ("backend", {}) if check is None else (f"{check}/backend", {"BENCH_CHECK": check})
        env = {**over(transport), **env}
        return Peer(
            name, transport, [f"{self.bin}/bench_backend", N], env, needs=self.built("bench_backend")
        )

    def libhvd(self, transport="shm", program=("bench_capi", "libhvd")):
        needs = self.built("horovodrun", program[0])
        command = [*self.hrun, f"{self.bin}/{program[0]}", *program[1:]]
        return Peer("libhvd", transport, command, over(transport), needs=needs)

    def torch(self, transport="shm", script=("allreduce_torch.py", "hvd", "hvd.torch"), name="hvd.torch"):
        needs = (*self.built("horovodrun"), has_torch())
        command = [*self.hrun, PYTHON, f"{HERE}/{script[0]}", *script[1:]]
        return Peer(name, transport, command, {**self.py, **over(transport)}, needs=needs)

    def graph(self):
        python = f"{self.tensorflows['newest']}/bin/python"
        needs = (*self.built("horovodrun"), ("no --tensorflow VENV", os.access(python, os.X_OK)))
        command = [*self.hrun, python, f"{HERE}/graph_tf.py", "hvd.tensorflow"]
        return Peer("hvd.tensorflow", "shm", command, self.py, ranks=(1, 2), needs=needs)

    # --- peers ---
    def openmpi(self, transport="shm"):
        options = [] if transport == "shm" else ["--mca", "btl", "tcp,self"]
        command = [*self.mpirun, *options, "-np", N, f"{self.bin}/bench_mpi", "openmpi"]
        return Peer("openmpi", transport, command, needs=self.built("bench_mpi"))

    def mpich(self):
        command = [*self.mpich_run, f"{self.bin}/bench_mpich", "mpich"]
        return Peer("mpich", "shm", command, needs=self.built("bench_mpich"))

    def intel_run(self):
        """(command, environment, whether it is there) of Intel MPI's mpiexec."""
        venv = self.intel
        env = {
            "LD_LIBRARY_PATH": f"{self.bin}/intel:{venv}/lib",
            "PATH": f"{venv}/bin:{os.environ['PATH']}",
            "I_MPI_ROOT": str(venv),
            "CCL_ROOT": str(venv),
            "I_MPI_FABRICS": "shm",
            "CCL_LOG_LEVEL": "error",
        }
        there = "no --peers VENV", os.access(f"{venv}/bin/mpiexec.hydra", os.X_OK)
        return [f"{venv}/bin/mpiexec.hydra", "-np", N], env, there

    def intel_peers(self):
        """Intel MPI runs MPICH's program, whose binary interface it has."""
        run, env, there = self.intel_run()
        for name, program in (("intelmpi", "bench_mpich"), ("oneccl", "bench_oneccl")):
            command = [*run, f"{self.bin}/{program}", name]
            needs = (there, *self.built(program))
            yield Peer(name, "shm", command, env, {"I_MPI_PIN": "0"}, needs=needs)

    def original(self, script=("allreduce_torch.py", "hvd")):
        """Horovod on Open MPI, on 2 ranks only: 4 ranks on 2 CPUs spin for 40 ms per allreduce."""
        for name, env in (("horovod", {}), ("horovod-0.1ms", {"HOROVOD_CYCLE_TIME": "0.1"})):
            command = [*self.unbound, self.original_python, f"{HERE}/{script[0]}", *script[1:], name]
            yield Peer(name, "shm", command, env, ranks=(2,), needs=(self.has_original,))

    def between_namespaces(self):
        root = "needs root, for network namespaces", os.geteuid() == 0
        netns = f"{HERE}/netns.sh"
        for name, program in (("openmpi", "bench_mpi"), ("backend", "bench_backend")):
            needs = (root, *self.built(program))
            yield Peer(name, "veth", [netns, name, self.bin], ranks=(2,), needs=needs)
        yield Peer("torch.gloo", "veth", [netns, "gloo"], ranks=(2,), needs=(root, has_torch()))

    def gloo(self):
        command = [*self.hrun, PYTHON, f"{HERE}/allreduce_torch.py", "gloo", "torch.gloo"]
        return Peer("torch.gloo", "tcp", command, needs=(*self.built("horovodrun"), has_torch()))

    def copy(self):
        command = [f"{self.bin}/bench_memory", N]
        return Peer("copy", "shm", command, ranks=(2,), needs=self.built("bench_memory"))

    # --- start-up: launcher/program; the transport is the language ---
    def starts(self, launcher, run, programs, env=None, crowded=None, needs=()):
        """Each program (name, words, environment, needs) under one launcher."""
        for name, words, more, wants in programs:
            is_python = PYTHON_START in words
            yield Peer(
                f"{launcher}/{name}",
                "Python" if is_python else "C",
                [f"{HERE}/start.py", f"{launcher}/{name}", N, *run, *words],
                {**(env or {}), **more},
                crowded or {},
                (2,) if is_python else START_RANKS,
                (*needs, *wants),
            )

    def c_starts(self):
        def program(name, binary):
            return name, [f"{self.bin}/{binary}"], {}, self.built(binary)

        ours = program("libhvd", "bench_start")
        mpich = program("MPI_Init", "bench_hello_mpich")
        openmpi = program("MPI_Init", "bench_hello_mpi")
        run, env, there = self.intel_run()
        linked = "its libraries are not linked (bench_oneccl)", os.path.exists(f"{self.bin}/intel")
        yield from self.starts("horovodrun", self.hrun, [ours], needs=self.built("horovodrun"))
        yield from self.starts("openmpi", [*self.mpirun, "-np", N], [ours, openmpi])
        yield from self.starts("mpich", self.mpich_run, [ours, mpich])
        yield from self.starts("intelmpi", run, [ours, mpich], env, {"I_MPI_PIN": "0"}, (there, linked))

    def python_starts(self):
        ours = "hvd.torch", [PYTHON, PYTHON_START, "hvd"], self.py, (has_torch(),)
        horovod = "horovod", [self.original_python, PYTHON_START, "hvd"], {}, (self.has_original,)
        yield from self.starts("horovodrun", self.hrun, [ours], needs=self.built("horovodrun"))
        yield from self.starts("openmpi", self.unbound, [ours, horovod])
        path = {"PATH": f"{self.horovod}/bin:{os.environ['PATH']}"}
        yield from self.starts("horovod's", [f"{self.horovod}/bin/horovodrun", "-np", N], [horovod], path)
        # torchrun brings its own Python. Debian's torch 1.13 on Python 3.11 fails without the first two
        # options; without the last it checks only every 5 s whether its ranks have exited.
        options = ["--redirects", "1", "--tee", "1", "--monitor_interval", "0.1"]
        torchrun = [PYTHON, "-m", "torch.distributed.run", *options, "--nproc_per_node", N]
        ours = (ours[0], [PYTHON_START, "hvd"], *ours[2:])
        gloo = "torch.gloo", [PYTHON_START, "gloo"], {}, (has_torch(),)
        yield from self.starts("torchrun", torchrun, [ours, gloo])

    # --- training: version/peer; the transport is the number of parameters ---
    def trainings(self):
        """One thread per rank; all but the original are started by our launcher."""
        newest = f"{self.newest}/bin/python"
        there = "no --torch VENV", os.access(newest, os.X_OK)
        huge = {"THP_MEM_ALLOC_ENABLE": "1"}  # as importing horovod.torch has it
        for label, python, has in (("1.13", PYTHON, has_torch()), ("newest", newest, there)):
            run, needs = [*self.hrun, python], (*self.built("horovodrun"), has)
            yield from training(f"{label}/hvd.torch", "hvd", run, self.py, needs)
            yield from training(f"{label}/torch.ddp", "ddp", run, {}, needs)
            yield from training(f"{label}/ddp.hvd", "ddp-hvd", run, self.py, needs)
            yield from training(f"{label}/apart", "apart", run, {}, needs)
            if label == "newest":
                yield from training(f"{label}/torch.ddp-huge", "ddp", run, huge, needs)
                yield from training(f"{label}/apart-huge", "apart", run, huge, needs)
        run = [*self.unbound, self.original_python]
        yield from training("1.13/horovod", "hvd", run, {}, (self.has_original,))

    def tensorflow_trainings(self):
        """The same in TensorFlow: the original on 2.12, which it is compiled for, ours on the newest."""
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        for label, venv in self.tensorflows.items():
            python = f"{venv}/bin/python"
            there = f"no environment with TensorFlow {label}", os.access(python, os.X_OK)
            ours, original = ("hvd.tensorflow", self.hrun, self.py), ("horovod", self.unbound, {})
            peers = {"hvd": original if label == "2.12" else ours, "apart": ("apart", self.hrun, {})}
            for kind, (name, run, env) in peers.items():
                needs, env = (*self.built("horovodrun"), there), {**quiet, **env}
                yield from training(f"{label}/{name}", kind, [*run, python], env, needs, "tensorflow")

    def parts(self):
        """{part: (its peers, numbers of ranks, environment of all)}"""
        counts = [str(math.prod(shape)) for shape in gradients()]
        every = [self.openmpi(), self.mpich(), *self.intel_peers(), *self.original()]
        every += [self.backend(), self.libhvd(), self.torch(), self.openmpi("tcp"), self.backend("tcp")]
        every += [self.backend("tcp", check) for check in ("crc", "mac")]
        every += [self.libhvd("tcp"), self.torch("tcp"), self.gloo(), *self.between_namespaces()]
        queue = [*self.original(), self.libhvd(), self.torch()]
        submit = [self.torch(script=("submit_torch.py", n), name=n) for n in ("extension", "hvd.torch")]
        submit += self.original(("submit_torch.py",))
        step = [
            *self.original(("step_torch.py",)),
            self.libhvd(program=("bench_step", "libhvd", "0", "60", *counts)),
        ]
        step += [self.torch(script=("step_torch.py", "hvd.torch"))]
        return {
            "allreduce": (every, (2, 4), {}),
            "queue": (queue, (2,), {"BENCH_MAX_BYTES": "4096"}),
            "submit": (submit, (2,), {}),
            "tf": ([self.graph()], (1, 2), {}),
            "step": (step, (2,), {}),
            "train": ([*self.trainings()], (2,), {}),
            "train-tf": ([*self.tensorflow_trainings()], (2,), {}),
            "memory": ([self.copy(), self.backend()], (2,), {}),
            "start": ([*self.c_starts(), *self.python_starts()], START_RANKS, {}),
        }


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        text = f.read()
    m = re.search(r"model name\s*: (.*)", text)
    model = m.group(1) if m else platform.machine()
    m = re.search(r"cache size\s*: (.*)", text)
    cache = m.group(1) if m else "?"
    with open("/proc/meminfo", encoding="ascii") as f:
        gib = int(re.search(r"MemTotal:\s+(\d+)", f.read()).group(1)) >> 20
    return f"{os.cpu_count()} CPUs ({model}, {cache} cache), {gib + 1} GiB, Linux {platform.release()}"


def collect(part, peers, ranks, extra, rounds):
    """The entry of a part in results.json. A peer that fails is reported and left out of that round."""
    results, loads, started = {}, [], time.strftime("%Y-%m-%d")
    missing = [why for why in (peer.missing() for peer in peers) if why]
    for why in missing:
        print(f"# {part}: left out: {why}", file=sys.stderr)
    for k in range(rounds):
        for n in ranks:
            for peer in peers:
                if n not in peer.ranks or peer.missing():
                    continue
                loads.append(os.getloadavg()[0])
                where = f"{peer.name} {peer.transport} np={n}"
                print(f"# {part}, round {k + 1}/{rounds}: {where}", file=sys.stderr)
                try:
                    rows = peer.start(n, extra)
                except (RuntimeError, OSError, subprocess.TimeoutExpired) as e:
                    print(f"# {e}", file=sys.stderr)
                    missing += [f"{where}: failed"] if f"{where}: failed" not in missing else []
                    continue
                for size, row in rows.items():
                    results.setdefault((n, peer.transport, peer.name, size), []).append(row)
    out = []
    for (n, transport, name, size), rows in results.items():
        out.append(
            {
                "ranks": n,
                "transport": transport,
                "peer": name,
                "bytes": size,
                "median_us": statistics.median(r[0] for r in rows),
                "min_us": min(r[1] for r in rows),
                "mean_us": statistics.median(r[3] for r in rows),
                "rounds": len(rows),
            }
        )
    load = [min(loads, default=0.0), max(loads, default=0.0)]
    return {"date": started, "machine": machine(), "load": load, "missing": missing, "rows": out}


def write(out, data):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "results.json"), "w", encoding="utf-8") as f:
        json.dump(data, f, indent=1)
        f.write("\n")
    with open(os.path.join(out, "results.md"), "w", encoding="utf-8") as f:
        f.write(report.render(data) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Ringmaster against its peers", allow_abbrev=False)
    parser.add_argument("bin")
    parser.add_argument("pythonpath")
    parser.add_argument("--peers", metavar="VENV", help="has Intel MPI and oneCCL")
    parser.add_argument("--horovod", metavar="VENV", help="has the original Horovod")
    parser.add_argument("--torch", metavar="VENV", help="has the newest PyTorch")
    parser.add_argument("--tensorflow", metavar="VENV", help="has the newest TensorFlow")
    parser.add_argument("--horovod-tf", metavar="VENV", help="has the original Horovod with TensorFlow")
    parser.add_argument(
        "--only", default=",".join(report.PARTS), help="parts, comma-separated (default: %(default)s)"
    )
    parser.add_argument(
        "--names", help="peers to run, comma-separated (default: all); drops the figures of other peers"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", metavar="DIR", default=OUT, help="where results go (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    args = parser.parse_args()
    only = args.only.split(",")
    unknown = [part for part in only if part not in report.PARTS]
    if unknown or args.rounds < 1:
        parser.error(
            f"--only {unknown[0]}: not one of {', '.join(report.PARTS)}"
            if unknown
            else "--rounds: at least 1"
        )
    programs = Programs(os.path.abspath(args.bin), os.path.abspath(args.pythonpath), args)
    table = programs.parts()
    try:
        with open(os.path.join(args.out, "results.json"), encoding="utf-8") as f:
            data = json.load(f)
    except FileNotFoundError:
        data = {}
    for part in only:
        peers, ranks, extra = table[part]
        if args.names:
            peers = [p for p in peers if p.name in args.names.split(",")]
        rounds = args.rounds * (START_TURNS if part == "start" else 1)
        measured = collect(part, peers, ranks, extra, rounds)
        if measured["rows"]:
            data[part] = measured
        else:
            print(f"# {part}: nothing could be measured; earlier figures stay", file=sys.stderr)
            only = [other for other in only if other != part]
    if not only:
        return 1
    data = {part: data[part] for part in report.PARTS if part in data}
    write(args.out, data)
    print(report.render({part: data[part] for part in only}))
    misses = list(report.missed(data, only))
    for m in misses:
        print(f"# goal missed: {m}", file=sys.stderr)
    return 1 if args.check and misses else 0


if __name__ == "__main__":
    sys.exit(main())
