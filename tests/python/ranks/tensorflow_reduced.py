# SPDX-License-Identifier: Apache-2.0
"""A tape and an optimizer that are both distributed: what is reduced already is not reduced again."""

import warnings

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd.tensorflow import gradients as implementation
from checks import check, main
from tape_steps import Model, N, R, alone, batch, close, joined, ours, ways


def other_reduction():
    """An optimizer's, which sums."""
    return implementation._make_allreduce_grads_fn(
        "Optimizer", "", "", hvd.Compression.none, False, hvd.Sum, 1.0, None, hvd.global_process_set
    )


def warned(function, *args):
    """(result, texts of warnings that say what of reductions)."""
    for say in (implementation._say_reduced_before, implementation._say_perhaps_reduced_before):
        say.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args)
    return result, [str(w.message) for w in caught if "not both" in str(w.message)]


@check
def what_is_reduced_already_is_left():
    model, again = Model(), other_reduction()
    for step in ways(lambda x: again(ours(model, x, op=hvd.Sum), model.variables)).values():
        got, said = warned(step, batch(R))
        close([None if g is None else tf.convert_to_tensor(g) / N for g in got], alone(model, joined()))
        assert len(said) == (N > 1), said


@check
def what_was_made_of_reduced_ones_is_left_in_a_graph():
    model = Model()
    again = other_reduction()

    def clipped(x):
        grads = ours(model, x, op=hvd.Sum)[:3]
        return tf.clip_by_global_norm([tf.cast(tf.convert_to_tensor(g), tf.float64) for g in grads], 1e9)[0]

    @tf.function
    def straight(x):
        return again(clipped(x), model.variables[:3])

    @tf.function
    def in_a_branch(x):
        grads = clipped(x)
        return tf.cond(tf.size(x) > 0, lambda: again(grads, model.variables[:3]), lambda: grads)

    for step in (straight, in_a_branch):
        got, said = warned(step, batch(R))
        close([g / N for g in got], alone(model, joined())[:3])
        assert len(said) == (N > 1) and all("used as they are" in s for s in said), said


@check
def doubtful_gradients_warn_once():
    model = Model()
    again = other_reduction()
    for is_named in (False, True):
        grads = [tf.convert_to_tensor(g) * 1.0 for g in ours(model, batch(R))[:3]]
        got, said = warned(again, grads, model.variables[:3] if is_named else None)
        close([g / N for g in got], alone(model, joined())[:3])
        assert len(said) == (is_named and N > 1) and all("DistributedGradientTape has" in s for s in said)
    _, said = warned(again, alone(model, batch(R))[:3], model.variables[:3])
    assert not said, "the tape was before the last step"


@check
def what_a_loss_makes_of_reduced_ones_is_reduced():
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], dtype=tf.float64)
    again = other_reduction()

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(x @ w)
        fast = w - hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(y, w)
        with tf.GradientTape() as tape:
            tape.watch(fast)
            z = tf.reduce_sum((x @ fast) ** 2)
        return again([tape.gradient(z, fast)], [w])[0]

    x = tf.fill([3, 2], tf.cast(R + 1, tf.float64))
    every = sum(3.0 * (r + 1) for r in range(N))
    fast = w.numpy() - every
    want = sum(2 * np.full([2, 3], r + 1.0) @ (np.full([3, 2], r + 1.0) @ fast) for r in range(N))
    assert np.allclose(step(x).numpy(), want), (step(x).numpy(), want)


main(R)
