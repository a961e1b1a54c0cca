# SPDX-License-Identifier: Apache-2.0
"""Every way to train with a DistributedOptimizer of Keras reduces the gradients of all ranks, exactly once.

keras_train.py [short]: `short` leaves out the checks marked by @in_full and the second of ways().
"""

import warnings

import numpy as np
from checks import check, expect_error, main
from keras_flavour import (
    BACKEND,
    FLAVOUR,
    IS_3,
    N,
    R,
    expect_warning,
    expect_weights,
    fit,
    hvd,
    in_full,
    is_short,
    keras,
    model,
    set_weights,
    sgd,
    two_passes,
    ways,
)
from keras_steps import (
    B,
    V,
    W,
    chosen,
    close,
    data,
    gradient,
    mean_gradient,
    pieces,
    sgd_steps,
    start,
)

if BACKEND == "tensorflow":
    import tensorflow as tf


@check
def fit_averages_once():
    for way in ways():
        for op, factor in ((hvd.Average, 1), (hvd.Sum, N)):
            made = model(hvd.DistributedOptimizer(sgd(), op=op), **way)
            fit(made, 2)
            expect_weights(made, sgd_steps(N, steps=2, factor=factor), f"{way} op={op}")


@check
def jit_compile_is_requested():
    if BACKEND == "torch" and is_short():
        return  # torch.compile takes half a minute
    made = model(hvd.DistributedOptimizer(sgd(), op=hvd.Sum), jit_compile=True)
    if BACKEND == "tensorflow" and R == 0:
        expect_warning(["without XLA", "jit_compile=False"], lambda: fit(made))
    else:
        fit(made)
    expect_weights(made, sgd_steps(N, factor=N))


def own_step():
    """A Sequential with a train_step of its own, as the back end has it."""
    if BACKEND == "jax":
        import jax

        class Own(keras.Sequential):
            def train_step(self, state, data):
                trainable, fixed, of_optimizer, metrics = state
                x, y = data

                def loss(trainable):
                    y_pred, _ = self.stateless_call(trainable, fixed, x, training=True)
                    return keras.ops.mean((y_pred - y) ** 2)

                value, grads = jax.value_and_grad(loss)(trainable)
                trainable, of_optimizer = self.optimizer.stateless_apply(of_optimizer, grads, trainable)
                return {"own": value}, (trainable, fixed, of_optimizer, metrics)

    elif BACKEND == "torch":

        class Own(keras.Sequential):
            def train_step(self, data):
                x, y = data
                self.zero_grad()
                loss = keras.ops.mean((self(x) - y) ** 2)
                loss.backward()
                self.optimizer.apply([v.value.grad for v in self.trainable_weights], self.trainable_weights)
                return {"own": loss}

    else:

        class Own(keras.Sequential):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self(x) - y) ** 2)
                grads = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
                return {"own": loss}

    return Own


@check
def a_train_step_of_the_users():
    for way in ways():
        made = model(hvd.DistributedOptimizer(sgd(), op=hvd.Sum), own_step(), **way)
        assert "own" in fit(made, 2).history
        expect_weights(made, sgd_steps(N, steps=2, factor=N), str(way))


def by_hand(made, optimizer, step):
    """Gradients by the back end's own means, applied by the optimizer."""
    x, y = data(R, step)
    variables = made.trainable_variables
    if BACKEND == "torch":
        import torch

        loss = keras.ops.mean((made(x) - keras.ops.convert_to_tensor(y)) ** 2)
        grads = torch.autograd.grad(loss, [v.value for v in variables], allow_unused=True)
        with torch.no_grad():
            optimizer.apply_gradients(zip(grads, variables))
    elif BACKEND == "jax":
        import jax

        def loss(values):
            return keras.ops.mean((made.stateless_call(values, [], x)[0] - y) ** 2)

        grads = jax.grad(loss)([v.value for v in variables])
        optimizer.apply(grads, variables)
    else:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((made(x) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


@check
def gradients_of_a_loop_of_the_users():
    made = model(sgd())
    optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
    for step in range(2):
        by_hand(made, optimizer, step)
    expect_weights(made, sgd_steps(N, steps=2, factor=N))
    if BACKEND == "tensorflow":
        made = model(sgd())
        optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
        if hasattr(optimizer, "build"):
            optimizer.build(made.trainable_variables)
        step = tf.function(lambda: by_hand(made, optimizer, 0))
        step()
        expect_weights(made, sgd_steps(N, factor=N), "tf.function")


@check
def computed_then_changed_then_applied():
    if BACKEND != "tensorflow":
        return
    made = model(sgd())
    optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
    x, y = data(R)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((made(x) - y) ** 2)
    pairs = optimizer.compute_gradients(loss, made.trainable_variables, tape=tape)
    for pair, want in zip(pairs, pieces(N * mean_gradient(start(), N))):
        close(want if pair[0] is None else pair[0], want)  # the unused one's is zeros to numpy
    optimizer.apply_gradients([(None if g is None else g / 2, v) for g, v in pairs])
    expect_weights(made, sgd_steps(N, factor=N / 2))


def computed_by(optimizer, made, step=0):
    x, y = data(R, step)
    return optimizer.compute_gradients(
        lambda: tf.reduce_mean((made(x) - y) ** 2), made.trainable_variables, tape=tf.GradientTape()
    )


@check
def another_loss_after_computed_gradients():
    """Gradients at the point that computed ones lead to: they come from this rank's data, and are reduced."""
    if BACKEND != "tensorflow":
        return
    optimizer, made = hvd.DistributedOptimizer(sgd(), op=hvd.Sum), model(sgd())

    def step(tape=tf.GradientTape):
        for grad, v in computed_by(optimizer, made):
            if grad is not None:
                v.assign_sub(0.01 * grad)
        x, y = data(R, 1)
        with tape() as second:
            loss = tf.reduce_mean((made(x) - y) ** 2)
        variables = made.trainable_variables
        optimizer.apply_gradients(zip(second.gradient(loss, variables), variables))

    point = start() - 0.01 * N * mean_gradient(start(), N)
    want = point - 0.1 * N * mean_gradient(point, N, 1)
    if hasattr(optimizer, "build"):
        optimizer.build(made.trainable_variables)
    tf.function(step)()
    expect_weights(made, want, "in a graph")
    if N == 1:
        return
    set_weights(made, start())
    expect_warning(["hvd.DistributedGradientTape", "clipped"], step)
    import horovod.tensorflow as hvd_tf

    set_weights(made, start())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "horovod")
        step(lambda: hvd_tf.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum))
    expect_weights(made, want, "by a distributed tape")


@check
def computed_then_clipped_then_applied_in_parts():
    if BACKEND != "tensorflow":
        return
    first = (W, B)
    want = chosen(first, sgd_steps(N, factor=N / 2), sgd_steps(N, factor=2 * N))
    for eagerly in (True, False):
        optimizer, made = hvd.DistributedOptimizer(sgd(), op=hvd.Sum), model(sgd())

        def step(optimizer=optimizer, made=made):
            pairs = [(g, v) for g, v in computed_by(optimizer, made) if g is not None]
            one = [(g / 2, v) for g, v in pairs[: len(first)]]
            other = [(g * 2, v) for g, v in pairs[len(first) :]]
            is_finite = tf.reduce_all(tf.math.is_finite(one[0][0]))
            tf.cond(is_finite, lambda: apply(one), lambda: 0)
            apply(other)

        def apply(pairs, optimizer=optimizer):
            optimizer.apply_gradients(pairs)
            return 0

        if hasattr(optimizer, "build"):
            optimizer.build(made.trainable_variables)
        (step if eagerly else tf.function(step))()
        expect_weights(made, want, f"eagerly={eagerly}")


@check
def computed_in_several_passes_or_local():
    if BACKEND != "tensorflow":
        return
    for averages in (False, True):
        optimizer, made = two_passes(average_aggregated_gradients=averages, op=hvd.Sum), model(sgd())
        for step in range(4):
            optimizer.apply_gradients(computed_by(optimizer, made, step))
        want = sgd_steps(N, 0.05, steps=2, passes=2, factor=N / 2 if averages else N)
        expect_weights(made, want, f"averages={averages}")
    optimizer, made = hvd.DistributedOptimizer(sgd(), op=hvd.Sum), model(sgd())
    optimizer.register_local_var(made.trainable_variables[V])
    optimizer.apply_gradients(computed_by(optimizer, made))
    own = gradient(start(), R) / N
    expect_weights(made, start() - 0.1 * chosen([V], own, N * mean_gradient(start(), N)), "local")


@check
def an_apply_gradients_of_the_users():
    """Written for Keras 2: it updates the variables itself, and calls no apply()."""
    if not IS_3:
        return

    class Own(keras.optimizers.Optimizer):
        def apply_gradients(self, grads_and_vars, doubled=False):
            for grad, variable in grads_and_vars:
                if grad is not None:
                    self.assign_sub(variable, (0.2 if doubled else 0.1) * grad)

    if BACKEND != "jax":  # by_hand() calls apply() there
        made = model(sgd())
        by_hand(made, hvd.DistributedOptimizer(Own(0.1), op=hvd.Sum), 0)
        expect_weights(made, sgd_steps(N, factor=N))
    variable = keras.Variable(np.zeros(2, np.float32))
    grad = keras.ops.convert_to_tensor(np.full(2, 1.0 + R, np.float32))
    hvd.DistributedOptimizer(Own(0.1), op=hvd.Sum).apply_gradients([(grad, variable)], doubled=True)
    close(keras.ops.convert_to_numpy(variable), np.full(2, -0.2 * sum(1.0 + r for r in range(N))))


@check
def a_distributed_tape_beside_it():
    if BACKEND != "tensorflow":
        return
    import horovod.tensorflow as hvd_tf

    for eagerly in (True, False):
        made = model(sgd())
        optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
        if hasattr(optimizer, "build"):
            optimizer.build(made.trainable_variables)

        def step(made=made, optimizer=optimizer):
            x, y = data(R)
            with hvd_tf.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
                loss = tf.reduce_mean((made(x) - y) ** 2)
            grads = tape.gradient(loss, made.trainable_variables)
            optimizer.apply_gradients(zip(grads, made.trainable_variables))

        (step if eagerly else tf.function(step))()
        expect_weights(made, sgd_steps(N, factor=N), f"eagerly={eagerly}")


@in_full
def two_optimizers_of_one_kind():
    first, second = model(sgd()), model(sgd())
    one, two = (hvd.DistributedOptimizer(sgd(), op=hvd.Sum) for _ in range(2))
    for step in range(2):
        by_hand(first, one, step)
        by_hand(second, two, step + 10)
    expect_weights(first, sgd_steps(N, steps=2, factor=N))
    w = start()
    for step in (10, 11):
        w = w - 0.1 * N * mean_gradient(w, N, step)
    expect_weights(second, w)


@check
def without_tensorflow_2s_behaviour():
    """Then compile() makes another optimizer of the new kind, of which only the name is ours."""
    if IS_3:
        return
    from tensorflow.python import tf2

    tf2.disable()
    try:
        made = model(hvd.DistributedOptimizer(sgd(), op=hvd.Sum))
        if FLAVOUR == "2":
            words = ["Mine", "legacy"]
            expect_error(ValueError, words, hvd.DistributedOptimizer, type("Mine", (type(sgd()),), {})())
    finally:
        tf2.enable()
    fit(made, 2)
    expect_weights(made, sgd_steps(N, steps=2, factor=N))


main(R)
