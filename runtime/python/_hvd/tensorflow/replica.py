# SPDX-License-Identifier: Apache-2.0
"""Variables of TensorFlow for the replica guard (_hvd/replica.py), and hvd.check_replicas().

In a tf.function a Python function is called after the variables have their new values; it reads them as
eager code does. Names of variables count those of a process and differ between ranks, so they are only
shown.
"""

import tensorflow as tf

from _hvd import replica
from _hvd.process_sets import global_process_set


def values_of(variables, names=None):
    names = names or [v.name for v in variables]
    return [_value(v, name) for v, name in zip(variables, names)]


def _value(variable, name):
    def array():
        return variable.read_value().numpy() if hasattr(variable, "read_value") else variable.numpy()

    return replica.array_value(name, variable.dtype.as_numpy_dtype().dtype, variable.shape, array)


def after_assignments(variables, function):
    """Calls function() once these variables have the values that the program has assigned before: now, or
    in each run of the tf.function that is being traced. Not in graphs of TensorFlow 1 nor within a strategy
    of TensorFlow, whose replicas take a step together."""
    if tf.distribute.has_strategy():
        return
    if tf.executing_eagerly():
        function()
    elif tf.compat.v1.executing_eagerly_outside_functions():
        with tf.control_dependencies([v.read_value() for v in variables]):
            tf.py_function(function, [], [])


def check_replicas(variables, process_set=global_process_set):
    """Compares variables over the ranks, bit by bit; HorovodInternalError on all ranks if they differ.

    For models without a DistributedOptimizer; independent of HVD_REPLICA_CHECK. Not within a tf.function.
    variables: an iterable, such as model.trainable_variables, in the same order on all ranks of the set.
    """
    if process_set.included() and process_set.size() > 1:
        inner = [getattr(v, "value", v) if not isinstance(v, tf.Variable) else v for v in variables]
        replica.check(values_of(inner), process_set)


__all__ = ["check_replicas"]
