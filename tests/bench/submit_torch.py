# SPDX-License-Identifier: Apache-2.0
"""The cost of a submission to the submitting thread: submit_torch.py NAME, started by horovodrun or mpirun.

NAME "extension" times the call of the extension alone; any other NAME times hvd.allreduce_async_() of the
first `horovod.torch` on the path. A round submits 2000 tensors of 4 bytes by name, one after another, and
then waits for all of them (not timed). Prints the row of allreduce_torch.py for rank 0: microseconds of
processor time per submission, and as the row's mean the elapsed time, which includes the runtime's own
threads and other processes.
"""

import sys
import time

import horovod.torch as hvd
import torch
from rows import print_row

TENSORS, WARM_UP, ROUNDS = 2000, 3, 15


def extension(named):
    """(submit, end) of the extension, whose table of pending operations is ours here."""
    from _hvd import _native

    float32, table = 7, {}
    described = [(n, x.data_ptr(), x.data_ptr(), float32, x.shape) for n, x in named]

    def submit(i):
        return _native.allreduce(table, None, described[i], hvd.Sum, 1.0, 1.0, 0)

    def end(handle):
        _native.wait(handle)
        _native.release(handle)
        del table[handle]

    return submit, end


def whole(named):
    def submit(i):
        name, x = named[i]
        return hvd.allreduce_async_(x, name=name, op=hvd.Sum)

    return submit, hvd.synchronize


def one_round(submit, end):
    """(processor time, time) of one submission in microseconds."""
    start, cpu_start = time.perf_counter_ns(), time.thread_time_ns()
    pending = [submit(i) for i in range(TENSORS)]
    cpu, spent = time.thread_time_ns() - cpu_start, time.perf_counter_ns() - start
    for handle in pending:
        end(handle)
    return cpu / TENSORS / 1e3, spent / TENSORS / 1e3


def main():
    torch.set_num_threads(1)
    hvd.init()
    named = [(f"submit.{i}", torch.ones(1)) for i in range(TENSORS)]
    submit, end = (extension if sys.argv[1] == "extension" else whole)(named)
    for _ in range(WARM_UP):
        one_round(submit, end)
    for _, x in named:
        if x.item() != hvd.size() ** WARM_UP:
            sys.exit(f"{sys.argv[1]}: rank {hvd.rank()}: {x.item()} is not the sum")
        x.fill_(0)
    times, clock = zip(*(one_round(submit, end) for _ in range(ROUNDS)))
    if hvd.rank() == 0:
        print_row(sys.argv[1], hvd.size(), 4, times, sorted(clock)[ROUNDS // 2])
    hvd.shutdown()


if __name__ == "__main__":
    main()
