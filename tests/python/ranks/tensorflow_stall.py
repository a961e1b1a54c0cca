# SPDX-License-Identifier: Apache-2.0
"""Rank 0 waits in a tf.function for rank 1, which does something else until Ctrl-C ends both."""

import os
import threading

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()


@tf.function
def step(x):
    return hvd.allreduce(x, name="first"), hvd.allreduce(x, name="gradient_of_w")


step(tf.ones([2]))
try:
    if hvd.rank() == 1:
        threading.Event().wait()
    step(tf.ones([2]))
except BaseException as e:
    print(f"rank {hvd.rank()} was ended by {type(e).__name__}", flush=True)
    raise
