# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's operations and their gradients: eagerly, in tf.function and in v1 graphs.

The operations are in libhvd_tf.so (runtime/tensorflow). In a graph, ranks' operations are matched by the
node's name: the name= given here, which TensorFlow makes unique, or one derived from the tensor's. Eagerly
they are matched by the name given, or by the order of calls. Gradients are Horovod's.

An operation whose world ends raises, eagerly, a HorovodInternalError that is a tf.errors.UnknownError too;
a graph raises the latter (hvd.elastic.run handles both).
"""

import functools
import os
import re
import struct

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util, resource_variable_ops

from _hvd import _native, handles
from _hvd.basics import Adasum, Average, Sum
from _hvd.compression import without_feedback
from _hvd.exceptions import HorovodInternalError
from _hvd.process_sets import global_process_set, id_of_number, process_set_id
from _hvd.tensorflow.completion import completion_mode, in_turn, is_async, library, make_in_graph
from _hvd.tensorflow.devices import refuse_replicas
from _hvd.util import num_rank_is_power_2 as check_num_rank_power_of_2

__all__ = [
    "allgather",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "check_num_rank_power_of_2",
    "completion_mode",
    "grouped_allgather",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]

# --- creating an operation ----------------------------------------------------------------------


class WorldLost(HorovodInternalError, tf.errors.UnknownError):
    """The world ended while an eager operation was under way: Horovod's error, and TensorFlow's."""

    def __init__(self, node_def, op, message, *args):
        tf.errors.UnknownError.__init__(self, node_def, op, message, *args)

    __str__ = tf.errors.UnknownError.__str__


def _refuse_xla(kind):
    """XLA compiles whole functions, and nothing in them may wait for other processes."""
    graph = tf.compat.v1.get_default_graph()
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise NotImplementedError(
            f"hvd.{kind}() cannot be compiled by XLA: leave out jit_compile=True of the tf.function (or "
            "model.compile()) that calls it, and mark functions within it that do the computing instead"
        )


def _refuse_side_by_side(kind):
    """Iterations of TensorFlow 1's loops run side by side, and an operation knows the innermost one alone.

    Its tensor is called by that number, modulo 64. Those of TensorFlow 2 wait for each other.
    """
    most, graph = 64, tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsWhileContext():
                if context.parallel_iterations > most:
                    which = "the loop" if most > 1 else "each loop around the innermost loop or function"
                    raise ValueError(
                        f"hvd.{kind}() in loops of TensorFlow 1 cannot tell their iterations apart: give "
                        f"{which} at most parallel_iterations={most} (it has {context.parallel_iterations})"
                    )
                most = 1
            context = context.outer_context
        most = 1  # a function does not see its caller's iteration
        graph = getattr(graph, "outer_graph", None)


def _normalize_name(name):
    """Normalizes operation name to TensorFlow rules."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _node_name(name):
    """A name of the user's as what TensorFlow takes for a node; most are that already."""
    name = re.sub(r"[^a-zA-Z0-9_.\\/>-]", "_", name)
    return name if re.match("[a-zA-Z0-9.]", name) else f"hvd{name}"


def _name_of(tensor):
    """A tensor's name, equal on all ranks.

    An eager tensor that a graph captures has none, or a count of objects of this process.
    """
    try:
        name = tensor.name or "captured"
    except AttributeError:
        return "captured"
    return "captured" if re.fullmatch(r"\d+(:\d+)?", name) else name


@functools.lru_cache(maxsize=64)
def _bits(value):
    """A double as the integer that an attribute of an operation can carry in full."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def _float_of(bits):
    return struct.unpack("<d", struct.pack("<q", bits))[0]


def _reduction(op, prescale_factor, postscale_factor):
    """The attributes of an operation that reduces."""
    factors = {"prescale_bits": prescale_factor, "postscale_bits": postscale_factor}
    return {"reduce_op": op, **{name: _bits(float(factor)) for name, factor in factors.items()}}


def _place(op):
    """Where the operations of op's gradient take place: where op does."""
    return {
        "ignore_name_scope": op.get_attr("ignore_name_scope"),
        "process_set": op.get_attr("process_set_id"),
    }


def _source(tensor):
    """What names a tensor: a variable rather than the reading of it, whose number depends on the others.

    A function's reading of a variable from outside does not know it, so operations hand over what they got.
    """
    op = getattr(tensor, "op", None)
    if op is not None and op.type == "ReadVariableOp" and op.inputs[0].op.type == "VarHandleOp":
        return op.inputs[0]
    return tensor


def _run(kind, function, inputs, name, process_set, /, **attributes):
    """Creates one operation, named after `inputs` (a list) if need be; eagerly, returns its results.

    name: None for an automatic one. process_set: the id or the object.
    """
    refuse_replicas(kind)
    set_id = process_set if isinstance(process_set, int) else process_set_id(process_set)
    if set_id:
        _native.set_size(set_id)  # ValueError if it does not exist
    if tf.executing_eagerly():
        if attributes.get("compression") == "" and not name:
            attributes["compression"] = without_feedback(os.environ.get("HVD_COMPRESSION", ""))
        try:
            return function(
                process_set_id=set_id,
                tensor_name=name or "",
                eager=True,
                blocking=not is_async(),
                **attributes,
            )
        except tf.errors.UnknownError as e:
            raise WorldLost(e.node_def, e.op, e.message) from None
    _refuse_xla(kind)
    _refuse_side_by_side(kind)
    if name:
        name = _node_name(name)
    else:
        # the name of the first and, of several tensors, of the last
        several = [inputs[0], inputs[-1]] if kind.startswith("grouped") else inputs[:1]
        camel = "".join(word.capitalize() for word in kind.split("_"))
        name = _normalize_name("_".join([f"Horovod{camel}", *map(_name_of, map(_source, several))]))
    attributes.update(process_set_id=set_id, name=name, eager=False, blocking=not is_async())
    return make_in_graph(function, kind in ("join", "barrier"), **attributes)


def _tensors(tensors):
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


# --- allreduce -----------------------------------------------------------------------------------


def _allreduce(
    tensor,
    name=None,
    op=Sum,
    prescale_factor=1.0,
    postscale_factor=1.0,
    ignore_name_scope=False,
    process_set=global_process_set,
    compression="",
):
    """Reduces a dense tensor over all ranks: the same shape and dtype on all of them.

    compression: how it travels, by the runtime's name ("int8"), equal on all ranks; "": as HVD_COMPRESSION;
    "none": uncompressed.
    """
    source, tensor = tensor, tf.convert_to_tensor(tensor)
    return _run(
        "allreduce",
        library.hvd_allreduce,
        [source],
        name,
        process_set,
        tensor=tensor,
        **_reduction(op, prescale_factor, postscale_factor),
        ignore_name_scope=ignore_name_scope,
        compression=compression,
    )


def _average(grad, place):
    """What a gradient of another operation needs, of which HVD_COMPRESSION loses nothing."""
    return _allreduce(grad, op=Average, compression="none", **place)


def _like(op):
    """How the gradient of a reduction is reduced: as it was."""
    return {
        "op": op.get_attr("reduce_op"),
        "prescale_factor": _float_of(op.get_attr("prescale_bits")),
        "postscale_factor": _float_of(op.get_attr("postscale_bits")),
        **_place(op),
    }


@ops.RegisterGradient("HvdAllreduce")
def _allreduce_grad(op, grad):
    """The same allreduce of the gradient."""
    return _allreduce(grad, **_like(op))


def _grouped_allreduce(
    tensors,
    name=None,
    op=Sum,
    prescale_factor=1.0,
    postscale_factor=1.0,
    ignore_name_scope=False,
    process_set=global_process_set,
    compression="",
):
    """Reduces a list of tensors, all or none of which travel; they may differ in dtype."""
    sources, tensors = tensors, _tensors(tensors)
    if not tensors:
        return []
    return _run(
        "grouped_allreduce",
        library.hvd_grouped_allreduce,
        sources,
        name,
        process_set,
        tensors=tensors,
        **_reduction(op, prescale_factor, postscale_factor),
        ignore_name_scope=ignore_name_scope,
        compression=compression,
    )


def _of_dtypes(op, grads):
    """The gradients of a grouped operation; TensorFlow passes zeros of another dtype for unused outputs."""
    return [tf.cast(grad, x.dtype) for grad, x in zip(grads, op.inputs)]


@ops.RegisterGradient("HvdGroupedAllreduce")
def _grouped_allreduce_grad(op, *grads):
    """The same allreduce of the gradients."""
    return _grouped_allreduce(_of_dtypes(op, grads), **_like(op))


# --- allgather -----------------------------------------------------------------------------------


def allgather(tensor, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Concatenates all ranks' tensors along dimension 0, which may differ."""
    source, tensor = tensor, tf.convert_to_tensor(tensor)
    return _run(
        "allgather",
        library.hvd_allgather,
        [source],
        name,
        process_set,
        tensor=tensor,
        ignore_name_scope=ignore_name_scope,
    )


@in_turn()
def _rows_of_mine(x, grad, place):
    """The rows of the reduced gradient of an allgather that this rank's input x was."""
    reduced = _average(grad, place)
    with tf.device("/cpu:0"):
        mine = tf.shape(x)[:1]
        rows = allgather(mine, **place)
        begin = tf.reduce_sum(rows[: _native.set_rank(place["process_set"])])
    return tf.ensure_shape(reduced[begin : begin + mine[0]], x.shape)


@ops.RegisterGradient("HvdAllgather")
def _allgather_grad(op, grad):
    """The average of all ranks' gradients of what this rank gave."""
    return _rows_of_mine(op.inputs[0], grad, _place(op))


def grouped_allgather(tensors, name=None, ignore_name_scope=False, process_set=global_process_set):
    """An allgather of each of a list of tensors, all or none of which travel."""
    sources, tensors = tensors, _tensors(tensors)
    if not tensors:
        return []
    return _run(
        "grouped_allgather",
        library.hvd_grouped_allgather,
        sources,
        name,
        process_set,
        tensors=tensors,
        ignore_name_scope=ignore_name_scope,
    )


@ops.RegisterGradient("HvdGroupedAllgather")
@in_turn()
def _grouped_allgather_grad(op, *grads):
    """As of allgather, for each."""
    place = _place(op)
    return [_rows_of_mine(x, grad, place) for x, grad in zip(op.inputs, _of_dtypes(op, grads))]


# --- broadcast -----------------------------------------------------------------------------------


# What is only moved may be of these too: as a dtype of the same width that travels.
_MOVED_AS = {
    tf.uint32: tf.int32,
    tf.uint64: tf.int64,
    tf.complex64: tf.float32,
    tf.complex128: tf.float64,
}


def _bits_as(dtype, tensor):
    """tf.bitcast with a gradient."""
    was = tensor.dtype

    @tf.custom_gradient
    def cast(x):
        return tf.bitcast(x, dtype), lambda grad: tf.bitcast(grad, was)

    return cast(tensor)


def broadcast(tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set):
    """The root rank's tensor, on every rank; shape and dtype are the same on all.

    Of every dtype that has a fixed width, complex numbers and unsigned ones of 32 and 64 bits included.
    """
    source, tensor = tensor, tf.convert_to_tensor(tensor)
    moved_as = _MOVED_AS.get(tensor.dtype)
    output = _run(
        "broadcast",
        library.hvd_broadcast,
        [source],
        name,
        process_set,
        tensor=tensor if moved_as is None else _bits_as(moved_as, tensor),
        root_rank=root_rank,
        ignore_name_scope=ignore_name_scope,
    )
    return output if moved_as is None else _bits_as(tensor.dtype, output)


@ops.RegisterGradient("HvdBroadcast")
def _broadcast_grad(op, grad):
    """The average of all ranks' gradients on the root rank, zero elsewhere."""
    reduced = _average(grad, _place(op))
    if _native.rank() == op.get_attr("root_rank"):
        return reduced
    with tf.control_dependencies([reduced]):  # it has to run here too
        return tf.zeros_like(grad)


@in_turn()
def broadcast_(variables, root_rank, name=None, process_set=global_process_set):
    """Gives variables the root rank's values; returns what they are then."""
    variables = list(variables)
    resource = [resource_variable_ops.is_resource_variable(variable) for variable in variables]
    if any(resource) and not all(resource):
        raise ValueError(
            "All variables passed to broadcast_() should be of the same kind, resource or reference"
        )

    def value_of(variable):
        of = f"{name or 'HorovodBroadcastInplace'}_{_normalize_name(variable.name)}"
        return broadcast(variable, root_rank, name=of, process_set=process_set)

    if not all(resource):
        return [tf.compat.v1.assign(variable, value_of(variable)) for variable in variables]
    assigned = [variable.assign(value_of(variable), read_value=False) for variable in variables]
    with tf.control_dependencies([op for op in assigned if op is not None]):
        return [variable.read_value() for variable in variables]


# --- alltoall ------------------------------------------------------------------------------------


def alltoall(tensor, splits=None, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Sends splits[i] rows of dimension 0 to the i-th rank, without splits as many to each.

    Returns what came, in the order of ranks; with splits given, (that, how many rows came from each).
    """
    tensor = tf.convert_to_tensor(tensor)
    rows = tf.convert_to_tensor([] if splits is None else splits, dtype_hint=tf.int32)
    if rows.dtype.is_integer and rows.dtype != tf.int32:
        rows = tf.cast(rows, tf.int32)
    output, received = _run(
        "alltoall",
        library.hvd_alltoall,
        [tensor],
        name,
        process_set,
        tensor=tensor,
        splits=rows,
        ignore_name_scope=ignore_name_scope,
    )
    return output if splits is None else (output, received)


@ops.RegisterGradient("HvdAlltoall")
def _alltoall_grad(op, grad, _grad_of_splits):
    """Every row's gradient is sent back to the rank of the row."""
    back, _ = alltoall(grad, splits=op.outputs[1], **_place(op))
    return [back, None]


# --- reducescatter -------------------------------------------------------------------------------


def _check_scatter_op(op):
    if op == Adasum:
        raise NotImplementedError("reducescatter does not support op=hvd.Adasum; use hvd.allreduce")


def _reducescatter(
    tensor,
    name=None,
    op=Sum,
    ignore_name_scope=False,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """Reduces a tensor over all ranks, of which each gets its rows of dimension 0.

    The first dim0 % size ranks get one row more.
    """
    _check_scatter_op(op)
    source, tensor = tensor, tf.convert_to_tensor(tensor)
    return _run(
        "reducescatter",
        library.hvd_reducescatter,
        [source],
        name,
        process_set,
        tensor=tensor,
        **_reduction(op, prescale_factor, postscale_factor),
        ignore_name_scope=ignore_name_scope,
    )


def _gathered_scaled(op, grad):
    """The allgather of a reducescatter's gradient; of a sum, times the ranks, as Horovod's."""
    like = _like(op)
    scale = like["prescale_factor"] * like["postscale_factor"]
    if like["op"] == Sum:
        scale *= _native.set_size(like["process_set"])
    if scale != 1.0:
        grad *= tf.cast(scale, grad.dtype)
    return allgather(grad, **_place(op))


@ops.RegisterGradient("HvdReducescatter")
def _reducescatter_grad(op, grad):
    return _gathered_scaled(op, grad)


def _grouped_reducescatter(
    tensors,
    name=None,
    op=Sum,
    ignore_name_scope=False,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """A reducescatter of each of a list of tensors, all or none of which travel."""
    _check_scatter_op(op)
    sources, tensors = tensors, _tensors(tensors)
    if not tensors:
        return []
    return _run(
        "grouped_reducescatter",
        library.hvd_grouped_reducescatter,
        sources,
        name,
        process_set,
        tensors=tensors,
        **_reduction(op, prescale_factor, postscale_factor),
        ignore_name_scope=ignore_name_scope,
    )


@ops.RegisterGradient("HvdGroupedReducescatter")
def _grouped_reducescatter_grad(op, *grads):
    return [_gathered_scaled(op, grad) for grad in _of_dtypes(op, grads)]


# --- without data --------------------------------------------------------------------------------


def join():
    """For a rank without more data: until all have joined it takes part in allreduces with zeros.

    Returns the rank that joined last, as an integer scalar. In a process that uses another framework too,
    join eagerly: a join in a graph does not reset that framework's automatic names.
    """

    def function(process_set_id, tensor_name="", **attributes):
        return library.hvd_join(**attributes)

    last = _run("join", function, [], None, global_process_set)
    if tf.executing_eagerly():
        handles.has_joined()
    return last


def barrier(process_set=global_process_set, name=None):
    """Eagerly, returns when all ranks of the process set have called it; in a graph, an operation."""
    return _run("barrier", library.hvd_barrier, [], name, process_set)


# --- numbers that are read when the graph runs ------------------------------------------------


def size_op(process_set_id=0, name=None):
    """The number of ranks (of a process set, by its process_set_id), when the graph runs."""
    return library.hvd_size(process_set_id=id_of_number(process_set_id), name=name)


def process_set_included_op(process_set_id=0, name=None):
    """1 if this rank is in the process set, 0 if not, -2 if the set does not exist; read when the graph
    runs."""
    return library.hvd_process_set_included(process_set_id=id_of_number(process_set_id), name=name)


def local_size_op(name=None):
    """The number of ranks on this host, when the graph runs."""
    return library.hvd_local_size(name=name)


def rank_op(name=None):
    """This process' rank, when the graph runs."""
    return library.hvd_rank(name=name)


def local_rank_op(name=None):
    """This process' rank on its host, when the graph runs."""
    return library.hvd_local_rank(name=name)


for _name in ("HvdSize", "HvdProcessSetIncluded", "HvdLocalSize", "HvdRank", "HvdLocalRank", "HvdJoin"):
    ops.NotDifferentiable(_name)
