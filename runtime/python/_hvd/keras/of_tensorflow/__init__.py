# SPDX-License-Identifier: Apache-2.0
"""``import horovod.tensorflow.keras as hvd``: for ``tf.keras``, of any version."""

from _hvd import __version__, frameworks

keras = frameworks.need("tensorflow", "horovod.tensorflow.keras").keras

from _hvd.basics import *
from _hvd.basics import Average
from _hvd.basics import __all__ as _basics
from _hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from _hvd.keras import api
from _hvd.keras.optimizer import wrap
from _hvd.options import named_options
from _hvd.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from _hvd.tensorflow import init

_api = api.Api(keras)
Compression = _api.Compression
allgather = _api.allgather
broadcast = _api.broadcast
broadcast_global_variables = _api.broadcast_global_variables
load_model = _api.load_model
reducescatter = _api.reducescatter


@named_options
def DistributedOptimizer(
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=Average,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    num_groups=0,
    groups=None,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """Returns horovod.keras.DistributedOptimizer(...). Only the order of the arguments differs, as in
    Horovod."""
    return wrap(**locals())


def allreduce(
    value,
    name=None,
    average=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    op=None,
    compression=Compression.none,
):
    """Returns a value reduced over all ranks, by default their mean.

    value: a number, a list, an array or a tensor, of the same shape and dtype on all ranks. The result is a
    tensor, or in a graph of TensorFlow 1 the value. average: Horovod's old argument in place of op.
    """
    return _api.reduce_value(value, name, op, average, prescale_factor, postscale_factor, compression)


__all__ = sorted(
    {
        *_basics,
        *api.NAMES,
        "HorovodInternalError",
        "HostsUpdatedInterrupt",
        "ProcessSet",
        "__version__",
        "add_process_set",
        "global_process_set",
        "remove_process_set",
    }
)
