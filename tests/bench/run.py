#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every allreduce peer in turn, several rounds, and writes the table.

    tests/bench/run.py BIN PYTHONPATH [--peers VENV] [--rounds N] [--out DIR] [--check]

BIN holds the bench_* programs and horovodrun; PYTHONPATH the built packages; VENV Intel MPI and oneCCL
(without it those two are left out, and it says so). Peers
alternate within a round, so that a busy machine is busy for all of them; a figure is the median over
the rounds of the peers' medians. Writes DIR/results.json, the table in DIR/README.md between its two
markers, and DIR/allreduce.svg, a picture of it. --check fails when a goal (GOALS) is missed.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

RANKS = (2, 4)
TIMEOUT_S = 300
BEGIN, END = "<!-- results: written by run.py -->", "<!-- end of results -->"
# (peer, ranks, transport, bytes, at most microseconds, or (factor, peer) of that peer's time)
# "best" is the fastest of the peers that are not ours; a factor in front of a peer's time may be given.
GOALS = (
    ("backend", 2, "shm", 128 << 20, (1 / 2.5, "best")),
    ("backend", 2, "shm", 16 << 20, (1 / 1.3, "best")),
    ("backend", 2, "shm", 1 << 20, (1.0, "best")),
    ("backend", 2, "shm", 64 << 10, (1.0, "best")),
    ("backend", 2, "shm", 4096, (1.5, "best")),
    *(("backend", 4, "shm", size, (1.0, "best")) for size in (4096, 1 << 20, 128 << 20)),
    ("backend", 2, "veth", 4096, (1.0, "openmpi")),
    *(("backend", 2, "veth", mib << 20, (1 / 1.2, "best")) for mib in (1, 16, 128)),
    ("libhvd", 2, "shm", 4096, 20.0),
    ("hvd.torch", 2, "shm", 4096, 50.0),
)
TRANSPORTS = {
    "shm": "shared memory",
    "tcp": "TCP on loopback",
    "veth": "TCP between two network namespaces, rank i on CPU i",
}
OURS = ("backend", "libhvd", "hvd.torch")


def intel(bin_dir, venv):
    """How Intel MPI and oneCCL are started: (command of n ranks, extra environment)."""
    env = {
        "LD_LIBRARY_PATH": f"{bin_dir}/intel:{venv}/lib",
        "PATH": f"{venv}/bin:{os.environ['PATH']}",
        "I_MPI_ROOT": venv,
        "CCL_ROOT": venv,
        "I_MPI_FABRICS": "shm",
        "CCL_LOG_LEVEL": "error",
    }
    crowded = {**env, "I_MPI_PIN": "0"}  # more ranks than processors

    def start(program, *args):
        return lambda n: [f"{venv}/bin/mpiexec.hydra", "-np", str(n), f"{bin_dir}/{program}", *args]

    def surroundings(n):
        return crowded if n > (os.cpu_count() or 1) else env

    return {
        ("intelmpi", "shm"): (start("bench_mpich", "intelmpi"), surroundings),
        ("oneccl", "shm"): (start("bench_oneccl"), surroundings),
    }


def peers(bin_dir, python_path, venv):
    """(name, transport) -> (command of n ranks or None, extra environment, or a function of n)."""
    mpirun = ["mpirun.openmpi", "--oversubscribe"]
    if os.geteuid() == 0:
        mpirun.append("--allow-run-as-root")
    here = os.path.dirname(os.path.abspath(__file__))
    script = os.path.join(here, "allreduce_torch.py")
    tcp = {"HVD_TRANSPORT": "tcp"}
    py = {"PYTHONPATH": python_path}

    def hrun(n, *what):
        return [f"{bin_dir}/horovodrun", "-np", str(n), *what]

    def mpi(n, *options):
        return [*mpirun, *options, "-np", str(n), f"{bin_dir}/bench_mpi", "openmpi"]

    def mpich(n):
        return ["mpirun.mpich", "-np", str(n), f"{bin_dir}/bench_mpich", "mpich"]

    def netns(n, *what):
        return [f"{here}/netns.sh", *what] if n == 2 and os.geteuid() == 0 else None

    python = "/usr/bin/python3"
    if not venv:
        print("# Intel MPI and oneCCL are left out: no --peers", file=sys.stderr)
    return {
        ("openmpi", "shm"): (lambda n: mpi(n), {}),
        ("mpich", "shm"): (mpich, {}),
        **(intel(bin_dir, venv) if venv else {}),
        ("backend", "shm"): (lambda n: [f"{bin_dir}/bench_backend", str(n)], {}),
        ("libhvd", "shm"): (lambda n: hrun(n, f"{bin_dir}/bench_capi"), {}),
        ("hvd.torch", "shm"): (lambda n: hrun(n, python, script, "hvd"), py),
        ("openmpi", "tcp"): (lambda n: mpi(n, "--mca", "btl", "tcp,self"), {}),
        ("backend", "tcp"): (lambda n: [f"{bin_dir}/bench_backend", str(n)], tcp),
        ("libhvd", "tcp"): (lambda n: hrun(n, f"{bin_dir}/bench_capi"), tcp),
        ("hvd.torch", "tcp"): (lambda n: hrun(n, python, script, "hvd"), {**py, **tcp}),
        ("torch.gloo", "tcp"): (lambda n: hrun(n, python, script, "gloo"), {}),
        ("openmpi", "veth"): (lambda n: netns(n, "openmpi", bin_dir), {}),
        ("backend", "veth"): (lambda n: netns(n, "backend", bin_dir), {}),
        ("torch.gloo", "veth"): (lambda n: netns(n, "gloo"), {}),
    }


def run_one(command, extra):
    """Rows {bytes: (median, min, p90, b2b)} of one run; raises with the last lines on failure."""
    done = subprocess.run(
        command,
        env={**os.environ, **extra},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    rows = {}
    for m in re.finditer(r"AR,[^,]+,\d+,(\d+),\d+,([\d.]+),([\d.]+),([\d.]+),([\d.]+)", done.stdout):
        rows[int(m.group(1))] = tuple(float(m.group(i)) for i in range(2, 6))
    if done.returncode != 0 or not rows:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{tail}")
    return rows


def machine():
    model, cache = "", ""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        text = f.read()
    m = re.search(r"model name\s*: (.*)", text)
    model = m.group(1) if m else platform.machine()
    m = re.search(r"cache size\s*: (.*)", text)
    cache = m.group(1) if m else "?"
    with open("/proc/meminfo", encoding="ascii") as f:
        gib = int(re.search(r"MemTotal:\s+(\d+)", f.read()).group(1)) >> 20
    return f"{os.cpu_count()} CPUs ({model}, {cache} cache), {gib + 1} GiB, Linux {platform.release()}"


def collect(table, rounds):
    results, loads, started = {}, [], time.strftime("%Y-%m-%d")
    for k in range(rounds):
        for n in RANKS:
            for (peer, transport), (command, extra) in table.items():
                if command(n) is None:
                    continue
                loads.append(os.getloadavg()[0])
                print(f"# round {k + 1}/{rounds}: {peer} {transport} np={n}", file=sys.stderr)
                try:
                    rows = run_one(command(n), extra(n) if callable(extra) else extra)
                except (RuntimeError, subprocess.TimeoutExpired) as e:
                    print(f"# {e}", file=sys.stderr)
                    continue
                for size, row in rows.items():
                    results.setdefault((n, transport, peer, size), []).append(row)
    out = []
    for (n, transport, peer, size), rows in results.items():
        out.append(
            {
                "ranks": n,
                "transport": transport,
                "peer": peer,
                "bytes": size,
                "median_us": statistics.median(r[0] for r in rows),
                "min_us": min(r[1] for r in rows),
                "back_to_back_us": statistics.median(r[3] for r in rows),
                "rounds": len(rows),
            }
        )
    return {"date": started, "machine": machine(), "load": [min(loads), max(loads)], "rows": out}


def figure(us):
    return f"{us:.1f}" if us < 100 else f"{us:,.0f}"


def render(data):
    sizes = sorted({r["bytes"] for r in data["rows"]})
    names = [f"{s >> 20} MiB" if s >= 1 << 20 else f"{s >> 10} KiB" for s in sizes]
    low, high = data["load"]
    lines = [
        BEGIN,
        "",
        f"{data['date']}, {data['machine']}; load average {low:.1f} to {high:.1f} during the run. "
        "Microseconds, median (fastest).",
    ]
    for n in sorted({r["ranks"] for r in data["rows"]}):
        for transport, title in TRANSPORTS.items():
            rows = [r for r in data["rows"] if r["ranks"] == n and r["transport"] == transport]
            if not rows:
                continue
            lines += [
                "",
                f"**{n} ranks, {title}**",
                "",
                "| peer | " + " | ".join(names) + " |",
                "|---|" + "---:|" * len(names),
            ]
            for peer in dict.fromkeys(r["peer"] for r in rows):
                by_size = {r["bytes"]: r for r in rows if r["peer"] == peer}
                cells = [
                    f"{figure(by_size[s]['median_us'])} ({figure(by_size[s]['min_us'])})"
                    if s in by_size
                    else "-"
                    for s in sizes
                ]
                lines.append(f"| {peer} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", END])


def times(at, n, transport, size, factor, peer):
    """factor times what the peer took; "best": the fastest of those that are not ours."""
    others = [
        v
        for (p, *rest), v in at.items()
        if rest == [n, transport, size] and (p == peer or (peer == "best" and p not in OURS))
    ]
    return factor * min(others) if others else None


def draw(data, path):
    """Latency, and bandwidth of the larger sizes, by size; one line a peer, one column a number of ranks."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(r["peer"] for r in data["rows"]))
    colour = {name: f"C{i}" for i, name in enumerate(names)}
    places = sorted({(r["ranks"], r["transport"]) for r in data["rows"]})
    figure_, axes = pyplot.subplots(2, len(places), figsize=(4 * len(places), 7), squeeze=False)
    for column, (n, transport) in enumerate(places):
        rows = [r for r in data["rows"] if (r["ranks"], r["transport"]) == (n, transport)]
        for peer in dict.fromkeys(r["peer"] for r in rows):
            mine = sorted((r["bytes"], r["median_us"]) for r in rows if r["peer"] == peer)
            style = {
                "label": peer,
                "color": colour[peer],
                "marker": ".",
                "linewidth": 2 if peer in OURS else 1,
            }
            style["linestyle"] = "-" if peer in OURS else "--"
            axes[0][column].plot(*zip(*mine), **style)
            axes[1][column].plot(*zip(*((s, s / us / 1000) for s, us in mine)), **style)
        axes[0][column].set_title(f"{n} ranks, {transport}")
        for row in (0, 1):
            axes[row][column].set_xscale("log", base=2)
            axes[row][column].set_yscale("log")
            axes[row][column].grid(True, alpha=0.3)
        axes[1][column].set_xlabel("bytes")
    axes[0][0].set_ylabel("median, us")
    axes[1][0].set_ylabel("bytes / median, GB/s")
    shown = {}
    for axis in axes[0]:
        shown.update({name: line for line, name in zip(*axis.get_legend_handles_labels())})
    figure_.tight_layout(rect=(0, 0, 1, 0.95))
    figure_.legend([shown[n] for n in names], names, loc="upper center", ncol=len(names))
    figure_.savefig(path, metadata={"Date": None})


def missed(data):
    at = {(r["peer"], r["ranks"], r["transport"], r["bytes"]): r["median_us"] for r in data["rows"]}
    for peer, n, transport, size, goal in GOALS:
        got = at.get((peer, n, transport, size))
        want = goal if isinstance(goal, float) else times(at, n, transport, size, *goal)
        if got is None or want is None:
            yield f"{peer} np={n} {transport} {size} bytes: not measured"
        elif got > want:
            yield f"{peer} np={n} {transport} {size} bytes: {got:.1f} us, goal {want:.1f} us"


def main():
    parser = argparse.ArgumentParser(description="allreduce against its peers")
    parser.add_argument("bin")
    parser.add_argument("pythonpath")
    parser.add_argument("--peers", help="virtual environment with Intel MPI and oneCCL")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="peers to run, comma-separated")
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    args = parser.parse_args()
    table = peers(os.path.abspath(args.bin), os.path.abspath(args.pythonpath), args.peers)
    if args.only:
        table = {k: v for k, v in table.items() if k[0] in args.only.split(",")}
    data = collect(table, args.rounds)
    text = render(data)
    print(text)
    with open(os.path.join(args.out, "results.json"), "w", encoding="utf-8") as f:
        json.dump(data, f, indent=1)
        f.write("\n")
    draw(data, os.path.join(args.out, "allreduce.svg"))
    readme = os.path.join(args.out, "README.md")
    with open(readme, encoding="utf-8") as f:
        old = f.read()
    with open(readme, "w", encoding="utf-8") as f:
        f.write(old[: old.index(BEGIN)] + text + old[old.index(END) + len(END) :])
    misses = list(missed(data))
    for m in misses:
        print(f"# goal missed: {m}", file=sys.stderr)
    return 1 if args.check and misses else 0


if __name__ == "__main__":
    sys.exit(main())
