# SPDX-License-Identifier: Apache-2.0
"""ResNet-50's gradients from Python: step_torch.py NAME, started by horovodrun or mpirun.

Runs the first `horovod.torch` on the path. A step submits every gradient by name, as the hooks
of an optimizer do, and then waits for each; its time is the slowest rank's, and steps follow each other
without barriers, as in training. Prints allreduce_torch.py's row.
"""

import sys
import time

import horovod.torch as hvd
import torch
from resnet50 import gradients
from rows import print_row

WARM_UP, STEPS = 10, 60


def step(named):
    handles = [hvd.allreduce_async_(x, name=name, op=hvd.Average) for name, x in named]
    for handle in handles:
        hvd.synchronize(handle)


def main():
    torch.set_num_threads(1)
    hvd.init()
    named = [(f"grad.{i}", torch.full(s, float(hvd.rank() + i))) for i, s in enumerate(gradients())]
    step(named)
    for i, (name, x) in enumerate(named):
        if not bool((x == (hvd.size() - 1) / 2 + i).all()):
            sys.exit(f"{sys.argv[1]}: rank {hvd.rank()}: wrong average in {name}")
    for _ in range(WARM_UP):
        step(named)
    times = torch.zeros(STEPS + 1, dtype=torch.float64)
    start = time.perf_counter()
    for i in range(STEPS):
        a = time.perf_counter()
        step(named)
        times[i] = (time.perf_counter() - a) * 1e6
    times[STEPS] = (time.perf_counter() - start) * 1e6 / STEPS
    times = hvd.allgather(times.reshape(1, -1), name="max").max(dim=0).values
    if hvd.rank() == 0:
        size_bytes = sum(x.numel() * 4 for _, x in named)
        print_row(sys.argv[1], hvd.size(), size_bytes, times[:STEPS], float(times[STEPS]))
    hvd.shutdown()


if __name__ == "__main__":
    main()
