# SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter of Variables, IndexedSlices and mixed lists, with compression.

Over the raw operations of mpi_ops.py, which take plain tensors:

    dense            compress -> _allreduce -> decompress, or one _allreduce that names the codec
    IndexedSlices    allgather of the values and of the indices; Average divides the values
    a list           dense ones in one group, IndexedSlices in two groups of allgathers

The results are in the order of their tensors. Names: given ones, else those of mpi_ops.py.
"""

import math

import tensorflow as tf

from _hvd.basics import Adasum, Average, Sum, check_reduce_op, reduce_op_from
from _hvd.process_sets import global_process_set, process_set_id
from _hvd.tensorflow.completion import in_turn
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
    """tensor as what has a TensorFlow dtype: a Variable stays, as what custom compressors expect."""
    return tensor if isinstance(tensor, (tf.Tensor, tf.Variable)) else tf.convert_to_tensor(tensor)


def _check_sparse(op, scale):
    """scale: both factors multiplied; those of gradient_predivide_factor cancel out."""
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


def divided(value, size):
    """A tensor or IndexedSlices by a number; integers become floats, as of Horovod's IndexedSlices."""
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(divided(value.values, size), value.indices, value.dense_shape)
    return value / tf.cast(size, value.dtype)


@in_turn()
def _reduce_slices(slices, name, op, device_sparse, place):
    """The sum or average of each, as IndexedSlices of all ranks' rows; an index may occur several times."""
    with on_device(device_sparse):
        names = (f"{name}_values", f"{name}_indices") if name else (None, None)
        values = _gather_all([s.values for s in slices], names[0], place)
        indices = _gather_all([s.indices for s in slices], names[1], place)
        if op == Average:
            values = [divided(v, place["process_set"].size()) for v in values]
    return [tf.IndexedSlices(v, i, dense_shape=s.dense_shape) for v, i, s in zip(values, indices, slices)]


def _compressed(tensors, compression, name, operation):
    """operation(tensors, **wire) on compressed tensors; its results, decompressed."""
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
    """Reduces a tensor, Variable or IndexedSlices over all ranks: averaged, or by op=.

    Works eagerly, in tf.function and in v1 graphs, and has a gradient. In graphs, ranks' operations are
    matched by the node's name; eagerly, without a name, by the order of calls. IndexedSlices become those
    of all ranks together (op Average or Sum). average: Horovod's old argument in place of op.
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
    """allreduce of each of a list, all or none: none travels before all ranks have handed over all.

    Tensors and IndexedSlices may be mixed, and so may dtypes.
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
    """The reduced tensor's rows (dimension 0) of this rank; the first ranks get one more if they must."""
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
    """reducescatter of each of a list, all or none."""
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
