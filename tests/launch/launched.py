# SPDX-License-Identifier: Apache-2.0
"""Starts horovodrun for the tests. BIN: folder of the programs (default: $BUILD/plain/bin)."""

import os

from tap import Program, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(
    os.environ.get("BIN", os.path.join(ROOT, os.environ.get("BUILD", "build"), "plain/bin"))
)
HOROVODRUN = os.path.join(BIN, "horovodrun")


def environment(**more):
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("HOROVOD_", "HVD_", "SLURM_", "OMPI_", "PMI"))
    }
    env.update(more)
    return env


def start(folder, *words, env=None, name="run", **more):
    return Program([HOROVODRUN, *words], env or environment(TMPDIR=folder), folder, name, **more)


def run(folder, *words, code=0, **more):
    program = start(folder, *words, **more)
    got = program.end()
    assert got == code, f"exit code {got}, wanted {code}\n{program.out}{program.err}"
    return program


def wait_for_ranks(folder, n=2):
    """Until each of n ranks has made its file up.RANK in folder."""
    wait_until("ranks are up", lambda: all(os.path.exists(f"{folder}/up.{i}") for i in range(n)))
