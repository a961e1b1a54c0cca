# SPDX-License-Identifier: Apache-2.0
"""Helpers that scripts, and Horovod's own tests, import from ``horovod.tensorflow.util``."""

import functools

import tensorflow as tf


def _leave_to_python():
    """Excludes our modules from AutoGraph, which rewrites all functions that a tf.function calls.

    Rewriting costs a second for the first traced function, and error traces would show generated files.
    """
    try:
        from tensorflow.python.autograph.core import config

        config.CONVERSION_RULES = (config.DoNotConvert("_hvd"), *config.CONVERSION_RULES)
    except (ImportError, AttributeError):
        pass  # rewriting is harmless


_leave_to_python()


def _executing_eagerly():
    """Whether operations run at once here, not as nodes of a graph."""
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
