# SPDX-License-Identifier: Apache-2.0
"""TensorFlow of processors gets the device "GPU" of tests/fakes/tensorflow: imported before hvd.init()."""

import ctypes
import os

import tensorflow as tf
from tensorflow.python.framework import load_library

_FAKES = os.environ["FAKES"]
cuda, nccl = (
    ctypes.CDLL(f"{_FAKES}/{name}", ctypes.RTLD_GLOBAL) for name in ("libcuda.so.1", "libnccl.so.2")
)
load_library.load_pluggable_device_library(f"{_FAKES}/tf_gpu.so")


def on_gpu(value, dtype=None):
    """A tensor there; vectors of floats are still being made when this returns."""
    with tf.device("GPU:0"):
        x = tf.identity(tf.constant(value, dtype))
        return tf.math.rint(x) if x.dtype == tf.float32 and x.shape.rank == 1 else x
