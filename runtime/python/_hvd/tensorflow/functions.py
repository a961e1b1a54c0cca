# SPDX-License-Identifier: Apache-2.0
"""Variables and Python objects of one rank for all: broadcast_variables, broadcast_object and the like.

Objects are sent by the runtime itself (_hvd/objects.py), at once, without an operation of TensorFlow. So
they need no session, and work the same with and without eager execution.
"""

import functools
import warnings

import tensorflow as tf

from _hvd import objects
from _hvd.process_sets import global_process_set, process_set_id
from _hvd.tensorflow.completion import in_turn
from _hvd.tensorflow.mpi_ops import _normalize_name, broadcast, broadcast_
from _hvd.tensorflow.util import inner_variable


def _names(variables):
    """Of operations: by variable, so that the order in which a rank lists them does not matter."""
    return tuple(_normalize_name(f"HorovodBroadcast_{variable.name}") for variable in variables)


def _assign_from(variable, name, root_rank, process_set):
    """An operation, or its effect: the variable takes the root's value."""
    return variable.assign(broadcast(variable, root_rank, name=name, process_set=process_set))


@functools.lru_cache(maxsize=64)
def _broadcast_function(root_rank, process_set, set_id):
    """All at once, eagerly: independent operations of one function overlap."""
    del set_id  # only part of the key: a set that was registered again has another

    def broadcast_group(variables, names):
        for variable, name in zip(variables, names):
            _assign_from(variable, name, root_rank, process_set)

    return tf.function(broadcast_group, autograph=False)


def _of_one_kind(variables):
    """Lists of variables that broadcast_() takes together: on one device, all resources or none."""
    lists = {}
    for variable in variables:
        kind = (variable.device, hasattr(variable, "handle"))
        lists.setdefault(kind, []).append(variable)
    return lists.values()


@in_turn()
def broadcast_variables(variables, root_rank, process_set=global_process_set, inplace=False):
    """Copies the root rank's values to the variables of all ranks, which are paired by name.

    variables: any iterable of tf.Variable, or of Keras' variables; those of one name are paired by their
    order. In graphs it returns an operation to run. inplace: avoid a second copy of the variables in
    memory, as far as TensorFlow allows.
    """
    set_id = process_set_id(process_set)
    # in one order on all ranks, for where operations block and run one after another
    variables = sorted((inner_variable(v) for v in variables), key=lambda v: v.name)
    if inplace:
        results = [broadcast_(some, root_rank, process_set=process_set) for some in _of_one_kind(variables)]
    elif tf.executing_eagerly():
        function = _broadcast_function(root_rank, process_set, set_id)
        results = function(variables, _names(variables)) if variables else None
    else:
        named = zip(variables, _names(variables))
        results = [_assign_from(v, name, root_rank, process_set) for v, name in named]
    return None if tf.executing_eagerly() else tf.group(*results)


@in_turn()
def broadcast_as_named(variables, names, root_rank):
    """As broadcast_variables() does eagerly, for variables whose own names the ranks do not share."""
    set_id = process_set_id(global_process_set)
    _broadcast_function(root_rank, global_process_set, set_id)(variables, tuple(names))


def broadcast_global_variables(root_rank):
    """An operation of TensorFlow 1's graphs: all global variables take the root rank's values."""
    variables = [] if tf.executing_eagerly() else tf.compat.v1.global_variables()
    if tf.executing_eagerly() or (tf.inside_function() and not variables):
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    if not variables:
        warnings.warn(
            "hvd.broadcast_global_variables() found no variables in this graph: call it after the model "
            "and the optimizer have been created",
            stacklevel=2,
        )
    return broadcast_variables(variables, root_rank)


def _check_moment(name):
    """A tf.function runs its Python once, when it is traced: what it fetches then is old later."""
    if tf.inside_function():
        raise RuntimeError(
            f"hvd.{name}() inside a tf.function would run once, when it is traced; call it outside of it"
        )


def broadcast_object(obj, root_rank=0, session=None, name=None, process_set=global_process_set):
    """The root rank's obj, on every rank. session: not needed, whatever it is."""
    _check_moment("broadcast_object")
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(root_rank=0, session=None, name=None, process_set=global_process_set):
    """broadcast_object as a function of the object alone."""

    def broadcast_one(obj):
        return broadcast_object(obj, root_rank, session, name, process_set)

    return broadcast_one


def allgather_object(obj, session=None, name=None, process_set=global_process_set):
    """List of every rank's obj, in rank order. session: not needed, whatever it is."""
    _check_moment("allgather_object")
    return objects.allgather_object(obj, name, process_set)


__all__ = [
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]
