# SPDX-License-Identifier: Apache-2.0
"""The cost of an allreduce in a TensorFlow graph: `graph_tf.py NAME`, started by horovodrun.

A tf.function reduces 200 independent tensors of 4 bytes; another one has an addition in place of each
allreduce. The difference divided by 200 is the cost of one operation: TensorFlow's call, ours, the runtime's
work and the completion. Prints the row of allreduce_torch.py: microseconds per operation on rank 0, processor
time of the whole process, and as the row's mean the elapsed time. One inter-op thread, as in training on one
CPU.
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import horovod.tensorflow as hvd
import tensorflow as tf
from rows import print_row

TENSORS, STEPS, ROUNDS = 200, 10, 9


def rounds(function, xs):
    """[(processor time, time)] of one operation in microseconds."""
    times = []
    for _ in range(ROUNDS + 1):
        start, cpu_start = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(STEPS):
            function(xs)
        cpu, spent = time.process_time_ns() - cpu_start, time.perf_counter_ns() - start
        times.append((cpu / STEPS / TENSORS / 1e3, spent / STEPS / TENSORS / 1e3))
    return times[1:]  # the first warms up


@tf.function(autograph=False)
def reduced(xs):
    return [hvd.allreduce(x, op=hvd.Sum, name=f"gradient_{i}") for i, x in enumerate(xs)]


@tf.function(autograph=False)
def added(xs):
    return [x + 1.0 for x in xs]


def main():
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    xs = [tf.constant([float(i)]) for i in range(TENSORS)]
    for i, y in enumerate(reduced(xs)):
        if float(y[0]) != i * hvd.size():
            sys.exit(f"{sys.argv[1]}: rank {hvd.rank()}: {float(y[0])} is not the sum")
    without_cpu, without = (sorted(t)[ROUNDS // 2] for t in zip(*rounds(added, xs)))
    cpu, clock = zip(*rounds(reduced, xs))
    if hvd.rank() == 0:
        print_row(
            sys.argv[1], hvd.size(), 4, [t - without_cpu for t in cpu], sorted(clock)[ROUNDS // 2] - without
        )
    hvd.shutdown()


if __name__ == "__main__":
    main()
