# SPDX-License-Identifier: Apache-2.0
"""v1_eager.py: optimizers of tf.compat.v1.train without sessions, in Keras 2, and tf.train.Checkpoint;
and what hvd.DistributedOptimizer does with optimizers of Keras.
"""

import functools
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd import objects
from checks import check, expect_error, main

v1 = tf.compat.v1
hvd.init()
R, N = hvd.rank(), hvd.size()
MEAN = (N + 1) / 2  # of rank + 1 over the ranks
RATE = 0.125
MAKERS = {
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(RATE),
    "Adam": lambda: v1.train.AdamOptimizer(RATE),
}


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


@check
def every_way_to_step_is_averaged_once():
    for make in MAKERS.values():
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
                assert np.allclose(ours.numpy(), alone.numpy(), rtol=1e-6), (
                    way.__name__,
                    options,
                    ours,
                    alone,
                )


@check
def gradients_of_another_loss_than_was_computed_are_averaged_too():
    w = tf.Variable([1.0, 2.0])
    for op in (hvd.Average, hvd.Sum):
        optimizer = hvd.DistributedOptimizer(MAKERS["GradientDescent"](), op=op)
        for i in range(2):
            w.assign([1.0, 2.0])
            optimizer.compute_gradients(lambda: tf.reduce_sum(w), var_list=[w])
            with tf.GradientTape() as tape:
                loss = loss_of(w, R + 1.0)
            give = functools.partial(optimizer.apply_gradients, zip(tape.gradient(loss, [w]), [w]))
            if op == hvd.Sum and N > 1:  # they might be those that were computed, clipped
                expect_error(ValueError, ["has summed gradients of Variable", "op=hvd.Average"], give)
                continue
            give()
            want = np.array([1.0, 2.0]) * (1 - 2 * RATE * MEAN)
            assert np.allclose(w.numpy(), want, rtol=1e-6), (i, w.numpy(), want)


@check
def in_a_function_sums_may_be_clipped_or_others_applied():
    for is_computed in (True, False):
        w = tf.Variable([1.0, 2.0])
        optimizer = hvd.DistributedOptimizer(MAKERS["GradientDescent"](), op=hvd.Sum)

        @tf.function
        def step(factor, w=w, optimizer=optimizer, is_computed=is_computed):
            with tf.GradientTape() as tape:
                loss = loss_of(w, factor)
            if is_computed:
                (pair,) = optimizer.compute_gradients(lambda: loss_of(w, factor), var_list=[w])
                optimizer.apply_gradients([(tf.clip_by_norm(pair[0], 1e9), w)])
            else:
                optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w]))

        for i in range(2):
            step(tf.constant(R + 1.0))
            want = np.array([1.0, 2.0]) * (1 - 2 * RATE * MEAN * N) ** (i + 1)
            assert np.allclose(w.numpy(), want, rtol=1e-6), (is_computed, w.numpy(), want)


@check
def adasum_works_eagerly_too():
    w = tf.Variable([1.0, 2.0])
    optimizer = hvd.DistributedOptimizer(MAKERS["GradientDescent"](), op=hvd.Adasum)
    optimizer.minimize(lambda: loss_of(w, R + 1.0), var_list=[w])
    seen = objects.allgather_object(w.numpy().tolist())
    assert all(s == seen[0] for s in seen), seen
    if N == 1:
        assert np.allclose(w.numpy(), np.array([1.0, 2.0]) * (1 - 2 * RATE))
    if N == 2:  # parallel changes a and 2a give 1.5 a
        assert np.allclose(w.numpy(), np.array([1.0, 2.0]) * (1 - 2 * RATE * 1.5)), w.numpy()


@check
def several_passes_need_a_graph():
    words = ["backward_passes_per_step > 1", "eager execution", "tf.keras.optimizers"]
    expect_error(
        ValueError,
        words,
        hvd.DistributedOptimizer,
        MAKERS["Adam"](),
        backward_passes_per_step=2,
    )


@check
def a_checkpoint_goes_from_one_alone_to_all_and_back():
    folder = os.path.join(os.environ["CHECKS_DIR"], f"objects-{R}")

    def training(is_distributed):
        w, optimizer = tf.Variable([1.0, 2.0]), MAKERS["Adam"]()
        if is_distributed:
            optimizer = hvd.DistributedOptimizer(optimizer)
        return w, optimizer, tf.train.Checkpoint(w=w, optimizer=optimizer)

    def steps(w, optimizer):
        for _ in range(2):
            optimizer.minimize(lambda: loss_of(w, 1.0), var_list=[w])
        return w.numpy()

    for first, then in ((False, True), (True, False), (True, True)):
        w, optimizer, checkpoint = training(first)
        steps(w, optimizer)
        path = checkpoint.save(os.path.join(folder, f"{first}{then}"))
        want = steps(w, optimizer)
        for restored_first in (True, False):
            w, optimizer, checkpoint = training(then)
            if not restored_first:
                steps(w, optimizer)
            status = checkpoint.restore(path)
            got = steps(w, optimizer)
            status.assert_consumed()
            assert np.allclose(got, want, rtol=1e-6), (first, then, restored_first, got, want)


@check
def keras_2_around_an_optimizer_of_tensorflow_1_is_averaged_once():
    if getattr(tf.keras, "__version__", "2") >= "3":
        return  # Keras 3 takes its own optimizers only
    for run_eagerly in (False, True):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        optimizer = hvd.DistributedOptimizer(MAKERS["GradientDescent"]())
        model.compile(optimizer, loss=lambda y, out: out * y, run_eagerly=run_eagerly)
        model.fit(np.ones([4, 1]), np.full([4, 1], R + 1.0), batch_size=4, verbose=0)
        assert np.allclose(model.get_weights()[0], 1 - RATE * MEAN), model.get_weights()


@check
def an_optimizer_of_keras_becomes_keras_distributed_one():
    w = tf.Variable([1.0, 2.0])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(RATE), groups=1)
    assert isinstance(optimizer, tf.keras.optimizers.SGD) and type(optimizer).__name__ == "SGD"
    with tf.GradientTape() as tape:
        loss = loss_of(w, R + 1.0)
    optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w]))
    assert np.allclose(w.numpy(), np.array([1.0, 2.0]) * (1 - 2 * RATE * MEAN)), w.numpy()
    words = ["Adasum is not supported yet with Keras"]
    expect_error(ValueError, words, hvd.DistributedOptimizer, tf.keras.optimizers.SGD(RATE), op=hvd.Adasum)


@check
def what_is_no_optimizer_is_refused():
    for wrong in (None, "adam", v1.train.AdamOptimizer, tf.keras.optimizers.SGD):
        expect_error((TypeError, ValueError), ["optimizer"], hvd.DistributedOptimizer, wrong)


main(R)
