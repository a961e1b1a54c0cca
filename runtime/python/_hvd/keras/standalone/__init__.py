# SPDX-License-Identifier: Apache-2.0
"""``import horovod.keras as hvd``: for the package Keras, on its back end TensorFlow, torch or JAX."""

from _hvd import __version__, frameworks

keras = frameworks.need("keras", "horovod.keras")

from _hvd.basics import *
from _hvd.basics import Adasum, Average, Sum
from _hvd.basics import __all__ as _basics
from _hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from _hvd.keras import api
from _hvd.keras.optimizer import layers_variables, wrap
from _hvd.options import named_options
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
    num_groups=0,
    groups=None,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """Returns a distributed optimizer: like `optimizer`, but it applies gradients reduced over all ranks.

    optimizer: an optimizer of Keras; use the result in its place. If it is built, both share their
    variables. name: prefix of the operations' names; by default "Distributed" and the optimizer's class.
    device_dense, device_sparse: on TensorFlow, the device of the operations for tensors and IndexedSlices.
    compression: how gradients are sent, hvd.Compression.fp16 for example.
    sparse_as_dense: converts the gradients of embeddings to dense tensors before the reduction.
    gradient_predivide_factor: with Average, divides by it before the sum and multiplies by it after.
    op: hvd.Average or hvd.Sum.
    groups: a number of groups, or lists of variables, whose gradients are reduced together. num_groups is
        its old name.
    backward_passes_per_step: the gradients of this many batches are summed (averaged with
        average_aggregated_gradients) before they are exchanged and applied.
    process_set: the ranks that train together.
    scale_local_gradients: divides the gradients of register_local_var() by the number of ranks.

    Raises TypeError for anything but an optimizer of Keras, and ValueError or TypeError for other
    arguments.
    """
    return wrap(**locals())


@named_options
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
    """Returns a DistributedOptimizer that does not reduce the gradients of local_layers.

    local_layers: a built layer or a list of them. Their gradients are divided by the number of ranks,
    unless scale_local_gradients=False. ValueError for anything else. The other arguments are those of
    DistributedOptimizer().
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
    """Returns a value reduced over all ranks: their mean, the sum with average=False, or by `op`.

    value: a number, a list, an array or a tensor, of the same shape and dtype on all ranks. The result is a
    tensor of Keras' back end.
    """
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
