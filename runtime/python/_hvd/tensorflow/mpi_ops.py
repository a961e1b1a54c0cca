# SPDX-License-Identifier: Apache-2.0
"""The TensorFlow operation behind allreduce, its gradient, and the self-test of completion.

The operation lives in libhvd_tf.so (runtime/tensorflow/hvd_tf.c), one binary for all TensorFlow
versions. It completes asynchronously through a copy of TensorFlow's completion callback; whether
that copy works in this TensorFlow is tried once, at the first operation: trying it at import would
start TensorFlow's devices before the script could choose its GPU by hvd.local_rank(). Where it does
not work, operations block instead, and those of one graph are chained so that all ranks run them in
one order.
"""

import functools
import os
import re
import weakref

import tensorflow as tf
from tensorflow.python.framework import ops

_library = tf.load_op_library(
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libhvd_tf.so")
)


@functools.lru_cache(maxsize=None)
def _is_async():
    """Does the asynchronous operation complete, eagerly and in a graph? Tried once."""
    if os.environ.get("HVD_TF_BLOCKING") == "1":
        return False
    try:
        with tf.init_scope():
            if not tf.executing_eagerly():
                return _session_test()
            with tf.device("CPU:0"):
                eager = _library.hvd_self_test(x=41)
                graph = tf.function(lambda x: _library.hvd_self_test(x=x))(tf.constant(41))
            return int(eager) == 42 and int(graph) == 42
    except tf.errors.OpError:
        return False


def _session_test():
    """The same where eager execution is off; opens no GPU."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        result = _library.hvd_self_test(x=41)
        with v1.Session(config=v1.ConfigProto(device_count={"GPU": 0})) as session:
            return int(session.run(result)) == 42


_last_in_graph = weakref.WeakKeyDictionary()


def completion_mode():
    """'asynchronous', or 'blocking' when this TensorFlow failed the self-test."""
    return "asynchronous" if _is_async() else "blocking"


def _normalize_name(name):
    """Normalizes operation name to TensorFlow rules."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _apply(tensor, name, node_name, op, prescale_factor, postscale_factor, set_id):
    return _library.hvd_allreduce(
        tensor=tensor,
        reduce_op=op,
        process_set_id=set_id,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        tensor_name=name or "",
        eager=tf.executing_eagerly(),
        blocking=not _is_async(),
        name=node_name,
    )


def allreduce_op(tensor, name, op, prescale_factor, postscale_factor, set_id):
    """The raw operation on a dense tensor. name: None for an automatic one."""
    if tf.executing_eagerly():
        return _apply(tensor, name, None, op, prescale_factor, postscale_factor, set_id)
    node_name = f"HorovodAllreduce_{_normalize_name(name or tensor.name)}"
    args = (tensor, name, node_name, op, prescale_factor, postscale_factor, set_id)
    if _is_async():
        return _apply(*args)
    graph = tf.compat.v1.get_default_graph()
    before = _last_in_graph.get(graph)
    with tf.control_dependencies([before()] if before is not None and before() is not None else []):
        result = _apply(*args)
    _last_in_graph[graph] = weakref.ref(result.op)
    return result


@ops.RegisterGradient("HvdAllreduce")
def _allreduce_grad(op, grad):
    """The gradient of an allreduce is the same allreduce of the gradient."""
    name = op.get_attr("tensor_name")
    return allreduce_op(
        grad,
        name.decode() + ".grad" if name else None,
        op.get_attr("reduce_op"),
        op.get_attr("prescale_factor"),
        op.get_attr("postscale_factor"),
        op.get_attr("process_set_id"),
    )


__all__ = ["completion_mode"]
