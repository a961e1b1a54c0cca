# SPDX-License-Identifier: Apache-2.0
"""Loads the library of operations (runtime/tensorflow), and decides how they complete in this TensorFlow.

An operation completes asynchronously through a copy of TensorFlow's completion callback. A self-test at the
first operation checks that the copy works in this TensorFlow. (At import it would start TensorFlow's
devices before the script can choose its GPU by hvd.local_rank().) If the test fails, operations block
instead and run one after another in program order, which must be the same on all ranks.

Kernels for GPUs are registered at the first operation too, if TensorFlow sees a GPU and the runtime can
reduce tensors there. Otherwise TensorFlow copies tensors on a GPU through host memory.
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

COLLECTIVES = {  # the operations that need no order; HvdBarrier and HvdJoin need one
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
    """Adds the collectives to TensorFlow's list of stateful operations that must run, in any order.

    tf.function chains all other stateful operations in program order. If it chained the collectives, no two
    could share a batch, and ranks that call them in different orders would wait for each other forever.
    In a TensorFlow without this list they are chained, so all ranks need the same order.
    """
    from tensorflow.python.framework import auto_control_deps

    names = getattr(auto_control_deps, "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS", None)
    if isinstance(names, frozenset):
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = names | COLLECTIVES


def _use_gpu():
    """Registers the kernels for GPUs if they can be used. This opens the driver, as TensorFlow has done.

    A TensorFlow that is built for GPUs but sees none registers them too, so that the other ranks report why
    this one has no GPU.
    """
    sees = bool(tf.config.list_physical_devices("GPU"))
    if not (sees or tf.test.is_built_with_cuda()) or ctypes.CDLL(_PATH).hvd_tf_use_gpu() or not sees:
        return
    if gpu.problem() != "HVD_GPU=off":
        _log.warning("tensors on GPUs are copied via host memory: %s", gpu.problem())


@functools.lru_cache(maxsize=None)
def is_async():
    """Whether operations complete asynchronously. Decided once, before the first operation is created, and
    the same for the life of the process. HVD_TF_BLOCKING=1 makes it False."""
    _use_gpu()
    blocks = os.environ.get("HVD_TF_BLOCKING", "").strip().lower() in ("1", "true", "yes", "on")
    works = not blocks and _completes()
    if works:
        _free_of_order()
    return works


def _completes():
    """Whether an asynchronous operation completes, eagerly and in a graph: the self-test.

    Without eager execution it returns True untested: a session would fix TensorFlow's thread counts before
    the script can. Every operation also checks the layout of the callback before it stores it.
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
    """Returns 'asynchronous' or 'blocking': see is_async()."""
    return "asynchronous" if is_async() else "blocking"


# --- order within a graph --------------------------------------------------------------------------
#
# tf.function       asynchronous: any order, except that join and barrier are fences;
#                   blocking: TensorFlow chains them, and the branches, loops and functions around them
# v1 graphs         asynchronous: any order; the script adds control_dependencies where it needs them.
#                   session.run() runs only what it fetches, so a dependency added here would also run
#                   operations that were built before and are not fetched.
#                   blocking: the operations of one call (the gradients of an optimizer) are chained. They
#                   run together anyway.


class _Order:
    """The last fence and the operations since then, as weak references.

    There is one for each graph, and one for each branch or loop of TensorFlow 1 in it: an operation outside
    must not wait for one in a branch that is not taken.
    """

    def __init__(self):
        self.fence = None
        self.since = []


_orders = (
    weakref.WeakKeyDictionary()
)  # {graph: {place: _Order}}; _Order has weak references because an operation references its graph
_call = threading.local()  # .orders: likewise, for the operations of this thread's outermost in_turn()


@contextlib.contextmanager
def in_turn():
    """Decorator or context: in a v1 graph, the operations created within run one by one if they block.

    Otherwise they could occupy TensorFlow's few threads in a different order on each rank, and wait for
    each other forever. Contexts may be nested; the outermost one counts.
    """
    outer = getattr(_call, "orders", None)
    _call.orders = {} if outer is None else outer
    try:
        yield
    finally:
        _call.orders = outer


_calls = weakref.WeakKeyDictionary()  # {v1 graph: number of calls that block independently}


def _count_call(graph):
    """Counts a call that blocks; warns once for a graph that may need more threads than a session has."""
    _calls[graph] = _calls.get(graph, 0) + 1
    threads = len(os.sched_getaffinity(0))  # as TensorFlow counts
    if _calls[graph] == threads + 1:
        warnings.warn(
            f"TensorFlow {tf.__version__} lets a call of hvd hold a thread of the session until all ranks "
            "have reached it, and this graph has more calls than a session has threads by default "
            f"({threads}): if more may be under way at once, make the session with as many, by "
            "config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=), or ranks may wait forever",
            stacklevel=6,
        )


def make_in_graph(function, is_fence, **attributes):
    """Returns function(**attributes), which creates an operation in the default graph, in the order of the
    table above.

    is_fence: for a join or barrier, which runs after the operations created before it and before those
    created later.
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
