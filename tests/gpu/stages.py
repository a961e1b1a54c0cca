# SPDX-License-Identifier: Apache-2.0
"""The stages of run.py: name -> (seconds on a GPU, seconds on the fakes or 0: not there, function).

They run in this order, the most informative ones first. ON_REQUEST has those that run only when named, NEEDS
the Python packages without which there is nothing to run, LEAST the seconds that former stages leave to each
when the time for all of them is short.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import bench as benchmark
import faults
import resources
import sabotage
from harness import HERE, Skipped, interpreter

# What is not so on a GPU, and why; run.py's stage nccl looks at it.
NOT_HERE = {
    "minimum_and_maximum_keep_nan": "NCCL's minimum of a NaN and a number is the number",
}


def inventory(bench):
    """What the machine has."""
    ended = bench.command([interpreter(), HERE / "inventory.py", bench.tree])
    bench.facts = ended.out.splitlines()
    for line in bench.facts:
        bench.say(f"# {line}")
    bench.point("the machine is described", ended.error())


def kernels(bench):
    """hvd-gpu sees the device; the kernels' tables bit for bit, as machine code and as PTX."""
    ended = bench.command([bench.tree / "bin" / "hvd-gpu", "info", bench.tree / "lib"])
    error = ended.error()
    if not error and ("\ngpu 0 " not in ended.out or "\nproblem " in ended.out):
        error = ended.out
    bench.point("hvd-gpu sees the GPU and NCCL", error)
    rows = list(resources.usage((bench.tree / "lib" / "libhvd_cuda.so").read_bytes()))
    bad = [why for why in (resources.too_much(*row) for row in rows) if why]
    bad += [] if rows else ["no kernel was found"]
    bench.point(f"{len(rows)} kernels take what they may of a GPU", "\n".join(bad) or None)
    programs = sorted((bench.tree / "gpu").glob("gpu_*kernels"))
    for ptx in "01":
        for program in programs:
            # all of it copies gigabytes, at which the fake is slow
            some = "long_indexes" if bench.is_fake and "topk" in program.name else ""
            ended = bench.command([program], HVD_GPU_PTX=ptx, RM_EXACT=50, UNIT_FILTER=f"*{some}*")
            kind = "ptx" if ptx == "1" else "sm"
            bench.taps(f"{program.name}, {kind}", ended)
            if f"# kernels of {kind}_" not in ended.out:
                bench.point(f"{program.name} ran {kind}", ended.out[-500:] or "it says nothing")


def checks_of(bench, label, n, argv, timeout, **extra):
    """Scripts of checks.py on n ranks: a point each check, good where all ranks say so."""
    reports = Path(bench.tmp.name) / label.replace(" ", "_")
    reports.mkdir()
    ended = bench.ranks(n, [interpreter(), *argv], timeout, CHECKS_DIR=reports, CHECKS_HOSTS=n, **extra)
    said = []
    for rank in range(n):
        path = reports / f"{rank}.json"
        said.append(json.loads(path.read_text()) if path.exists() else {})
    is_late = any(e.code is None for e in ended)
    for name in sorted({name for s in said for name in s}, key=str):
        bad = [f"rank {i}: {s.get(name, 'not reached')}" for i, s in enumerate(said) if s.get(name, "not")]
        is_cut = is_late and not any(s.get(name) for s in said)  # killed in the middle of it, or before
        if name.split(": ")[-1] not in NOT_HERE and not (bad and is_cut):
            bench.point(f"{label}: {name}", "\n".join(bad) or None)
    whole = [e.error() for e in ended if e.code is None or e.code < 0 or (e.code and not any(said))]
    if is_late:
        whole += [
            f"rank {i} has ended {len(s)} checks, last {[*s, 'none'][len(s) - 1]}"
            for i, s in enumerate(said)
        ]
    if whole or not all(said):
        bench.point(
            f"{label}: the ranks ended", "\n".join(filter(None, whole)) or "a rank has not reported"
        )


def said(ended):
    """What a script of calls said, without the numbers of its lines and what only that version has."""
    return {line.split(" - ", 1)[1] for line in ended.out.splitlines() if " - " in line}


def driver(bench):
    """One script of calls of the driver: the answers that the backend relies on."""
    program = [bench.tree / "gpu" / "conform_driver"]
    ended = bench.command(program)
    bench.taps("driver", ended, least=60)
    if bench.is_fake:
        return
    # The fake of the same release answers the script with the same words.
    version = re.search(r"^# CUDA (\d+)$", ended.out, re.MULTILINE)
    extra = {"HVD_FAKE_CUDA": version[1] if version else "13000", "LD_LIBRARY_PATH": bench.tree / "fakes"}
    fake = bench.command(program, 30, **extra)
    only = sorted(said(ended) ^ said(fake))
    bench.point("the fake of the driver says what the driver says", "\n".join(only) or None)


SHARES_GPU = 23000  # the first NCCL that lets ranks of one host share a GPU


def nccl(bench):
    """One script of calls of NCCL, on 2 and 3 ranks.

    Where ranks that are separate hosts for NCCL fail and it has another way to share the GPU, they run once
    more that way, which the later stages use if it works.
    """
    version = nccl_scripts(bench, "nccl")
    if version < SHARES_GPU or not any(p["error"] for p in bench.stages[-1]["points"]):
        return
    before, n_failed = bench.sharing, bench.n_failed
    bench.sharing = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    nccl_scripts(bench, "nccl, multi rank")
    if bench.n_failed > n_failed:
        bench.sharing = before


def nccl_scripts(bench, label):
    """Returns NCCL's version."""
    version = 0
    for n in (2, 3):
        folder = Path(bench.tmp.name) / f"{label}, {n}"
        folder.mkdir(parents=True)
        words = [bench.tree / "gpu" / "conform_nccl"]
        processes = bench.start_ranks(n, [*words, "{rank}", n, folder])
        for rank, end in enumerate(bench.end_ranks(words, processes, 45)):
            bench.taps(f"{label}, rank {rank} of {n}", end, least=30, each=False)
            version = max(
                [version, *(int(line[7:]) for line in end.out.splitlines() if line[:7] == "# NCCL ")]
            )
    return version


def matrix(bench):
    """All collectives against numpy, with the tensors of the host tests, on the device and mixed."""
    few = bench.is_fake  # CI has a minute for all of this
    script = HERE / "on_device.py"
    checks_of(bench, "2 ranks", 2, [script, "capi_data.py"], 150)
    others = ["capi_members.py", "capi_random.py", "capi_sendrecv.py", "capi_sets.py"]
    checks_of(bench, "3 ranks", 3, [script, *others], 150, CAPI_STEPS=15 if few else 150)
    knobs = {"HVD_GPU_GRAPH": 1, "HVD_GPU_REGISTER": 1, "HVD_GPU_DIRECT": 0}
    for knob, value in list(knobs.items())[: 1 if few else None]:
        checks_of(bench, knob, 3, [script, "capi_members.py"], 150, **{knob: value})
    some = ["capi_sendrecv.py"] if few else ["capi_data.py", "capi_members.py"]
    checks_of(bench, "mixed", 2, [script, *some], 150, RM_MIXED=1)


SEES_GPU = "import sys, torch; sys.exit(3 if not torch.version.cuda else not torch.cuda.is_available())"


def torch(bench):
    """horovod.torch with CUDA tensors: as it is, with graphs, registration, codecs, and HVD_NANCHECK."""
    script = HERE / "torch_rank.py"
    ended = bench.command([interpreter(), "-c", SEES_GPU], 90)
    if ended.code == 3:
        raise Skipped("this torch is built without CUDA")
    bench.point("torch sees the GPU", ended.error())
    if ended.error():  # the script would test host memory
        return
    for label, words, extra in (
        ("torch", [], {}),
        ("torch, graphs", [], {"HVD_GPU_GRAPH": 1}),
        ("torch, codecs", ["codecs"], {}),
        ("torch, registered", [], {"HVD_GPU_REGISTER": 1}),
        ("torch, nan", ["nan"], {"HVD_NANCHECK": 1}),
    ):
        checks_of(bench, label, 2, [script, *words], 60, **extra)


def sanitizer(bench):
    """compute-sanitizer on the kernels' tables: wild accesses, races, uninitialized reads."""
    where = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(where).exists():
        raise Skipped("compute-sanitizer is not on the PATH, nor in /usr/local/cuda/bin")
    programs = sorted((bench.tree / "gpu").glob("gpu_*kernels"))
    # every test of the small programs; of the large one what has few launches
    some = {
        "gpu_kernels": ("averages", "source_zero", "in_place", "any_number", "scan"),
        "gpu_topk_kernels": ("long_indexes", "many_chunks"),
    }
    for tool in ("memcheck", "racecheck", "initcheck"):
        for program in programs:
            for test in some.get(program.name, ("",)):
                argv = [where, "--tool", tool, "--error-exitcode", "9", program]
                ended = bench.command(argv, 60, RM_EXACT=1, UNIT_FILTER=f"*{test}*")
                error = ended.error()
                if not error and "ERROR SUMMARY: 0 errors" not in ended.out and tool != "racecheck":
                    error = ended.out[-1500:]
                bench.point(f"{tool} of {program.name} {test}".rstrip(), error)


def figures(parts=()):
    """bench.py's parts, each of which is a point."""

    def measure(bench):
        measured = benchmark.Measure(bench, False, parts)
        measured.run()
        for part in measured.parts:
            bench.point(f"{part} has figures", "\n".join(measured.problems_of(part)) or None)

    return measure


def measuring(bench):
    """bench.py measures all that it should, and makes a table of a GPU's figures but not of the fakes'."""
    script, python = HERE / "bench.py", interpreter()
    out = Path(bench.tmp.name)
    words = [python, script, "--mode", "fake", "--tree", bench.tree, "--out", out]
    bench.point("bench.py measures", bench.command(words).error())
    rows = [json.loads(line) for line in (out / "bench-fake.jsonl").read_text().splitlines()]
    missing = {"machine", "kernels", "latency", "allreduce", "tables"} - {r["part"] for r in rows}
    bench.point("all parts have figures", f"none of {missing}" if missing else None)
    readme, file, more = out / "README.md", out / "bench.jsonl", out / "bench-training.jsonl"
    readme.write_text(f"before\n{benchmark.BEGIN}\n{benchmark.END}\nafter\n")
    words = [python, script, "--readme", readme, "--report"]
    refused = bench.command([*words, out / "bench-fake.jsonl"])
    bench.point("figures of the fakes are refused", None if refused.code == 1 else refused.out or "taken")
    rows[0].update(is_fake=False, gpu="Some GPU", sharing="through MPS")
    train = {"part": "train", "model": "m", "ranks": 2}
    times = (("ddp", 2000), ("ours", 1000), ("ddp-hvd", 1500))
    for r in rows:
        if r.get("list") == "transformer":  # the goal is that of the kernels that a sum launches
            r["of_copy"] = 0.9 if r["kernel"] == "copy out" else 0.5
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    rows = [rows[0], *({**train, "peer": p, "median_us": us} for p, us in times)]
    more.write_text("".join(json.dumps(r) + "\n" for r in rows))
    ended = bench.command([*words, file, more])
    text = readme.read_text()
    wanted = (
        "One Some GPU (driver ",
        "2 ranks share the GPU through MPS.",
        "| m | 2 | 2.00 ms | 1.00 ms | 1.50 ms |",
        "| resnet50 | f32 in |",
        f"{benchmark.END}\nafter",
    )
    lacks = [w for w in wanted if w not in text]
    bench.point("a table is written", ended.error() or (f"lacks {lacks}" if lacks else None))
    missed = [line for line in text.splitlines() if line.startswith("| transformer |") and "goal" in line]
    good = (
        len(missed) == 1
        and missed[0].startswith("| transformer | copy in |")
        and "50% (goal 85%)" in missed[0]
    )
    bench.point(
        "the goal is that of the kernels that a sum launches", None if good else "\n".join(missed) or text
    )


# A stand-in of nvidia-cuda-mps-control, which runs while its file is there.
MPS_CONTROL = """#!/bin/sh
runs=${CUDA_MPS_PIPE_DIRECTORY:-none}/runs
if [ "$1" = -f ]; then
    : >"$runs"
    while [ -e "$runs" ]; do sleep 0.1; done
    : >"$(dirname "$0")/ended"
    exit
fi
read -r word
[ -e "$runs" ] || exit 1
case $word in quit) rm "$runs" ;; get_server_list) echo 4711 ;; esac
"""


def sharing(bench):
    """bench.py starts MPS and ends it, uses one that runs, and says how ranks share the GPU."""
    out = Path(bench.tmp.name) / "mps"
    out.mkdir()
    control = out / "nvidia-cuda-mps-control"

    def shared(path, **extra):
        words = [
            interpreter(),
            HERE / "bench.py",
            "--mode",
            "fake",
            "--tree",
            bench.tree,
            "--out",
            out,
            "kernels",
        ]
        ended = bench.command(words, PATH=path, **extra)
        if ended.error():
            return ended.error()
        return json.loads((out / "bench-kernels-fake.jsonl").read_text().splitlines()[0])["sharing"]

    def point(name, got, wanted):
        bench.point(name, None if got == wanted else got)

    path = f"{out}:/usr/bin:/bin"
    point("without MPS", shared(out), "in time slices (nvidia-cuda-mps-control is not there)")
    control.write_text(MPS_CONTROL)
    control.chmod(0o755)
    point("MPS is started", shared(path), "through MPS")
    bench.point("and ended", None if (out / "ended").exists() else "it still runs")
    (out / "ended").unlink()
    (out / "runs").touch()
    point(
        "MPS that ran before is used",
        shared(path, CUDA_MPS_PIPE_DIRECTORY=out),
        "through MPS, which ran before",
    )
    bench.point("and still runs", None if (out / "runs").exists() else "it was ended")


NEEDS = dict.fromkeys(("matrix", "faults", "measuring", "sabotage"), ("numpy",)) | {
    "torch": ("numpy", "torch")
}
ON_REQUEST = {"training"}
LEAST = {"driver": 10, "kernels": 40, "nccl": 40, "matrix": 80, "faults": 80, "torch": 120, "bench": 60} | {
    "sanitizer": 30
}
STAGES = {
    "inventory": (30, 60, inventory),
    "driver": (30, 60, driver),
    "kernels": (120, 200, kernels),
    "nccl": (180, 100, nccl),
    "matrix": (150, 200, matrix),
    "faults": (120, 200, faults.faults),
    "torch": (180, 0, torch),
    "bench": (150, 0, figures()),
    "training": (540, 0, figures(("training",))),
    "measuring": (0, 100, measuring),
    "sharing": (0, 120, sharing),
    "sabotage": (0, 120, sabotage.sabotage),
    "sanitizer": (180, 0, sanitizer),
}
