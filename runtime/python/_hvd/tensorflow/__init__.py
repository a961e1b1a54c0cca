# SPDX-License-Identifier: Apache-2.0
"""``import horovod.tensorflow as hvd``: everything of it."""

import tensorflow as tf

from _hvd import __version__
from _hvd.absent import AbsentModule, absent_class, absent_function, refuse
from _hvd.basics import *
from _hvd.basics import __all__ as _basics
from _hvd.basics import check_reduce_op, reduce_op_from
from _hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from _hvd.objects import allgather_object as _allgather_object
from _hvd.objects import broadcast_object as _broadcast_object
from _hvd.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    process_set_id,
    remove_process_set,
)
from _hvd.tensorflow.compression import Compression
from _hvd.tensorflow.mpi_ops import allreduce_op, completion_mode


def allreduce(
    tensor,
    average=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    name=None,
    process_set=global_process_set,
    ignore_name_scope=False,
):
    """Average (op=Average, the default) or sum of a dense tensor over all ranks.

    Works eagerly, in tf.function and in v1 graphs, and has a gradient. In graphs the node's name
    makes ranks' operations meet; eagerly, without a name, the order of calls does.
    """
    op = check_reduce_op(reduce_op_from(op, average))
    set_id = process_set_id(process_set)
    if isinstance(tensor, tf.IndexedSlices):
        refuse("allreduce of tf.IndexedSlices", "use tf.convert_to_tensor(gradient)")
    with tf.device(device_dense):
        tensor = tf.convert_to_tensor(tensor)
        compressed, ctx = compression.compress(tensor)
        reduced = allreduce_op(compressed, name, op, prescale_factor, postscale_factor, set_id)
        return compression.decompress(reduced, ctx)


def _eager_only(name, session):
    if session is not None or not tf.executing_eagerly():
        refuse(f"hvd.{name}() in a graph or session", "call it eagerly")


def broadcast_object(obj, root_rank=0, session=None, name=None, process_set=global_process_set):
    """The root rank's obj, on every rank."""
    _eager_only("broadcast_object", session)
    return _broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj, session=None, name=None, process_set=global_process_set):
    """List of every rank's obj, in rank order."""
    _eager_only("allgather_object", session)
    return _allgather_object(obj, name, process_set)


_ABSENT = [
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "allgather",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]
for _name in _ABSENT:
    globals()[_name] = absent_function("hvd", _name)
BroadcastGlobalVariablesHook = absent_class("hvd", "BroadcastGlobalVariablesHook")
SyncBatchNormalization = absent_class("hvd", "SyncBatchNormalization")
elastic = AbsentModule("hvd.elastic")

__all__ = sorted(
    [
        "__version__",
        "BroadcastGlobalVariablesHook",
        "Compression",
        "HorovodInternalError",
        "HostsUpdatedInterrupt",
        "ProcessSet",
        "SyncBatchNormalization",
        "add_process_set",
        "allgather_object",
        "allreduce",
        "broadcast_object",
        "completion_mode",
        "elastic",
        "global_process_set",
        "remove_process_set",
        *_ABSENT,
        *_basics,
    ]
)
