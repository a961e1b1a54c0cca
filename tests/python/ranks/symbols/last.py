# SPDX-License-Identifier: Apache-2.0
"""What ends the job, and what comes after it."""

import horovod
from harness import hvd, symbol, torch


@symbol("horovod.run")
def run_arguments(t):
    """That it runs something is tested by test_run.py and, here, in `run`."""
    t.fails("hosts", ["hosts and hostfile only allow one"], horovod.run, print, hosts="a:1", hostfile="b")
    t.fails(
        "both", ["use_gloo and use_mpi only allow one"], horovod.run, print, use_gloo=True, use_mpi=True
    )


@symbol("shutdown", "is_initialized")
def shutdown(t):
    hvd.barrier()
    t.same("returns", hvd.shutdown())
    t.same("initialized", hvd.is_initialized())
    t.fails("rank", ["Horovod has not been initialized; use hvd.init()."], hvd.rank)
    t.fails(
        "allreduce", ["Horovod has not been initialized"], hvd.allreduce, torch.ones(2), instead=ValueError
    )
    t.same("again", hvd.shutdown())


@symbol("init", "shutdown", ours=True)
def init_after_shutdown(t):
    hvd.init()
    t.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), [2, 2])
    one = hvd.add_process_set([0, 1][:1])
    assert hvd.remove_process_set(one)
    hvd.shutdown()
