# SPDX-License-Identifier: Apache-2.0
"""MPS, by which the ranks that share a GPU run on it at the same time; without it they take turns.

A daemon that runs already is used and left alone. Else one is started for the time of the measurement, as the
current user and with folders of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from harness import Process

CONTROL = "nvidia-cuda-mps-control"
START_S = 30


def ask(control, env, word):
    """What the daemon answers to this command; None: it did not take it, or there is no daemon."""
    try:
        ended = subprocess.run(
            [control],
            input=f"{word}\n",
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if ended.returncode else ended.stdout


def started(daemon, control, env):
    """Waits until the daemon answers; False: it does not."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and daemon.child.poll() is None:
        if ask(control, env, "get_server_list") is not None:
            return True
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def shared(bench):
    """Commands that are started inside share the GPU through MPS if it works. Yields how they do, in words."""
    control = shutil.which(CONTROL)
    if not control:
        yield f"in time slices ({CONTROL} is not there)"
        return
    if ask(control, dict(os.environ), "get_server_list") is not None:
        yield "through MPS, which ran before"
        return
    folders = {}
    for name in ("PIPE", "LOG"):
        folder = Path(bench.tmp.name) / f"mps-{name.lower()}"
        folder.mkdir(exist_ok=True)
        folders[f"CUDA_MPS_{name}_DIRECTORY"] = str(folder)
    env = {**os.environ, **folders}
    daemon = Process([control, "-f"], env)  # not one of bench's, which end by SIGKILL
    try:
        if not started(daemon, control, env):
            yield f"in time slices ({CONTROL} did not start: {''.join(daemon.lines).strip()[-200:]})"
            return
        # A context under MPS, before figures depend on it.
        few = Path(bench.tmp.name) / "few"
        few.write_text("1000\n")
        tried = bench.command([bench.tree / "gpu" / "bench_kernels", 1, few], 30, RM_COPY_MB=4, **folders)
        if tried.error():
            yield f"in time slices (MPS does not work here: {tried.error().strip()[-200:]})"
            return
        if not (
            ask(control, env, "get_server_list") or ""
        ).strip():  # a server starts with the first context
            yield "in time slices (no context came to the MPS that was started)"
            return
        bench.extra.update(folders)
        yield "through MPS"
    finally:
        for name in folders:
            bench.extra.pop(name, None)
        ask(control, env, "quit")
        daemon.end(10)
