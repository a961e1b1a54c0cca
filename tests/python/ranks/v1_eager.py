# SPDX-License-Identifier: Apache-2.0
"""v1_eager.py: optimizers of tf.compat.v1.train without sessions, in Keras 2, and tf.train.Checkpoint;
and what hvd.DistributedOptimizer does with optimizers of Keras.
"""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd import objects
from checks import check, check_if, expect_error, main

v1 = tf.compat.v1
hvd.init()
R, N = hvd.rank(), hvd.size()
MEAN = (N + 1) / 2  # of rank + 1 over the ranks
RATE = 0.125


def descent():
    return v1.train.GradientDescentOptimizer(RATE)


def adam():
    return v1.train.AdamOptimizer(RATE)


def loss_of(w, factor):
    return tf.reduce_sum(w * w) * factor


def by_minimize(optimizer, w):
    return lambda factor: optimizer.minimize(lambda: loss_of(w, factor), var_list=[w])


def in_function(optimizer, w):
    """A step as a tf.function, with clipping between."""

    @tf.function
    def step(factor):
        pairs = optimizer.compute_gradients(lambda: loss_of(w, factor), var_list=[w])
        optimizer.apply_gradients([(tf.clip_by_norm(g, 1e9), v) for g, v in pairs])

    return step


def by_tape(optimizer, w, wrap=lambda tape: tape):
    def step(factor):
        with tf.GradientTape() as tape:
            loss = loss_of(w, factor)
        optimizer.apply_gradients(zip(wrap(tape).gradient(loss, [w]), [w]))

    return step


def by_distributed_tape(optimizer, w):
    return by_tape(optimizer, w, hvd.DistributedGradientTape)


START = np.array([1.0, 2.0])


def expect_descent(w, factor, steps=1):
    """w is where so many steps of gradient descent by loss_of(w, factor) lead from START."""
    assert np.allclose(w.numpy(), START * (1 - 2 * RATE * factor) ** steps, rtol=1e-6), (w.numpy(), factor)


@check
def every_way_to_step_is_averaged_once():
    for make in (descent, adam):
        for way, options in (
            (by_minimize, {}),
            (in_function, {}),
            (in_function, {"groups": 1}),
            (in_function, {"sparse_as_dense": True}),
            (by_tape, {}),
            (by_distributed_tape, {}),
        ):
            ours, alone = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
            ours_step = way(hvd.DistributedOptimizer(make(), **options), ours)
            alone_step = by_minimize(make(), alone)
            for _ in range(3):
                ours_step(tf.constant(R + 1.0))
                alone_step(tf.constant(MEAN))
                got, want = ours.numpy(), alone.numpy()
                assert np.allclose(got, want, rtol=1e-6), (way.__name__, options, got, want)


@check
def gradients_of_another_loss_than_was_computed_are_averaged_too():
    w = tf.Variable([1.0, 2.0])
    for op in (hvd.Average, hvd.Sum):
        optimizer = hvd.DistributedOptimizer(descent(), op=op)
        for _ in range(2):
            w.assign(START)
            optimizer.compute_gradients(lambda: tf.reduce_sum(w), var_list=[w])
            step = by_tape(optimizer, w)
            if op == hvd.Sum and N > 1:  # they might be those that were computed, clipped
                words = ["has summed gradients of Variable", "op=hvd.Average"]
                expect_error(ValueError, words, step, R + 1.0)
            else:
                step(R + 1.0)
                expect_descent(w, MEAN)


@check
def in_a_function_sums_may_be_clipped_or_others_applied():
    for way in (in_function, lambda *args: tf.function(by_tape(*args))):
        w = tf.Variable([1.0, 2.0])
        step = way(hvd.DistributedOptimizer(descent(), op=hvd.Sum), w)
        for i in range(2):
            step(tf.constant(R + 1.0))
            expect_descent(w, MEAN * N, i + 1)


@check
def adasum_works_eagerly_too():
    w = tf.Variable([1.0, 2.0])
    by_minimize(hvd.DistributedOptimizer(descent(), op=hvd.Adasum), w)(R + 1.0)
    seen = objects.allgather_object(w.numpy().tolist())
    assert all(s == seen[0] for s in seen), seen
    if N < 3:
        expect_descent(w, N - (N - 1) / 2)  # parallel changes a and 2a give 1.5 a


@check
def several_passes_need_a_graph():
    words = ["backward_passes_per_step > 1", "eager execution", "tf.keras.optimizers"]
    expect_error(ValueError, words, hvd.DistributedOptimizer, descent(), backward_passes_per_step=2)


@check
def a_checkpoint_goes_from_one_alone_to_all_and_back():
    folder = os.path.join(os.environ["CHECKS_DIR"], f"objects-{R}")

    def training(is_distributed):
        w, optimizer = tf.Variable([1.0, 2.0]), adam()
        if is_distributed:
            optimizer = hvd.DistributedOptimizer(optimizer)
        step = by_minimize(optimizer, w)
        return lambda: [step(1.0), step(1.0), w.numpy()][-1], tf.train.Checkpoint(w=w, optimizer=optimizer)

    for first, then in ((False, True), (True, False), (True, True)):
        two_steps, checkpoint = training(first)
        two_steps()
        path = checkpoint.save(os.path.join(folder, f"{first}{then}"))
        want = two_steps()
        for restored_first in (True, False):
            two_steps, checkpoint = training(then)
            if not restored_first:
                two_steps()
            status = checkpoint.restore(path)
            got = two_steps()
            status.assert_consumed()
            assert np.allclose(got, want, rtol=1e-6), (first, then, restored_first, got, want)


@check_if(getattr(tf.keras, "__version__", "2") < "3")  # Keras 3 takes its own optimizers only
def keras_2_around_an_optimizer_of_tensorflow_1_is_averaged_once():
    for run_eagerly in (False, True):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        optimizer = hvd.DistributedOptimizer(descent())
        model.compile(optimizer, loss=lambda y, out: out * y, run_eagerly=run_eagerly)
        model.fit(np.ones([4, 1]), np.full([4, 1], R + 1.0), batch_size=4, verbose=0)
        assert np.allclose(model.get_weights()[0], 1 - RATE * MEAN), model.get_weights()


@check
def an_optimizer_of_keras_becomes_keras_distributed_one():
    w = tf.Variable([1.0, 2.0])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(RATE), groups=1)
    assert isinstance(optimizer, tf.keras.optimizers.SGD) and type(optimizer).__name__ == "SGD"
    by_tape(optimizer, w)(R + 1.0)
    expect_descent(w, MEAN)
    words = ["Adasum is not supported yet with Keras"]
    expect_error(ValueError, words, hvd.DistributedOptimizer, tf.keras.optimizers.SGD(RATE), op=hvd.Adasum)


@check
def what_is_no_optimizer_is_refused():
    for wrong in (None, "adam", v1.train.AdamOptimizer, tf.keras.optimizers.SGD):
        expect_error((TypeError, ValueError), ["optimizer"], hvd.DistributedOptimizer, wrong)


main(R)
