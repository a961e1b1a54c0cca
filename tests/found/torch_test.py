#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that torchrun and torch.distributed.launch start, on one host and on two. TAP.

usage: torch_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

from __future__ import annotations

import os
import re
import sys

from jobs import (
    DEADLINE_S,
    PYTHON,
    RANK,
    cached,
    free_port,
    late,
    meets,
    one_host,
    openmpi,
    python_path,
    ranks,
    release,
    run,
    torch,
    two_hosts,
    two_hosts_up,
)
from launched import ROOT, environment
from tap import Program, Skip, run_all, same, wait_until

ALONE = ("--standalone", "--no_python", "--nproc_per_node")
TWO_ALONE = (*ALONE, "2")


def test_torchrun(folder):
    meets(folder, torch(*TWO_ALONE, RANK), one_host(2, "torchrun"), warns=True)


def test_torchrun_inside_mpirun(folder):
    program = run(folder, [*openmpi("-np", "1"), *torch(*TWO_ALONE, RANK)])
    same(ranks(program), one_host(2, "torchrun"))


def test_torchrun_names_the_first_failing_rank(folder):
    program = run(folder, torch(*TWO_ALONE, RANK, "hvd", "fail=1:7"), code=1)
    first = program.err[program.err.index("Root Cause") :]
    assert re.search(r"local_rank: 1\)\s+exitcode\s*: 7 ", first), program.err


def test_torchrun_starts_its_ranks_again(folder):
    """The next generation, on the same port."""
    script = f'[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && exec {RANK} hvd fail=1:7; exec {RANK}'
    program = run(folder, torch("--max_restarts", "1", *TWO_ALONE, "sh", "-c", script))
    same(ranks(program), sorted(one_host(2, "torchrun") * 2))


def test_ranks_of_torchrun_say_that_rank_0_is_missing(folder):
    """Rank 0 has the rendezvous: its peers cannot ask it. Later it names them."""
    zero = late(folder, "zero", torch(*ALONE, "4"), 0)
    wait_until("rank 0 is missing", lambda: zero.err.count("waiting for rank 0 of 4") == 2, DEADLINE_S)
    release(folder, "zero")
    same(zero.end(DEADLINE_S), 0, zero.err)
    same(ranks(zero), one_host(4, "torchrun"))
    three = late(folder, "three", torch(*ALONE, "4"), 3)
    text = "rank 0]: waiting for rank 3 of 4 waited_s=10 "
    wait_until("rank 3 is missing", lambda: text in three.err, DEADLINE_S)
    release(folder, "three")
    same(three.end(DEADLINE_S), 0, three.err)
    same(three.err.count("waiting for"), 1, three.err)


PYTHON_RANK = os.path.join(ROOT, "tests/found/torch_rank.py")


def launch(folder, *words, python=PYTHON, **env):
    argv = torch(
        "--nproc_per_node", "2", "--master_port", str(free_port()), PYTHON_RANK, *words,
        launcher="torch.distributed.launch", python=python,
    )  # fmt: skip
    return run(folder, argv, **env)


def both(program):
    same(ranks(program), [f"rank {r}/2 c10d 3 hvd 3" for r in range(2)], program.err)


def test_torch_distributed_launch(folder):
    """hvd and torch's own c10d in one script, either first. This torch passes --local_rank."""
    both(launch(folder, "--first=c10d", PYTHONPATH=python_path()))
    both(launch(folder, "--first=hvd", PYTHONPATH=python_path()))


def test_torch_distributed_launch_of_the_newest_torch(folder):
    """It passes --local-rank."""
    python = cached("venv/torch/bin/python")
    if not os.path.exists(python):
        raise Skip(f"{python} is missing (tests/setup/venv.sh torch)")
    both(launch(folder, "--first=hvd", PYTHONPATH=python_path(), python=python))


def test_torchrun_on_two_hosts(folder):
    with two_hosts_up(folder) as hosts:
        a = hosts.address("a")
        parts = []
        for i, host in enumerate(hosts.names):
            argv = torch(
                "--nnodes", "2", "--node_rank", str(i), "--master_addr", a, "--master_port", "29533",
                "--nproc_per_node", "2", "--no_python", RANK,
            )  # fmt: skip
            argv = [hosts.enter, host, *argv]
            parts.append(Program(argv, environment(TMPDIR=folder), folder, f"node{i}"))
        codes = [p.end(DEADLINE_S) for p in parts]
        same(codes, [0, 0], "".join(p.err for p in parts))
        same(sorted(text for p in parts for text in ranks(p)), two_hosts("torchrun"))


if __name__ == "__main__":
    sys.exit(run_all([f for n, f in list(globals().items()) if n.startswith("test_")]))
