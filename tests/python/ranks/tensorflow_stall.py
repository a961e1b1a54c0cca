# SPDX-License-Identifier: Apache-2.0
"""Rank 0 waits in a tf.function for rank 1, which does something else until Ctrl-C ends both."""

import threading

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()


@tf.function
def step(x, *names):
    return [hvd.allreduce(x, name=name) for name in names]


try:
    # under other names: on a busy machine, ranks that have to trace it wait for each other, too
    step(tf.ones([2]), "first", "second")
    if hvd.rank() == 1:
        threading.Event().wait()
    step(tf.ones([2]), "first", "gradient_of_w")
except BaseException as e:
    print(f"rank {hvd.rank()} was ended by {type(e).__name__}", flush=True)
    raise
