# SPDX-License-Identifier: Apache-2.0
"""``import horovod.tensorflow as hvd``: names of ``_hvd.tensorflow``."""

from importlib import import_module

from _hvd.tensorflow import *
from _hvd.tensorflow import __all__, __version__
from _hvd.tensorflow.gradients import _DistributedGradientTape, _make_allreduce_grads_fn
from _hvd.tensorflow.optimizer_v1 import _DistributedAdasumOptimizer, _DistributedOptimizer
from _hvd.tensorflow.util import _cache, _executing_eagerly, _make_subgraph

from horovod.tensorflow import (
    compression,
    functions,
    gradient_aggregation,
    gradient_aggregation_eager,
    mpi_ops,
    util,
)


def __getattr__(name):
    # hvd.keras.callbacks, as Perseus' scripts write; imported on first use, because that takes a second
    if name == "keras":
        return import_module("horovod.tensorflow.keras")
    raise AttributeError(f"module 'horovod.tensorflow' has no attribute '{name}'")
