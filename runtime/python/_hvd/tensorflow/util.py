# SPDX-License-Identifier: Apache-2.0
"""Helpers that scripts, and Horovod's own tests, import from ``horovod.tensorflow.util``."""

import functools

import tensorflow as tf


def _leave_to_python():
    """AutoGraph rewrites what a tf.function calls, libraries too but for those that it knows: now us.

    That would cost a second for the first function that is traced, and fill error traces with its files.
    """
    try:
        from tensorflow.python.autograph.core import config

        config.CONVERSION_RULES = (config.DoNotConvert("_hvd"), *config.CONVERSION_RULES)
    except (ImportError, AttributeError):
        pass  # it does no harm to be rewritten


_leave_to_python()


def _executing_eagerly():
    """Does an operation run at once here, not as a node of a graph?"""
    return tf.executing_eagerly()


def _make_subgraph(f):
    return tf.function(f)


def _cache(f):
    """Calls f once for each set of arguments, eagerly and in graphs each."""
    cache = {}

    @functools.wraps(f)
    def wrapper(*args):
        key = (args, _executing_eagerly())
        if key not in cache:
            cache[key] = f(*args)
        return cache[key]

    return wrapper


def inner_variable(variable):
    """TensorFlow's variable inside one of Keras 3; others as they are."""
    inner = getattr(variable, "value", None)
    return inner if isinstance(inner, tf.Variable) else variable


def vars_to_refs(vars):
    """Hashable references to variables; a list of them becomes a tuple."""
    if isinstance(vars, (list, tuple)):
        return tuple(vars_to_refs(v) for v in vars)
    return vars.ref()


def refs_to_vars(refs):
    """What vars_to_refs was given; a tuple becomes a list."""
    if isinstance(refs, tuple):
        return [refs_to_vars(r) for r in refs]
    return refs.deref()


__all__ = ["refs_to_vars", "vars_to_refs"]
