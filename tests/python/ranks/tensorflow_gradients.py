# SPDX-License-Identifier: Apache-2.0
"""Gradients that only TensorFlow has: unused outputs, empty tensors, IndexedSlices, complex numbers, gradients of
gradients; eagerly and in tf.function. The others: gradients.py."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd.tensorflow import mpi_ops
from checks import check, main

hvd.init()
R, N = hvd.rank(), hvd.size()
for _ in range(3 * R):  # what TensorFlow numbers for itself must not matter
    tf.function(lambda x: x + 1)(tf.constant(1.0))
WEIGHTS = [r + 2.0 for r in range(N)]  # rank r's gradient of what it got


def gradients(function, *args):
    """The gradient of the weighted sum of what function(*args) gives, eagerly and in a graph."""

    def gradient(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            outputs = tf.nest.flatten(function(*args))
            y = tf.add_n([tf.reduce_sum(tf.cast(output, tf.float64)) for output in outputs]) * WEIGHTS[R]
        return tape.gradient(y, args)

    yield gradient(*args)
    yield tf.function(gradient, input_signature=[tf.TensorSpec(None, x.dtype) for x in args])(*args)


def equal(got, expected, dtype=None):
    assert dtype is None or got.dtype == dtype, got.dtype
    expected = np.asarray(expected, np.float64)
    assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}"
    assert np.allclose(tf.cast(got, tf.float64), expected, rtol=1e-6), f"{got} is not {expected}"


@check
def of_unused_outputs_of_a_group_they_are_zeros():
    args = tf.ones([2]), tf.ones([3], tf.float64), tf.ones([])
    for a, b, c in gradients(lambda *x: mpi_ops._grouped_allreduce(list(x))[1:], *args):
        equal(a, [0, 0], tf.float32)
        equal(b, [sum(WEIGHTS)] * 3, tf.float64)
        equal(c, sum(WEIGHTS))
    args = tf.ones([N]), tf.ones([N], tf.float64)
    for _, b in gradients(lambda *x: mpi_ops._grouped_reducescatter(list(x))[0], *args):
        equal(b, [0] * N, tf.float64)
    for _, b in gradients(lambda *x: mpi_ops.grouped_allgather(list(x))[0], *args):
        equal(b, [0] * N, tf.float64)


@check
def of_an_allgather_of_no_rows_it_is_empty():
    x = tf.ones([0 if R == 0 else 2, 2])
    for (g,) in gradients(mpi_ops.allgather, x):
        equal(g, np.full(x.shape, sum(WEIGHTS) / N))


@check
def of_a_broadcast_there_are_no_nans_beside_the_root():
    bad = tf.constant(float("nan"))
    for (g,) in gradients(lambda x: mpi_ops.broadcast(x, 0) * bad, tf.ones([2])):
        assert np.isnan(g).all() if R == 0 else np.array_equal(g, [0, 0]), g


@check
def rows_that_were_looked_up_have_them():
    """The gradients of tf.gather are IndexedSlices."""

    def looked_up(f):
        def both(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(tf.gather(f(x), [0])) * WEIGHTS[R]
            return tape.gradient(y, x)

        x = tf.ones([2 * N, 2])
        return [tf.convert_to_tensor(g).numpy().sum() for g in (both(x), tf.function(both)(x))]

    for f, want in (
        (lambda x: mpi_ops._allreduce(x), 2 * sum(WEIGHTS)),
        (lambda x: mpi_ops._reducescatter(x), 2 * sum(WEIGHTS) * N),
        (lambda x: mpi_ops._reducescatter(x, op=hvd.Average), 2 * sum(WEIGHTS)),
        (lambda x: mpi_ops._grouped_reducescatter([x])[0], 2 * sum(WEIGHTS) * N),
        (lambda x: mpi_ops.allgather(x), 2 * sum(WEIGHTS) / N * (R == 0)),
        (lambda x: mpi_ops.broadcast(x, 0), 2 * sum(WEIGHTS) / N * (R == 0)),
    ):
        assert np.allclose(looked_up(f), want), (looked_up(f), want)


@check
def complex_numbers_that_were_broadcast_have_them():
    x = tf.constant([1.0 + 2.0j, 3.0])
    root = N - 1

    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.math.imag(mpi_ops.broadcast(x, root))) * WEIGHTS[R]
        return tape.gradient(y, x)

    for g in (f(x), tf.function(f)(x)):
        assert g is not None and g.dtype == x.dtype
        want = sum(WEIGHTS) / N * 1j if root == R else 0
        assert np.allclose(g.numpy(), want), (g, want)


@check
def numbers_and_join_have_none():
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * tf.cast(mpi_ops.size_op() + mpi_ops.rank_op(), tf.float32)
    equal(tape.gradient(y, x), N + R)


main(R)
