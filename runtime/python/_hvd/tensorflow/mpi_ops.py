# SPDX-License-Identifier: Apache-2.0
"""The collectives of TensorFlow and their gradients: eagerly, in tf.function and in v1 graphs.

The operations are in libhvd_tf.so (runtime/tensorflow). The operations of the ranks are matched by name. In
a graph that is the node's name: the argument `name`, which TensorFlow makes unique, or one derived from the
tensor's name. Eagerly it is `name`, or without it the order of calls. The gradients are those of Horovod.

Common to all functions here: tensors may be of any type that tf.convert_to_tensor() accepts. The result is
a new tensor. In a graph the call creates an operation; eagerly it runs, and returns before it has completed
where is_async() is True. ValueError: the process set does not exist. NotImplementedError: inside XLA or a
tf.distribute replica. When the world is lost, an eager operation raises WorldLost, and a graph raises
tf.errors.UnknownError; hvd.elastic.run handles both.
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
    """The world was lost during an eager operation. It is both Horovod's error and TensorFlow's."""

    def __init__(self, node_def, op, message, *args):
        tf.errors.UnknownError.__init__(self, node_def, op, message, *args)

    __str__ = tf.errors.UnknownError.__str__


def _refuse_xla(kind):
    """Raises NotImplementedError if XLA compiles this graph: compiled code cannot wait for processes."""
    graph = tf.compat.v1.get_default_graph()
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise NotImplementedError(
            f"hvd.{kind}() cannot be compiled by XLA: leave out jit_compile=True of the tf.function (or "
            "model.compile()) that calls it, and mark functions within it that do the computing instead"
        )


def _refuse_side_by_side(kind):
    """Raises ValueError in a loop of TensorFlow 1 that runs too many iterations in parallel.

    A tensor's name has only the number of the innermost iteration, modulo 64. So the innermost loop may run
    64 iterations in parallel, each loop around it one. Iterations in TensorFlow 2 wait for each other.
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
    """Returns the name with every character but letters, digits and _ replaced by _."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _node_name(name):
    """Returns the user's name as one that TensorFlow accepts for a node; most names are unchanged."""
    name = re.sub(r"[^a-zA-Z0-9_.\\/>-]", "_", name)
    return name if re.match("[a-zA-Z0-9.]", name) else f"hvd{name}"


def _name_of(tensor):
    """Returns a tensor's name, the same on all ranks.

    An eager tensor that a graph captures has no name, or a number that counts objects: it is "captured".
    """
    try:
        name = tensor.name or "captured"
    except AttributeError:
        return "captured"
    return "captured" if re.fullmatch(r"\d+(:\d+)?", name) else name


@functools.lru_cache(maxsize=64)
def _bits(value):
    """Returns the 64 bits of a double as an integer: a float attribute of an operation has only 32."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def _float_of(bits):
    return struct.unpack("<d", struct.pack("<q", bits))[0]


def _reduction(op, prescale_factor, postscale_factor):
    """Returns the attributes that all reducing operations have."""
    factors = {"prescale_bits": prescale_factor, "postscale_bits": postscale_factor}
    return {"reduce_op": op, **{name: _bits(float(factor)) for name, factor in factors.items()}}


def _place(op):
    """Returns op's process set and name scope, as keyword arguments for the operations of its gradient."""
    return {
        "ignore_name_scope": op.get_attr("ignore_name_scope"),
        "process_set": op.get_attr("process_set_id"),
    }


def _source(tensor):
    """Returns the object whose name is used for a tensor: for the value of a variable, the variable.

    The name of the read operation has a number, which depends on a rank's other reads. In a tf.function the
    read does not lead to an outer variable, so callers pass the user's argument, not the converted tensor.
    """
    op = getattr(tensor, "op", None)
    if op is not None and op.type == "ReadVariableOp" and op.inputs[0].op.type == "VarHandleOp":
        return op.inputs[0]
    return tensor


def _run(kind, function, inputs, name, process_set, /, **attributes):
    """Creates one operation of a graph, or eagerly runs it; returns its output tensors.

    kind: the function's name, for error messages. function: the operation of `library`.
    inputs: a list; in a graph, an operation without a name is named after them.
    name: None for an automatic name. process_set: its id or the object.
    attributes: the inputs and attributes of the operation.
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
    """Reduces a dense tensor over all ranks. Shape and dtype are the same on all ranks and in the result.
    op: hvd.Average, Sum, Min, Max, Product or Adasum. prescale_factor, postscale_factor: factors of the
    inputs and of the result. compression: the runtime's name of a codec ("int8"), the same on all ranks;
    "": that of HVD_COMPRESSION; "none": uncompressed.
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
    """Returns the average of a gradient, never compressed: HVD_COMPRESSION does not apply."""
    return _allreduce(grad, op=Average, compression="none", **place)


def _like(op):
    """Returns the arguments that reduce a gradient as op reduced its input."""
    return {
        "op": op.get_attr("reduce_op"),
        "prescale_factor": _float_of(op.get_attr("prescale_bits")),
        "postscale_factor": _float_of(op.get_attr("postscale_bits")),
        **_place(op),
    }


@ops.RegisterGradient("HvdAllreduce")
def _allreduce_grad(op, grad):
    """Reduces the gradient like the input."""
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
    """Reduces a list of tensors, which may differ in shape and dtype; returns a list in their order.

    The runtime reduces all of them or, after an error, none. The arguments are those of _allreduce().
    """
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
    """Casts gradients to the dtypes of the inputs: for unused outputs, TensorFlow passes others."""
    return [tf.cast(grad, x.dtype) for grad, x in zip(grads, op.inputs)]


@ops.RegisterGradient("HvdGroupedAllreduce")
def _grouped_allreduce_grad(op, *grads):
    """Reduces the gradients like the inputs."""
    return _grouped_allreduce(_of_dtypes(op, grads), **_like(op))


# --- allgather -----------------------------------------------------------------------------------


def allgather(tensor, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Concatenates the tensors of all ranks along dimension 0, in the order of ranks.

    Dimension 0 may differ between ranks; the other dimensions and the dtype are the same.
    """
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
    """Returns this rank's rows, those of its input x, of the averaged gradient of an allgather."""
    reduced = _average(grad, place)
    with tf.device("/cpu:0"):
        mine = tf.shape(x)[:1]
        rows = allgather(mine, **place)
        begin = tf.reduce_sum(rows[: _native.set_rank(place["process_set"])])
    return tf.ensure_shape(reduced[begin : begin + mine[0]], x.shape)


@ops.RegisterGradient("HvdAllgather")
def _allgather_grad(op, grad):
    """Returns the average over all ranks of the gradient of this rank's input."""
    return _rows_of_mine(op.inputs[0], grad, _place(op))


def grouped_allgather(tensors, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Gathers each of a list of tensors; returns a list in their order. All are gathered, or none."""
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
    """Returns the gradient of allgather for each input."""
    place = _place(op)
    return [_rows_of_mine(x, grad, place) for x, grad in zip(op.inputs, _of_dtypes(op, grads))]


# --- broadcast -----------------------------------------------------------------------------------


# broadcast() sends these dtypes as one of the same width that the runtime has.
_MOVED_AS = {
    tf.uint32: tf.int32,
    tf.uint64: tf.int64,
    tf.complex64: tf.float32,
    tf.complex128: tf.float64,
}


def _bits_as(dtype, tensor):
    """Returns tf.bitcast(tensor, dtype), with a gradient."""
    was = tensor.dtype

    @tf.custom_gradient
    def cast(x):
        return tf.bitcast(x, dtype), lambda grad: tf.bitcast(grad, was)

    return cast(tensor)


def broadcast(tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Returns the tensor of the root rank on every rank. Shape and dtype are the same on all ranks.

    root_rank: a rank of the world, also in a smaller process set. Every dtype of a fixed width is accepted,
    including complex numbers and unsigned integers of 32 and 64 bits.
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
    """Returns the average of all ranks' gradients on the root rank, zeros on the other ranks."""
    reduced = _average(grad, _place(op))
    if _native.rank() == op.get_attr("root_rank"):
        return reduced
    with tf.control_dependencies([reduced]):  # every rank must run the allreduce
        return tf.zeros_like(grad)


@in_turn()
def broadcast_(variables, root_rank, name=None, process_set=global_process_set):
    """Assigns the root rank's values to variables; returns the list of the new values as tensors.

    Raises ValueError if the variables are neither all resource variables nor all reference variables.
    """
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
    """Sends splits[i] rows of dimension 0 to the i-th rank; without splits the same number to each rank.

    splits: a vector of integers, one for each rank; their sum is dimension 0.
    Returns the rows received, in the order of ranks. With splits it returns (rows, received_splits), where
    received_splits is an int32 vector: the number of rows from each rank.
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
    """Sends the gradient of every row back to the rank that the row is from."""
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
    """Reduces a tensor over all ranks; each rank receives its share of the rows (dimension 0).

    Shape and dtype are the same on all ranks. The first dim0 % size ranks receive one row more than the
    rest. The other arguments are those of _allreduce(). Raises NotImplementedError for op=hvd.Adasum.
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
    """Returns the allgather of a reducescatter's gradient; for a sum, times the number of ranks."""
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
    """Reduces and scatters each of a list of tensors; returns a list in their order. All, or none."""
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
    """Waits until all ranks have joined; until then this rank contributes zeros to their allreduces.

    For a rank that has no more data. Returns the rank that joined last, as an int32 scalar. In a process
    that also uses another framework, call it eagerly: in a graph it does not reset that framework's
    automatic names.
    """

    def function(process_set_id, tensor_name="", **attributes):
        return library.hvd_join(**attributes)

    last = _run("join", function, [], None, global_process_set)
    if tf.executing_eagerly():
        handles.has_joined()
    return last


def barrier(process_set=global_process_set, name=None):
    """Returns when all ranks of the process set have called it; in a graph, an operation that waits so."""
    return _run("barrier", library.hvd_barrier, [], name, process_set)


# --- numbers that are read when the graph runs ------------------------------------------------


def size_op(process_set_id=0, name=None):
    """Returns the number of ranks of a process set, an int32 scalar that is read when the graph runs."""
    return library.hvd_size(process_set_id=id_of_number(process_set_id), name=name)


def process_set_included_op(process_set_id=0, name=None):
    """Returns 1 if this rank is in the set, 0 if not, -2 if there is none; read when the graph runs."""
    return library.hvd_process_set_included(process_set_id=id_of_number(process_set_id), name=name)


def local_size_op(name=None):
    """Returns the number of ranks on this host, an int32 scalar that is read when the graph runs."""
    return library.hvd_local_size(name=name)


def rank_op(name=None):
    """Returns this process' rank, an int32 scalar that is read when the graph runs."""
    return library.hvd_rank(name=name)


def local_rank_op(name=None):
    """Returns this process' rank on its host, an int32 scalar that is read when the graph runs."""
    return library.hvd_local_rank(name=name)


for _name in ("HvdSize", "HvdProcessSetIncluded", "HvdLocalSize", "HvdRank", "HvdLocalRank", "HvdJoin"):
    ops.NotDifferentiable(_name)
