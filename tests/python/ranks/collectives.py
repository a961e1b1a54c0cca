# SPDX-License-Identifier: Apache-2.0
"""horovod.torch: names, barriers, interrupts and where a rank is. Also runs on several hosts."""

import os
import sys

import horovod.torch as hvd
import numpy as np
import torch
from _hvd import handles
from checks import check, check_if, in_threads, interrupted, main
from checks import same_numbers as same

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()


@check
def operations_without_names_meet_after_a_join():
    for first in range(N):
        for _ in range(first + 1 if first != R else 0):
            same(hvd.allreduce(torch.ones(2), op=hvd.Sum), np.full(2, N - 1))
        assert hvd.join() in range(N)
        same(hvd.allreduce(torch.ones(2), op=hvd.Sum), np.full(2, N))
        same(hvd.allgather(torch.tensor([R])), np.arange(N))


@check
def tensors_live_as_long_as_their_operation():
    import gc

    def submit(i):
        return hvd.allreduce_async(torch.full((50000,), float(i)), op=hvd.Sum, name=f"alive.{i}")

    handles = [submit(i) for i in range(20)]
    gc.collect()
    junk = [torch.full((50000,), -1.0) for _ in range(20)]
    for i, handle in enumerate(handles):
        same(hvd.synchronize(handle), np.full(50000, float(i * N)))
    del junk


@check
def barrier_waits_for_the_last():
    import time

    hvd.barrier()
    if R == N - 1:
        time.sleep(0.3)  # this rank is late: the other ranks must wait for it
    before = time.time()
    hvd.barrier()
    after = hvd.allgather_object((before, time.time()))
    assert max(b for b, _ in after) <= min(a for _, a in after)


@check_if(N > 1)
def a_barrier_follows_one_that_a_signal_interrupted():
    if R == 0:
        interrupted(hvd.barrier)
    hvd.allreduce(torch.ones(1), name="interrupted")
    hvd.barrier()  # rank 0 has submitted its first one already
    if R > 0:
        hvd.barrier()
    assert not handles._pending


@check
def barriers_of_two_threads_all_end():
    def many(_):
        for _ in range(200):
            hvd.barrier()

    in_threads(2, many)


@check
def barriers_repeat_their_name():
    """Or none would ever be known again, and each would leave the plan."""
    names = []
    submit = handles.submit

    def note(function, keep, result, name, *args):
        names.append(name)
        return submit(function, keep, result, name, *args)

    handles.submit = note
    try:
        hvd.barrier()
        hvd.barrier()
    finally:
        handles.submit = submit
    assert len(set(names)) == 1, names


@check
def init_is_idempotent_and_may_follow_shutdown():
    hvd.init()
    assert hvd.size() == N
    assert hvd.is_initialized()
    hosts = int(os.environ["CHECKS_HOSTS"])
    here = N // hosts
    assert (hvd.local_rank(), hvd.local_size()) == (R % here, here)
    assert (hvd.cross_rank(), hvd.cross_size()) == (R // here, hosts)
    assert hvd.is_homogeneous() is True


@check
def an_interrupt_right_after_a_submission_keeps_its_tensors():
    for name in ("allreduce", "allgather", "broadcast"):

        def interrupt(frame, event, function, name=name):
            if event == "c_return" and function.__name__ == name:
                sys.setprofile(None)
                raise KeyboardInterrupt

        tensor = torch.ones(1000)
        before = len(handles._pending)
        args = (tensor, 0) if name == "broadcast" else (tensor,)
        sys.setprofile(interrupt)
        try:
            getattr(hvd, name + "_async")(*args, name="interrupted")
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("no interrupt")
        finally:
            sys.setprofile(None)
        assert len(handles._pending) == before + 1, f"{name} continues with memory that is freed"
    hvd.barrier()


main(R)
