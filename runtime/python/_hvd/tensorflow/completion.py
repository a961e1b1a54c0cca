# SPDX-License-Identifier: Apache-2.0
"""The library of operations (runtime/tensorflow), and how they complete in this TensorFlow.

An operation completes asynchronously through a copy of TensorFlow's completion callback; whether that copy
works in this TensorFlow is tested once, at the first operation. A test at import would start TensorFlow's
devices before the script could choose its GPU by hvd.local_rank(). If it fails, operations block instead
and run one after another in program order, equal on all ranks.

Kernels for GPUs are registered at the first operation too, if TensorFlow sees a GPU and tensors there can
travel. Otherwise TensorFlow copies tensors on a GPU through host memory.
"""

import contextlib
import ctypes
import functools
import logging
import os
import threading
import warnings
import weakref

import tensorflow as tf

from _hvd import gpu

_log = logging.getLogger("horovod.tensorflow")
_PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libhvd_tf.so")
try:
    library = tf.load_op_library(_PATH)
except tf.errors.NotFoundError as e:
    if "undefined symbol" not in str(e):
        raise
    raise ImportError(
        f"horovod.tensorflow cannot work with TensorFlow {tf.__version__}, which lacks a part of the C "
        f"interface that TensorFlow 2.12 has; install a newer one ({e.message})"
    ) from None

gpu.hint_at_wheel()

COLLECTIVES = {  # that need no order; HvdBarrier and HvdJoin do
    "HvdAllgather",
    "HvdAllreduce",
    "HvdAlltoall",
    "HvdBroadcast",
    "HvdGroupedAllgather",
    "HvdGroupedAllreduce",
    "HvdGroupedReducescatter",
    "HvdReducescatter",
}


def _free_of_order():
    """Tells tf.function that collectives must run but need not follow each other.

    It chains stateful operations in the order of the program, looking at this list when the function's
    Python has run; then no two would travel together, and ranks that call them in different order would
    wait for each other for ever. Where TensorFlow has no such list any more they are chained, which is
    right on ranks of one order.
    """
    from tensorflow.python.framework import auto_control_deps

    names = getattr(auto_control_deps, "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS", None)
    if isinstance(names, frozenset):
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = names | COLLECTIVES


def _use_gpu():
    """Registers kernels for GPUs if they can be used; opens the driver, as TensorFlow has.

    Also called by a TensorFlow built for GPUs that sees none, so that other ranks report the reason.
    """
    sees = bool(tf.config.list_physical_devices("GPU"))
    if not (sees or tf.test.is_built_with_cuda()) or ctypes.CDLL(_PATH).hvd_tf_use_gpu() or not sees:
        return
    if gpu.problem() != "HVD_GPU=off":
        _log.warning("tensors on GPUs travel by way of host memory: %s", gpu.problem())


@functools.lru_cache(maxsize=None)
def is_async():
    """Whether operations complete asynchronously. Decided once, before the first is created."""
    _use_gpu()
    blocks = os.environ.get("HVD_TF_BLOCKING", "").strip().lower() in ("1", "true", "yes", "on")
    works = not blocks and _completes()
    if works:
        _free_of_order()
    return works


def _completes():
    """Whether an asynchronous operation completes, eagerly and in a graph.

    Not tested without eager execution: a session would fix TensorFlow's numbers of threads before the
    script does. Every operation checks the callback's layout before it keeps it.
    """
    test = getattr(library, "hvd_self_test", None)
    if test is None:
        return False  # TensorFlow 2.12 has no asynchronous kernels
    try:
        with tf.init_scope():
            if not tf.executing_eagerly():
                return True
            with tf.device("CPU:0"):
                eager = test(x=41)
                graph = tf.function(lambda x: test(x=x))(tf.constant(41))
            return int(eager) == 42 and int(graph) == 42
    except tf.errors.OpError:
        return False


def completion_mode():
    """'asynchronous', or 'blocking' when this TensorFlow failed the self-test."""
    return "asynchronous" if is_async() else "blocking"


# --- order within a graph --------------------------------------------------------------------------
#
# tf.function       asynchronous: free, but for join and barrier, which keep their place among the others;
#                   blocking: TensorFlow chains them, with the branches, loops and functions that hold some
# v1 graphs         as the script says, by control_dependencies: session.run() runs what it is asked for, so
#                   whatever depended on what was built before would run that too. Blocking: those of one
#                   call (the gradients of an optimizer), which run together anyway, are chained.


class _Order:
    """The last fence and the operations since, of a graph or of one branch or loop of TensorFlow 1 in it:
    nothing outside may wait for an operation in a branch that is not taken.
    """

    def __init__(self):
        self.fence = None
        self.since = []


_orders = (
    weakref.WeakKeyDictionary()
)  # graph -> {place: _Order}; weak references in it too: an operation has its graph
_call = threading.local()  # .orders: the same of what the outermost in_turn() of this thread makes


@contextlib.contextmanager
def in_turn():
    """For a function that creates several operations: in a v1 graph they run one by one where they block.

    In free order they could fill TensorFlow's few threads differently on each rank and wait for each other
    for ever.
    """
    outer = getattr(_call, "orders", None)
    _call.orders = {} if outer is None else outer
    try:
        yield
    finally:
        _call.orders = outer


_calls = weakref.WeakKeyDictionary()  # v1 graph -> how many there are that block independently


def _count_call(graph):
    """Warns once for each graph that may need more threads than a session has."""
    _calls[graph] = _calls.get(graph, 0) + 1
    threads = len(os.sched_getaffinity(0))  # as TensorFlow counts
    if _calls[graph] == threads + 1:
        warnings.warn(
            f"TensorFlow {tf.__version__} lets a call of hvd hold a thread of the session until all ranks "
            "have reached it, and this graph has more calls than a session has threads by default "
            f"({threads}): if more may be under way at once, make the session with as many, by "
            "config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=), or ranks may wait for ever",
            stacklevel=6,
        )


def make_in_graph(function, is_fence, **attributes):
    """Creates an operation of a graph, ordered after the collectives created there before.

    is_fence: a join or barrier, which runs after those before it and before those behind it.
    """
    graph = tf.compat.v1.get_default_graph()
    if is_async() != graph.building_function:
        return function(**attributes)
    orders = _orders if is_async() else getattr(_call, "orders", None)
    orders = {} if orders is None else orders  # a call that creates one operation
    place = id(graph._get_control_flow_context())  # lives as long as the operations in it
    order = orders.setdefault(graph, {}).setdefault(place, _Order())
    if not is_async():
        is_fence = True
        if order.fence is None:
            _count_call(graph)
    before = [order.fence, *order.since] if is_fence else [order.fence]
    before = [op for op in (ref and ref() for ref in before) if op is not None]
    with tf.control_dependencies(before) if before else contextlib.nullcontext():
        result = function(**attributes)
    first = result[0] if isinstance(result, (list, tuple)) else result
    made = weakref.ref(getattr(first, "op", first))
    if is_fence:
        order.fence, order.since = made, []
    else:
        order.since.append(made)
    return result
