# SPDX-License-Identifier: Apache-2.0
"""Turns the figures of run.py into tables (results.md) and the list of missed goals.

`data` is results.json: {part: {"date", "machine", "load", "rows"}}; a row has ranks, transport, peer, bytes,
median_us, min_us, mean_us and rounds.
"""

OURS = ("backend", "libhvd", "hvd.torch", "hvd.tensorflow")  # "launcher/libhvd" too
TRANSPORTS = {
    "shm": "shared memory",
    "tcp": "TCP on loopback",
    "veth": "TCP between two network namespaces, rank i on CPU i",
}
MIB = 1 << 20
STEP = 25557032 * 4  # ResNet-50's gradients
# (part, peer, ranks, transport, bytes, at most microseconds, or (factor, peer) of that peer's time);
# "best" is the fastest foreign peer.
GOALS = (
    ("allreduce", "backend", 2, "shm", 128 * MIB, (1 / 2.5, "best")),
    ("allreduce", "backend", 2, "shm", 16 * MIB, (1 / 1.3, "best")),
    ("allreduce", "backend", 2, "shm", 1 * MIB, (1.0, "best")),
    ("allreduce", "backend", 2, "shm", 64 << 10, (1.0, "best")),
    ("allreduce", "backend", 2, "shm", 4096, (1.5, "best")),
    *(("allreduce", "backend", 4, "shm", size, (1.0, "best")) for size in (4096, MIB, 128 * MIB)),
    ("allreduce", "backend", 2, "veth", 4096, (1.0, "openmpi")),
    *(("allreduce", "backend", 2, "veth", n * MIB, (1 / 1.2, "best")) for n in (1, 16, 128)),
    ("queue", "libhvd", 2, "shm", 4096, 20.0),
    ("queue", "hvd.torch", 2, "shm", 4096, 50.0),
    ("submit", "extension", 2, "shm", 4, 1.0),
    ("tf", "hvd.tensorflow", 1, "shm", 4, 10.0),
    *(("step", peer, 2, "shm", STEP, (1 / 3, "best")) for peer in OURS[1:3]),
    # same torch on both sides
    *(
        ("train", f"{torch}/hvd.torch", 2, size, 128, (factor, f"{torch}/torch.ddp"))
        for torch in ("1.13", "newest")
        for size, factor in (("18,915,722", 1 / 1.25), ("1,199,882", 1.0))
    ),
    *(
        ("train", f"{torch}/ddp.hvd", 2, size, 128, (1.0, f"{torch}/torch.ddp"))
        for torch in ("1.13", "newest")
        for size in ("18,915,722", "1,199,882")
    ),
    # an allreduce moves 16 bytes per element, copy moves 8: see DECISIONS.md
    *(("memory", "backend", 2, "shm", n * MIB, (1.5 * 2, "copy")) for n in (16, 128)),
    *(("start", "horovodrun/libhvd", n, "C", 0, (1.0, "best")) for n in (2, 8, 64)),
    ("start", "horovodrun/libhvd", 64, "C", 0, 3e6),
    *(
        ("start", f"{mpi}/libhvd", n, "C", 0, (1.0, f"{mpi}/MPI_Init"))
        for mpi in ("openmpi", "mpich", "intelmpi")
        for n in (2, 8, 64)
    ),
    ("start", "horovodrun/hvd.torch", 2, "Python", 0, (1.0, "best")),
    ("start", "openmpi/hvd.torch", 2, "Python", 0, (1.0, "openmpi/horovod")),
    ("start", "torchrun/hvd.torch", 2, "Python", 0, (1.0, "torchrun/torch.gloo")),
)


def is_ours(peer):
    return peer.rpartition("/")[2] in OURS


def figure(us):
    return f"{us:.1f}" if us < 100 else f"{us:,.0f}"


def size_name(size):
    return f"{size >> 20} MiB" if size >= MIB else f"{size >> 10} KiB"


def grid(head, lines):
    yield "| " + " | ".join(head) + " |"
    yield "|---|" + "---:|" * (len(head) - 1)
    for line in lines:
        yield "| " + " | ".join(line) + " |"


def by_peer(rows):
    """{peer: {bytes: row}}, in the order in which they were run."""
    table = {}
    for r in rows:
        table.setdefault(r["peer"], {})[r["bytes"]] = r
    return table


def cells(of_size, sizes):
    for s in sizes:
        r = of_size.get(s)
        yield f"{figure(r['median_us'])} ({figure(r['min_us'])})" if r else "-"


def allreduce_tables(rows):
    sizes = sorted({r["bytes"] for r in rows})
    for n in sorted({r["ranks"] for r in rows}):
        for transport, title in TRANSPORTS.items():
            here = [r for r in rows if (r["ranks"], r["transport"]) == (n, transport)]
            if here:
                yield from ("", f"**{n} ranks, {title}**", "")
                lines = [[peer, *cells(at, sizes)] for peer, at in by_peer(here).items()]
                yield from grid(["peer", *map(size_name, sizes)], lines)


def queue_table(rows):
    head = ["peer", "median, us", "fastest, us", "in a row, us each"]
    yield ""
    yield from grid(
        head, [[r["peer"], *map(figure, (r["median_us"], r["min_us"], r["mean_us"]))] for r in rows]
    )


def clock_table(rows):
    """Processor time, and the time on the clock as the mean."""
    yield ""
    keys = "median_us", "min_us", "mean_us"
    lines = [[r["peer"], str(r["ranks"]), *(f"{r[key]:.2f}" for key in keys)] for r in rows]
    yield from grid(["peer", "ranks", "median, us", "fastest, us", "on the clock, us"], lines)


def step_table(rows):
    theirs = min((r["median_us"] for r in rows if not is_ours(r["peer"])), default=None)
    lines = []
    for r in rows:
        us = r["median_us"]
        times = f"{theirs / us:.1f}" if theirs else "-"
        lines.append([r["peer"], f"{us / 1e3:.1f}", f"{r['min_us'] / 1e3:.1f}", f"{1e6 / us:.1f}", times])
    yield ""
    yield from grid(
        ["peer", "median, ms", "fastest, ms", "steps a second", "times the faster Horovod"], lines
    )


def train_tables(rows, framework, reference, share):
    """bytes is the batch of all ranks; share is of the reference on the same version of the framework."""
    for size in dict.fromkeys(r["transport"] for r in rows):
        here = [r for r in rows if r["transport"] == size]
        references = {r["peer"].partition("/")[0]: r for r in here if r["peer"].endswith(f"/{reference}")}
        lines = []
        for r in here:
            version, _, name = r["peer"].partition("/")
            theirs = references.get(version)
            shares = [f"{theirs[key] / r[key]:.2f}" if theirs else "-" for key in ("median_us", "min_us")]
            us = r["median_us"], r["min_us"]
            rate = f"{r['bytes'] / us[0] * 1e6:,.0f}"
            lines.append([version, name, *(f"{x / 1e3:.1f}" for x in us), rate, *shares])
        yield f"\n**{size} parameters**\n"
        head = [framework, "peer", "median, ms", "fastest, ms", "images/s"]
        yield from grid([*head, share, "of the fastest steps"], lines)


def train_torch_tables(rows):
    return train_tables(rows, "torch", "torch.ddp", "times DDP")


def train_tf_tables(rows):
    """The reference is ranks that exchange nothing."""
    return train_tables(rows, "TensorFlow", "apart", "of apart")


def memory_table(rows):
    table = by_peer(rows)
    sizes = sorted({r["bytes"] for r in rows if r["bytes"] >= MIB})
    lines = [[peer, *cells(at, sizes)] for peer, at in table.items()]
    ours, copy = table.get("backend", {}), table.get("copy", {})
    for title, per_copy in (("backend / copy", 1), ("backend / model (two copies)", 2)):
        ratios = [
            f"{ours[s]['median_us'] / copy[s]['median_us'] / per_copy:.2f}"
            if s in ours and s in copy
            else "-"
            for s in sizes
        ]
        lines.append([f"**{title}**", *ratios])
    yield ""
    yield from grid(["", *map(size_name, sizes)], lines)


def start_tables(rows):
    for language in ("C", "Python"):
        here = [r for r in rows if r["transport"] == language]
        counts = sorted({r["ranks"] for r in here})
        table = {}
        for r in here:
            table.setdefault(r["peer"], {})[r["ranks"]] = [
                f"{r['median_us'] / 1e3:,.0f} ({r['min_us'] / 1e3:,.0f})",
                f"{r['mean_us'] / 1e3:,.0f}",
            ]
        head = ["launcher", f"{language} program"]
        for n in counts:
            head += [f"{n} ranks", "exited"]
        lines = [
            [*peer.split("/"), *(cell for n in counts for cell in at.get(n, ("-", "-")))]
            for peer, at in table.items()
        ]
        if lines:
            yield ""
            yield from grid(head, lines)


PARTS = {
    "allreduce": ("Allreduce by size", "Microseconds, median (fastest).", allreduce_tables),
    "queue": ("Through the queue: 4 KiB, 2 ranks, shared memory", "", queue_table),
    "submit": ("One submission of a 4-byte allreduce from Python, 2 ranks", "", clock_table),
    "tf": ("One 4-byte allreduce of 200 in a tf.function", "", clock_table),
    "step": ("A step of ResNet-50's 161 gradients, 2 ranks, shared memory", "", step_table),
    "train": ("Training a CNN, batch 64 a rank, 2 ranks of 1 thread", "", train_torch_tables),
    "train-tf": ("The same in TensorFlow, by the tape", "", train_tf_tables),
    "memory": (
        "Against what memory allows: 2 ranks, shared memory",
        "Microseconds, median (fastest).",
        memory_table,
    ),
    "start": (
        "From exec to all ranks past init",
        "Milliseconds, median (fastest); exited: until the launcher had.",
        start_tables,
    ),
}


def render(data):
    lines = []
    for part, (title, unit, table) in PARTS.items():
        if part not in data:
            continue
        run = data[part]
        low, high = run["load"]
        lines += ["", f"### {title}", ""]
        lines += [
            f"`run.py --only {part}`, {run['date']}, {run['machine']}; "
            f"load average {low:.1f} to {high:.1f}. {unit}".rstrip()
        ]
        lines += table(run["rows"])
        if run.get("missing"):
            lines += ["", f"Left out: {'; '.join(run['missing'])}."]
    return "\n".join(lines[1:])


def goal_us(at, where, goal):
    """Microseconds that a goal allows, None when its peer was not measured."""
    if isinstance(goal, float):
        return goal
    factor, peer = goal
    others = [
        v
        for (p, *rest), v in at.items()
        if rest == where and (p == peer or (peer == "best" and not is_ours(p)))
    ]
    return factor * min(others) if others else None


def missed(data, parts):
    for part, peer, n, transport, size, goal in GOALS:
        if part not in parts:
            continue
        rows = data.get(part, {}).get("rows", ())
        at = {(r["peer"], r["ranks"], r["transport"], r["bytes"]): r["median_us"] for r in rows}
        got, want = at.get((peer, n, transport, size)), goal_us(at, [n, transport, size], goal)
        name = f"{part}: {peer} np={n} {transport} {size} bytes"
        if got is None or want is None:
            yield f"{name}: not measured"
        elif got > want:
            yield f"{name}: {got:.1f} us, goal {want:.1f} us"
