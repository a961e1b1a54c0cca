#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One TensorFlow allreduce, eagerly and in tf.function, with its gradient.

horovodrun -np 2 python3 allreduce_tf.py
"""

import sys

import horovod.tensorflow as hvd
import tensorflow as tf


@tf.function
def sum_and_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum, name="x") * x)
    return y, tape.gradient(y, x)


def main():
    hvd.init()
    n = hvd.size()
    x = tf.constant([1.0, 2.0]) * (hvd.rank() + 1)
    average = hvd.allreduce(x)
    total, gradient = sum_and_gradient(x)
    print(f"rank {hvd.rank()} of {n}: average {average.numpy()}, gradient {gradient.numpy()}")
    expected = tf.constant([1.0, 2.0]) * (n + 1) / 2
    if not bool(tf.reduce_all(tf.abs(average - expected) < 1e-5)):
        sys.exit(f"allreduce_tf: average {average.numpy()} should be {expected.numpy()}")


if __name__ == "__main__":
    main()
