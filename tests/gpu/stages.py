# SPDX-License-Identifier: Apache-2.0
"""The stages of run.py: name -> (seconds on a GPU, seconds on the fakes or 0: not there, function)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import faults
import resources
import sabotage
from harness import HERE, ROOT, Process, has, interpreter

# What is not so on a GPU, and why; run.py's stage conform looks at it.
NOT_HERE = {
    "minimum_and_maximum_keep_nan": "NCCL's minimum of a NaN and a number is the number",
}


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
            ended = bench.command([program], HVD_GPU_PTX=ptx, RM_EXACT=50, RM_TESTS=some)
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
    for name in sorted({name for s in said for name in s}, key=str):
        bad = [f"rank {i}: {s.get(name, 'not reached')}" for i, s in enumerate(said) if s.get(name, "not")]
        if name.split(": ")[-1] not in NOT_HERE:
            bench.point(f"{label}: {name}", "\n".join(bad) or None)
    whole = [e.error() for e in ended if e.code is None or e.code < 0 or (e.code and not any(said))]
    if whole or not all(said):
        bench.point(
            f"{label}: the ranks ended", "\n".join(filter(None, whole)) or "a rank has not reported"
        )


def said(ended):
    """What a script of calls said, without the numbers of its lines and what only that version has."""
    return {line.split(" - ", 1)[1] for line in ended.out.splitlines() if " - " in line}


def conform(bench):
    """One script of calls of the driver, another of NCCL: the answers that the backend counts on."""
    program = [bench.tree / "gpu" / "conform_driver"]
    ended = bench.command(program)
    bench.taps("driver", ended, least=60)
    folder = Path(bench.tmp.name) / "ids"
    for n in (2, 3):
        (folder / str(n)).mkdir(parents=True)
        words = [bench.tree / "gpu" / "conform_nccl"]
        processes = bench.start_ranks(n, [*words, "{rank}", n, folder / str(n)])
        ends = bench.end_ranks(words, processes, 60)
        for rank, end in enumerate(ends):
            bench.taps(f"nccl, rank {rank} of {n}", end, least=30, each=False)
    if not bench.is_fake:
        differs(bench, program, ended)


def differs(bench, program, real):
    """The fake of the same release answers the driver's script with the same words."""
    version = re.search(r"^# CUDA (\d+)$", real.out, re.MULTILINE)
    env = bench.environment(HVD_FAKE_CUDA=version[1] if version else "13000")
    env["LD_LIBRARY_PATH"] = str(bench.tree / "fakes")
    fake = Process(program, env).end(bench.left(30))
    bench.note(["the fake's", *program], fake)
    only = sorted(said(real) ^ said(fake))
    bench.point("the fake of the driver says what the driver says", "\n".join(only) or None)


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


def torch(bench):
    """horovod.torch with CUDA tensors, where a torch with CUDA is; graphs on, codecs, and HVD_NANCHECK."""
    script = HERE / "torch_rank.py"
    if not has("torch"):
        bench.point("a torch is here", "it is not")
        return
    for label, words, extra in (
        ("torch", [], {}),
        ("torch, graphs", [], {"HVD_GPU_GRAPH": 1}),
        ("torch, codecs", ["codecs"], {}),
        ("torch, nan", ["nan"], {"HVD_NANCHECK": 1}),
    ):
        checks_of(bench, label, 2, [script, *words], 60, **extra)


def sanitizer(bench):
    """compute-sanitizer on the kernels' tables: wild accesses, races, uninitialized reads."""
    where = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(where).exists():
        bench.point("compute-sanitizer is here", "it is not on the PATH, nor in /usr/local/cuda/bin")
        return
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
                ended = bench.command(argv, 60, RM_EXACT=1, RM_TESTS=test)
                error = ended.error()
                if not error and "ERROR SUMMARY: 0 errors" not in ended.out and tool != "racecheck":
                    error = ended.out[-1500:]
                bench.point(f"{tool} of {program.name} {test}".rstrip(), error)


def measuring(bench):
    """bench.py measures all that it should, and makes a table of a GPU's figures but not of the fakes'."""
    script, python = HERE / "bench.py", interpreter()
    out = Path(bench.tmp.name)
    words = [python, script, "--mode", "fake", "--tree", bench.tree, "--out", out]
    bench.point("bench.py measures", bench.command(words).error())
    data = json.loads((out / "bench-fake.json").read_text())
    got = {r["part"] for r in data["rows"]}
    missing = {"kernels", "latency", "allreduce", "tables"} - got
    bench.point("all parts have figures", f"none of {missing}" if missing else None)
    readme, file = out / "README.md", out / "bench.json"
    readme.write_text((ROOT / "tests" / "bench" / "README.md").read_text())
    words = [python, script, "--readme", readme, "--report"]
    refused = bench.command([*words, out / "bench-fake.json"])
    bench.point("figures of the fakes are refused", None if refused.code == 1 else refused.out or "taken")
    data["is_fake"] = False
    data["machine"]["gpu"] = "Some GPU"
    train = {"part": "train", "model": "m", "ranks": 2}
    data["rows"] += [{**train, "peer": p, "median_us": us} for p, us in (("ddp", 2000), ("ours", 1000))]
    for r in data["rows"]:
        if r.get("list") == "transformer":  # the goal is that of the kernels that a sum launches
            r["of_copy"] = 0.9 if r["kernel"] == "copy out" else 0.5
    file.write_text(json.dumps(data))
    ended = bench.command([*words, file])
    text = readme.read_text()
    wanted = (
        "One Some GPU (driver ",
        "| m | 2 | 2.00 ms | 1.00 ms |",
        "| resnet50 | f32 in |",
        "<!-- end of gpu",
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


STAGES = {
    "kernels": (150, 200, kernels),
    "conform": (90, 100, conform),
    "matrix": (150, 200, matrix),
    "torch": (180, 0, torch),
    "faults": (120, 200, faults.faults),
    "measuring": (0, 100, measuring),
    "sabotage": (0, 120, sabotage.sabotage),
    "sanitizer": (240, 0, sanitizer),
}
