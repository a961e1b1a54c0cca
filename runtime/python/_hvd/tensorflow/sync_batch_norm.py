# SPDX-License-Identifier: Apache-2.0
"""Batch normalization over the batches of all ranks of a process set, for Keras 2 and Keras 3.

One allgather exchanges each rank's count, mean and sum of squared distances of every channel. They are
combined in rank order by Chan's formula, in the statistics' dtype (float64 for float64 inputs, else
float32), so all ranks get the same bits and nothing cancels as in E[x^2] - E[x]^2. In the backward pass one
allreduce sums the gradients of mean and variance. Batches may differ in size and may be empty.

Operations have names of their own: a layer gets its number when it first meets the other ranks of its
process set in a world, so ranks may have built other models before. Keras' names would differ then.

Both Kerases call _moments() for mean and variance, in training only, and do the rest.
"""

import inspect
import weakref

import tensorflow as tf

from _hvd import basics, handles
from _hvd.absent import absent_class
from _hvd.basics import Sum
from _hvd.process_sets import (
    ProcessSet,
    global_process_set,
    is_elastic,
    process_set_id,
    registered_with,
)
from _hvd.tensorflow.mpi_ops import _allreduce, allgather


def _own(x, axes, mask):
    """Count, mean and sum of squared distances of this rank's values over axes, which stay as ones."""
    if mask is None:
        weights = None
        count = tf.cast(tf.reduce_prod(tf.gather(tf.shape(x), axes)), x.dtype)
    else:
        weights = tf.broadcast_to(tf.cast(tf.cast(mask, tf.bool), x.dtype)[..., None], tf.shape(x))
        count = tf.reduce_sum(weights, axes, keepdims=True)
        x = tf.where(weights > 0, x, tf.zeros_like(x))
    mean = tf.math.divide_no_nan(tf.reduce_sum(x, axes, keepdims=True), count)
    squares = tf.square(x - mean)
    squares = tf.reduce_sum(squares if weights is None else weights * squares, axes, keepdims=True)
    return tf.broadcast_to(count, tf.shape(mean)), mean, squares


_names = weakref.WeakKeyDictionary()  # layer -> ((world, process set), its name there)
_in_graph = weakref.WeakKeyDictionary()  # graph -> {name: operations of this name}


def _name_of(layer):
    set_id = process_set_id(layer.process_set)
    where, name = _names.get(layer, (None, None))
    if where != (handles.world, set_id):
        where, name = (handles.world, set_id), handles.auto_name("sync_batch_norm", set_id)
        _names[layer] = where, name
    return name


def _once(name):
    """The name, another for each operation of a graph with all functions within it."""
    if tf.executing_eagerly():
        return name
    graph = tf.compat.v1.get_default_graph()
    while getattr(getattr(graph, "outer_graph", None), "building_function", False):
        graph = graph.outer_graph
    numbers = _in_graph.setdefault(graph, {})
    numbers[name] = numbers.get(name, 0) + 1
    return f"{name}.{numbers[name]}"


def _joined(count, mean, squares, layer):
    """Mean and variance of all ranks' values, from this rank's part of them."""
    count = tf.stop_gradient(count)
    process_set, name = layer.process_set, _name_of(layer)

    def options(way):
        return {"name": _once(f"{name}.{way}"), "ignore_name_scope": True, "process_set": process_set}

    @tf.custom_gradient
    def join(mean, squares):
        row = tf.stack([tf.reshape(part, [-1]) for part in (count, mean, squares)])
        counts, means, all_squares = tf.unstack(allgather(row[None], **options("forward")), 3, axis=1)
        total = tf.reduce_sum(counts, 0)
        of_all = tf.math.divide_no_nan(tf.reduce_sum(counts * means, 0), total)
        far = tf.reduce_sum(all_squares + counts * tf.square(means - of_all), 0)
        variance = tf.math.divide_no_nan(far, total)

        def gradient(grad_mean, grad_variance):
            mine = tf.stack([tf.reshape(grad_mean, [-1]), tf.reshape(grad_variance, [-1])])
            of_all_ranks = _allreduce(mine, op=Sum, compression="none", **options("backward"))
            of_mean, of_variance = tf.unstack(of_all_ranks)
            for_squares = tf.math.divide_no_nan(of_variance, total)
            for_mean = row[0] * (
                tf.math.divide_no_nan(of_mean, total) + 2 * (row[1] - of_all) * for_squares
            )
            return tf.reshape(for_mean, tf.shape(mean)), tf.reshape(for_squares, tf.shape(mean))

        return (tf.reshape(of_all, tf.shape(mean)), tf.reshape(variance, tf.shape(mean))), gradient

    return join(mean, squares)


def _moments_of_all(x, axes, mask, layer):
    """Mean and variance of x over axes on all ranks; axes stay as ones."""
    process_set = layer.process_set
    if x.dtype in (tf.float16, tf.bfloat16):
        x = tf.cast(x, tf.float32)
    count, mean, squares = _own(x, axes, mask)
    basics.size()  # raises before hvd.init()
    if process_set.size() == 1 and process_set.rank() == 0 and not is_elastic():
        return mean, tf.math.divide_no_nan(squares, count)
    process_set.rank()  # raises outside of the set
    joined = _joined(count, mean, squares, layer)
    return tuple(tf.ensure_shape(value, mean.shape) for value in joined)


def _checked(process_set):
    """A process set, also from the ranks that a saved layer has in its place."""
    return process_set if isinstance(process_set, ProcessSet) else registered_with(process_set)


def _add_updates(updates):
    """Puts what moves the averages where scripts of TensorFlow 1 look for it."""
    key = tf.compat.v1.GraphKeys.UPDATE_OPS
    there = tf.compat.v1.get_collection(key)
    for update in updates:
        if not any(update is other for other in there):
            tf.compat.v1.add_to_collection(key, update)


def _layer(base):
    """The class for this Keras; base: its BatchNormalization."""
    is_keras_2 = "reduction_axes" in inspect.signature(base._moments).parameters
    takes_mask = "mask" in inspect.signature(base.call).parameters

    class SyncBatchNormalization(base):
        """BatchNormalization with the statistics of all ranks' batches in training.

        Arguments as tf.keras.layers.BatchNormalization's, but fused and virtual_batch_size; process_set:
        the ranks that share statistics. All of them call the layer equally often.
        """

        def __init__(self, fused=False, process_set=global_process_set, **kwargs):
            if fused in (True, None):
                raise ValueError("SyncBatchNormalization does not support fused=True.")
            if kwargs.get("virtual_batch_size"):
                raise ValueError(
                    "SyncBatchNormalization does not support virtual_batch_size: it normalizes parts of "
                    "a batch, and this layer the batches of all ranks"
                )
            back_end = tf.keras.backend.backend()
            if back_end != "tensorflow":
                raise ValueError(
                    f"SyncBatchNormalization needs Keras's TensorFlow back end, and this is {back_end}"
                )
            if is_keras_2:
                kwargs["fused"] = False
            super().__init__(**kwargs)
            self.process_set = _checked(process_set)
            self.supports_jit = False  # XLA cannot wait for other processes; Keras 3 reads this

        if is_keras_2:

            def _moments(self, inputs, reduction_axes, keep_dims, mask=None):
                axes = list(reduction_axes)
                mean, variance = _moments_of_all(inputs, axes, mask, self)
                if keep_dims:
                    return mean, variance
                return tf.squeeze(mean, axes), tf.squeeze(variance, axes)

            def call(self, inputs, training=None, mask=None):
                masks = {"mask": mask} if takes_mask else {}
                outputs = super().call(inputs, training=training, **masks)
                if not tf.compat.v1.executing_eagerly_outside_functions():
                    _add_updates(self.updates)
                return outputs

        else:

            def _moments(self, inputs, mask):
                axes = list(self._reduction_axes)
                mean, variance = _moments_of_all(inputs, axes, mask, self)
                return tf.squeeze(mean, axes), tf.squeeze(variance, axes)

        def get_config(self):
            config = super().get_config()
            if self.process_set is not global_process_set:
                config["process_set"] = list(self.process_set.ranks)
            return config

    return SyncBatchNormalization


try:
    SyncBatchNormalization = _layer(tf.keras.layers.BatchNormalization)
    SyncBatchNormalization.__qualname__ = "SyncBatchNormalization"
except ImportError as e:  # TF_USE_LEGACY_KERAS without tf_keras
    SyncBatchNormalization = absent_class("hvd", "SyncBatchNormalization", f"there is no tf.keras: {e}")

__all__ = ["SyncBatchNormalization"]
