# SPDX-License-Identifier: Apache-2.0
"""``import horovod.keras as hvd``: Keras by itself, on its back end TensorFlow, torch or JAX."""

from _hvd import __version__, frameworks

keras = frameworks.need("keras", "horovod.keras")

from _hvd.basics import *
from _hvd.basics import Adasum, Average, Sum
from _hvd.basics import __all__ as _basics
from _hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from _hvd.keras import api
from _hvd.keras.optimizer import layers_variables, wrap
from _hvd.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)

_api = api.Api(keras)
Compression = _api.Compression
allgather = _api.allgather
broadcast = _api.broadcast
broadcast_global_variables = _api.broadcast_global_variables
load_model = _api.load_model
reducescatter = _api.reducescatter
if _api.backend == "tensorflow":
    from _hvd.tensorflow import init  # chooses the GPU too


def DistributedOptimizer(
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=Average,
    num_groups=0,
    groups=None,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """An optimizer like this one of Keras, whose gradients are those of all ranks.

    op: hvd.Average or hvd.Sum. compression: how gradients travel. backward_passes_per_step: gradients of so
    many batches are summed (average_aggregated_gradients: averaged) before they are exchanged and applied.
    gradient_predivide_factor: divides before the sum what is divided by size() after it. groups: gradients
    that travel together, a number of groups or lists of variables. sparse_as_dense: gradients of embeddings
    as whole tensors. process_set: the ranks that train together. The rest is Horovod's.
    """
    return wrap(**locals())


def PartialDistributedOptimizer(
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=Average,
    groups=None,
    process_set=global_process_set,
    local_layers=None,
    scale_local_gradients=True,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
):
    """A DistributedOptimizer that leaves the gradients of local_layers, one layer or several, to each rank.

    They are divided by size() unless scale_local_gradients=False.
    """
    made = wrap(**{k: v for k, v in locals().items() if k != "local_layers"})
    for variable in layers_variables(local_layers):
        made.register_local_var(variable)
    return made


def allreduce(
    value,
    name=None,
    average=True,
    prescale_factor=1.0,
    postscale_factor=1.0,
    op=None,
    compression=Compression.none,
):
    """The mean of a value over all ranks; op=hvd.Sum, or average=False: the sum."""
    average = None if op is not None and average is True else average
    return _api.reduce_value(value, name, op, average, prescale_factor, postscale_factor, compression)


__all__ = sorted(
    {
        *_basics,
        *api.NAMES,
        "Adasum",
        "HorovodInternalError",
        "HostsUpdatedInterrupt",
        "PartialDistributedOptimizer",
        "ProcessSet",
        "__version__",
        "add_process_set",
        "global_process_set",
        "remove_process_set",
    }
)
