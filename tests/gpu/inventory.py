# SPDX-License-Identifier: Apache-2.0
"""inventory.py TREE: what this machine has that the tests depend on, one "name: value" a line.

A process of its own: a library that crashes when it is opened, or a command that hangs, ends this alone.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import harness

TOOLS = ("nvcc", "ptxas", "cuobjdump", "compute-sanitizer", "ncu", "nsys")


def lines_of(*argv):
    """What a command prints, or why not."""
    try:
        ended = subprocess.run(
            [str(a) for a in argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return [f"none ({type(e).__name__})"]
    return ended.stdout.splitlines() or [f"nothing, exit code {ended.returncode}"]


def text_of(path):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def system():
    return f"{platform.platform()}, {os.confstr('CS_GNU_LIBC_VERSION')}"


def processors():
    usable = len(os.sched_getaffinity(0))
    quota = text_of("/sys/fs/cgroup/cpu.max").split()
    if not quota:  # version 1 of cgroups
        quota = [text_of(f"/sys/fs/cgroup/cpu/cpu.cfs_{word}_us") for word in ("quota", "period")]
    if quota[0] in ("max", "-1", ""):
        return f"{os.cpu_count()}, {usable} usable, no cgroup limit"
    return f"{os.cpu_count()}, {usable} usable, cgroup limit {int(quota[0]) / int(quota[1]):.1f}"


def gib(n):
    return "unlimited" if n < 0 else f"{n / (1 << 30):.2f} GiB"


def memory():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    shm = shutil.disk_usage("/dev/shm").total if Path("/dev/shm").exists() else 0
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"{gib(total)}, /dev/shm {gib(shm)}, memlock {gib(locked)}, {files} open files"


def python():
    return f"{platform.python_version()} {sys.executable}, " + ", ".join(
        package(name) for name in ("numpy", "torch", "torchvision")
    )


def package(name):
    """Its version without importing it, which takes torch seconds."""
    if not harness.has(name):
        return f"no {name}"
    version = importlib.metadata.version(name)
    if name == "torch":
        folder = importlib.util.find_spec(name).submodule_search_locations[0]
        cuda = re.search(r"^cuda\b.*= *(.*)$", text_of(Path(folder) / "version.py"), re.MULTILINE)
        version += f" (CUDA {cuda[1]})" if cuda else ""
    return f"{name} {version}"


def driver():
    nodes = " ".join(sorted(str(p) for p in Path("/dev").glob("nvidia*") if not p.is_dir()))
    said = text_of("/proc/driver/nvidia/version").splitlines()[:1]
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        said.append(f"libcuda.so.1 of CUDA {version.value}")
    except OSError as e:
        said.append(str(e))
    return "; ".join([*said, f"nodes: {nodes or 'none'}"])


def gpus():
    query = "name,memory.total,compute_mode,mig.mode.current,driver_version"
    return " | ".join(lines_of("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")[:8])


def nccl():
    path, version = os.environ.get("HVD_NCCL_LIB") or "libnccl.so.2", ctypes.c_int()
    try:
        ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))
    except OSError as e:
        return str(e)
    return f"{version.value} {path}"


def tools():
    found = {name: shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin") for name in TOOLS}
    release = (
        [line for line in lines_of(found["nvcc"], "--version") if "release" in line]
        if found["nvcc"]
        else []
    )
    has = ", ".join(path for path in found.values() if path)
    return "; ".join([has or "none", *release])


def mps():
    return shutil.which("nvidia-cuda-mps-control") or "none"


def main():
    tree = Path(sys.argv[1])
    for item in (system, processors, memory, python, driver, gpus, nccl, tools, mps):
        try:
            said = item()
        except Exception as e:  # the other items are still worth it
            said = f"unknown ({type(e).__name__}: {e})"
        print(f"{item.__name__}: {said}", flush=True)
    for line in lines_of(tree / "bin" / "hvd-gpu", "info", tree / "lib"):
        print(f"hvd-gpu: {line}", flush=True)


if __name__ == "__main__":
    main()
