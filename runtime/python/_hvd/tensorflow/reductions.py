# SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter of Variables, IndexedSlices and mixed lists, with compression.

Built from the operations of mpi_ops.py, which take plain tensors:

    dense            compress -> _allreduce -> decompress, or one _allreduce that names the codec
    IndexedSlices    allgather of the values and of the indices; Average divides the values
    a list           dense ones in one group, IndexedSlices in two groups of allgathers

The results are in the order of the tensors. Operations are named by `name`, else as in mpi_ops.py.
"""

import math

import tensorflow as tf

from _hvd.basics import Adasum, Average, Sum, check_reduce_op, reduce_op_from
from _hvd.process_sets import global_process_set, is_elastic, process_set_id
from _hvd.tensorflow.completion import in_turn, library
from _hvd.tensorflow.compression import Compression, caster, wire_of
from _hvd.tensorflow.devices import on_device
from _hvd.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    grouped_allgather,
)


def _plain(tensor):
    """Converts anything but a Variable to a tensor: custom compressors expect a Variable as it is."""
    return tensor if isinstance(tensor, (tf.Tensor, tf.Variable)) else tf.convert_to_tensor(tensor)


def _check_sparse(op, scale):
    """Raises NotImplementedError for what IndexedSlices do not support. scale: the product of both factors;
    it is 1 with gradient_predivide_factor."""
    if op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not currently support sparse tensors. As a workaround please pass "
            "sparse_as_dense=True to DistributedOptimizer"
        )
    if op not in (Sum, Average):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    if not math.isclose(scale, 1.0):
        raise NotImplementedError(
            "Pre/postscale_factor are not supported with tf.IndexedSlices; multiply its values instead"
        )


def _gather_all(tensors, name, place):
    if len(tensors) == 1:
        return [allgather(tensors[0], name=name, **place)]
    return grouped_allgather(tensors, name=name, **place)


def number_of_ranks(process_set):
    """The size of the set: in a graph of an elastic job, as a tensor that is read when the graph runs."""
    if is_elastic() and not tf.executing_eagerly():
        return library.hvd_size(process_set_id=process_set_id(process_set))
    return process_set.size()


def divided(value, size):
    """Returns a tensor or IndexedSlices divided by a number. Integers become floats, as in Horovod."""
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(divided(value.values, size), value.indices, value.dense_shape)
    return value / tf.cast(size, value.dtype)


@in_turn()
def _reduce_slices(slices, name, op, device_sparse, place):
    """Reduces a list of IndexedSlices by Sum or Average. Each result has the rows of all ranks, and an
    index may occur in it several times."""
    with on_device(device_sparse):
        names = (f"{name}_values", f"{name}_indices") if name else (None, None)
        values = _gather_all([s.values for s in slices], names[0], place)
        indices = _gather_all([s.indices for s in slices], names[1], place)
        if op == Average:
            values = [divided(v, number_of_ranks(place["process_set"])) for v in values]
    return [tf.IndexedSlices(v, i, dense_shape=s.dense_shape) for v, i, s in zip(values, indices, slices)]


def _compressed(tensors, compression, name, operation):
    """Compresses the tensors, runs operation(tensors, **wire) and returns its results, decompressed.

    A codec of the runtime is passed to the operation as compression=NAME instead.
    """
    is_named = name is not None or not tf.executing_eagerly()
    wire = wire_of(compression, is_named)
    if wire is not None:
        return operation(tensors, compression=wire)
    tensors, contexts = zip(*[compression.compress(tensor) for tensor in tensors])
    return [compression.decompress(t, c) for t, c in zip(operation(list(tensors)), contexts)]


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
    """Returns a tensor, Variable or IndexedSlices reduced over all ranks; by default averaged.

    Works eagerly, in tf.function and in v1 graphs, and has a gradient. Shape and dtype are the same on all
    ranks and in the result. For IndexedSlices the result has the rows of all ranks; op must be Average or
    Sum, else NotImplementedError. In graphs, the ranks' operations are matched by the node's name; eagerly
    by `name`, or without it by the order of calls.

    average: Horovod's old argument in place of op. device_dense, device_sparse: the device of the operation
    for a tensor and for IndexedSlices. compression: how the tensor is sent; see hvd.Compression.
    prescale_factor, postscale_factor: factors of the inputs and of the result.
    """
    op = check_reduce_op(reduce_op_from(op, average))
    process_set_id(process_set)
    scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    place = {"process_set": process_set, "ignore_name_scope": ignore_name_scope}
    if isinstance(tensor, tf.IndexedSlices):
        _check_sparse(op, prescale_factor * postscale_factor)
        return _reduce_slices([tensor], name, op, device_sparse, place)[0]

    def operation(tensors, **wire):
        return [_allreduce(tensors[0], name=name, op=op, **scales, **place, **wire)]

    with on_device(device_dense):
        return _compressed([_plain(tensor)], compression, name, operation)[0]


def grouped_allreduce(
    tensors,
    average=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    ignore_name_scope=False,
    name=None,
):
    """Reduces each of a list; returns a list in its order. No tensor is reduced before all ranks have
    submitted all of them.

    Tensors and IndexedSlices may be mixed, and so may dtypes. The arguments are those of allreduce().
    """
    tensors = list(tensors)
    if not tensors:
        return tensors
    op = check_reduce_op(reduce_op_from(op, average))
    process_set_id(process_set)
    scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    place = {"process_set": process_set, "ignore_name_scope": ignore_name_scope}
    sparse = [i for i, t in enumerate(tensors) if isinstance(t, tf.IndexedSlices)]
    dense = [i for i, t in enumerate(tensors) if not isinstance(t, tf.IndexedSlices)]
    results = [None] * len(tensors)

    def operation(some, **wire):
        return _grouped_allreduce(some, name=name, op=op, **scales, **place, **wire)

    if sparse:
        _check_sparse(op, prescale_factor * postscale_factor)
    with in_turn():
        slices = [tensors[i] for i in sparse]
        reduced = _reduce_slices(slices, name, op, device_sparse, place) if sparse else []
        for i, value in zip(sparse, reduced):
            results[i] = value
        if dense:
            with on_device(device_dense):
                plain = [_plain(tensors[i]) for i in dense]
                for i, value in zip(dense, _compressed(plain, compression, name, operation)):
                    results[i] = value
    return results


def reducescatter(
    tensor,
    device_dense="",
    compression=Compression.none,
    op=Average,
    name=None,
    process_set=global_process_set,
    ignore_name_scope=False,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """Returns this rank's rows (dimension 0) of the tensor reduced over all ranks; by default averaged.

    The first dim0 % size ranks receive one row more than the rest. Only Compression.none, fp16 and bf16, or
    a compressor of the user's, can be used. The other arguments are those of allreduce().
    """
    compression = caster(compression, "reducescatter")
    process_set_id(process_set)
    with on_device(device_dense):
        sent, context = compression.compress(_plain(tensor))
        reduced = _reducescatter(
            sent,
            op=check_reduce_op(op),
            name=name,
            process_set=process_set,
            ignore_name_scope=ignore_name_scope,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return compression.decompress(reduced, context)


def grouped_reducescatter(
    tensors,
    device_dense="",
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """Reduces and scatters each of a list; returns a list in its order. All are reduced, or none.

    The arguments are those of reducescatter().
    """
    compression = caster(compression, "grouped_reducescatter")
    tensors = list(tensors)
    if not tensors:
        return tensors
    op = check_reduce_op(op)
    process_set_id(process_set)
    scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    with on_device(device_dense):
        sent, contexts = zip(*[compression.compress(_plain(tensor)) for tensor in tensors])
        reduced = _grouped_reducescatter(list(sent), op=op, process_set=process_set, **scales)
        return [compression.decompress(t, context) for t, context in zip(reduced, contexts)]


__all__ = ["allreduce", "grouped_allreduce", "grouped_reducescatter", "reducescatter"]
