#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks on GPUs, which NVIDIA's libraries as fakes stand in for (tests/fakes/cuda): what a job says of
a GPU or a rank that failed, and what is told of a host's GPUs. TAP.

usage: gpu_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import re
import signal
import sys
import time

from agent_test import Job, failure
from launched import BIN, environment, run, start, up
from tap import has, is_alive, run_all, same, wait_until

FAKES = os.path.join(os.path.dirname(BIN), "fakes")
RANK = os.path.join(BIN, "launch-gpu-world")
ALIVE_S = 1.0  # how long a survivor may outlive the death of a rank, its process' end included
SLACK_S = float(os.environ.get("LAUNCH_TEST_SLACK_S", "1"))  # a loaded machine's


def fakes(**more):
    return {"LD_LIBRARY_PATH": FAKES, "HVD_FAKE_GPUS": "3", "HVD_FAKE_HANG_S": "600", **more}


def rank_on_gpu(folder, steps=0):
    """A rank whose faults can be set while it runs (fault)."""
    return ["sh", "-c", f"HVD_FAKE_FILE={folder}/faults.$HOROVOD_RANK exec {RANK} {steps} {folder}"]


def fault(folder, rank, text):
    with open(f"{folder}/.faults", "w", encoding="ascii") as f:
        f.write(text)
    os.rename(f"{folder}/.faults", f"{folder}/faults.{rank}")


def begin(folder, n=3, **more):
    env = environment(TMPDIR=folder, **fakes(**more))
    program = start(folder, "-np", str(n), *rank_on_gpu(folder), env=env)
    return program, up(folder, n)


def ended_in(pids):
    """Seconds until none of these is alive."""
    since = time.monotonic()
    wait_until("the survivors end", lambda: not any(is_alive(p) for p in pids))
    return time.monotonic() - since


def test_ranks_train_on_their_gpus(folder):
    env = environment(TMPDIR=folder, **fakes())
    program = run(folder, "-np", "3", *rank_on_gpu(folder, 20), env=env)
    same(program.out.count("done\n"), 3, program.out + program.err)


def test_an_xid_is_the_jobs_cause(folder):
    program, pids = begin(folder)
    fault(folder, 1, "xid=79")
    took = ended_in(pids)
    same(program.end(), 1)
    has(
        program.err,
        "horovodrun: rank 1 on localhost exited with code 1: XID 79 (GPU has fallen off the bus) on GPU 1 of "
        "rank 1 (host localhost): the GPU or its slot",
    )
    print(f"# {took:.2f} s from the XID to the end of all ranks")


def test_an_xid_behind_an_error_of_cuda_is_in_front(folder):
    program, _ = begin(folder)
    fault(folder, 2, "xid=31,kernel_error=700@5")
    same(program.end(), 1)
    has(
        program.err,
        "horovodrun: rank 2 on localhost exited with code 1: XID 31 (GPU memory page fault) on GPU 2 ",
    )
    has(program.err, "CUDA_ERROR_ILLEGAL_ADDRESS")


def test_an_error_of_cuda_is_the_jobs_cause(folder):
    program, _ = begin(folder)
    fault(folder, 0, "kernel_error=700@5")
    same(program.end(), 1)
    assert re.search(
        r"horovodrun: rank 0 on localhost exited with code 1: .*rank 0 \(host localhost.*CUDA_ERROR_ILLEGAL_ADDRESS",
        program.err,
    ), program.err


def test_a_killed_rank_is_the_cause_and_not_nccls_lost_peer(folder):
    """Survivors hang in a kernel, or NCCL tells them: both end at once."""
    for name, death in (("hang", ""), ("error", "peer_death=error")):
        sub = f"{folder}/{name}"
        os.mkdir(sub)
        for r in range(3):
            fault(sub, r, death)
        program, pids = begin(sub)
        os.kill(pids[1], signal.SIGKILL)
        took = ended_in(pids[:1] + pids[2:])
        same(program.end(), 137, program.err)
        has(program.err, "horovodrun: rank 1 on localhost was killed by signal 9 (SIGKILL)\n")
        print(f"# {name}: {took:.2f} s from the kill to the end of the survivors")
        assert took < ALIVE_S + SLACK_S, took


def test_an_asynchronous_error_names_its_rank(folder):
    for r in range(3):
        fault(folder, r, "async_error=1:3@3000")
    program, _ = begin(folder)
    same(program.end(), 1)
    has(program.err, "NCCL asynchronous error on rank 1 (host localhost), GPU 1 ")
    has(program.err, "horovodrun: rank 1 on localhost exited with code 1")


def test_nccls_lost_peer_gives_way_to_the_rank_that_ended(folder):
    """Rank 1 dies of something of its own, late; ranks 0 and 2 have long said that NCCL lost somebody."""
    said = "NCCL asynchronous error on rank $HOROVOD_RANK (host localhost), GPU 0 (x): NCCL: remote process exited"
    program = run(
        folder,
        "-np",
        "3",
        "sh",
        "-c",
        f'if [ $HOROVOD_RANK = 1 ]; then sleep 0.6; echo "the cause"; exit 1; fi; echo "{said}" >&2; exit 1',
        code=1,
    )
    has(program.err, "the last lines of rank 1:\n    the cause\n")


def test_all_termination_messages_carry_the_xid(folder):
    """Worker 0 dies first, as a consequence; the XID is worker 1's."""
    job = Job(folder, 2, 1, **fakes(HVD_FAKE_FILE=f"{folder}/faults"))
    xid = r"XID 79 \(GPU has fallen off the bus\) on GPU 0 of rank 1 \(host \S+\): the GPU or its slot"
    job.start(0, RANK, "0", folder, HVD_FAKE_HOST="a")
    job.start(1, "sh", "-c", f"HVD_FAKE_FILE={folder}/faults.1 exec {RANK} 0 {folder}", HVD_FAKE_HOST="b")
    job.ranks_up(2)
    fault(folder, 1, "xid=79")
    same(job.end(), [1, 1], job.errors())
    job.logs_name(failure(1, 1) + '"' + xid)
    for agent in job.agents.values():
        assert re.search(r"rank 1 on \S+ exited with code 1: " + xid, agent.err), agent.err


if __name__ == "__main__":
    sys.exit(run_all([f for n, f in list(globals().items()) if n.startswith("test_")]))
