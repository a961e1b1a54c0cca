# SPDX-License-Identifier: Apache-2.0
"""Every way to train with a DistributedOptimizer of Keras, by each of Horovod's modules and kinds of optimizers,
reduces the gradients of all ranks, exactly once.

keras_train.py [short]: `short` leaves out the checks marked by @in_full and the second of ways().
"""

import contextlib
import importlib
import os
import warnings

import numpy as np
from checks import check, check_if, expect_error, main
from keras_expect import expect_alike, expect_operations, expect_trained, expect_warning, expect_weights
from keras_flavour import BACKEND, FLAVOUR, IS_3, N, R, hvd, is_short, keras, ways
from keras_models import SUFFIX, fit, model, optimizers, set_weights, sgd, summed, weights
from keras_steps import At, chosen, close, data, gradient, mean_gradient, pieces, sgd_steps, start

if BACKEND == "tensorflow":
    import horovod.tensorflow as hvd_tf
    import tensorflow as tf


def on_tensorflow(function):
    return check(function) if BACKEND == "tensorflow" else function


@check
def fit_averages_once():
    for way in ways():
        expect_trained(way, hvd.DistributedOptimizer(sgd()), steps=2, factor=1, **way)
        expect_trained(way, summed(), steps=2, **way)


@check_if(not (BACKEND == "torch" and is_short()))  # torch.compile takes half a minute
def jit_compile_is_requested():

    def trained():
        expect_trained("jit_compile", summed(), jit_compile=True)

    if BACKEND == "tensorflow" and R == 0:
        expect_warning(["without XLA", "jit_compile=False"], trained)
    else:
        trained()


def apply_by_tape(made, optimizer, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((made(x) - y) ** 2)
    grads = tape.gradient(loss, made.trainable_variables)
    optimizer.apply_gradients(zip(grads, made.trainable_variables))
    return loss


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
                return {"own": apply_by_tape(self, self.optimizer, *data)}

    return Own


@check
def a_train_step_of_the_users():
    for way in ways():
        made = expect_trained(way, summed(), own_step(), steps=2, **way)
        assert "own" in made.history.history


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
        apply_by_tape(made, optimizer, x, y)


def built():
    """(a model, a distributed optimizer whose variables are there, as a tf.function needs them)"""
    made, optimizer = model(sgd()), summed()
    if hasattr(optimizer, "build"):
        optimizer.build(made.trainable_variables)
    return made, optimizer


@check
def gradients_of_a_loop_of_the_users():
    """And of another one of the same kind beside it."""
    first, second = model(sgd()), model(sgd())
    one, two = summed(), summed()
    for step in range(2):
        by_hand(first, one, step)
        by_hand(second, two, step + 10)
    expect_weights(first, sgd_steps(N, steps=2, factor=N))
    w = start()
    for step in (10, 11):
        w = w - 0.1 * N * mean_gradient(w, N, step)
    expect_weights(second, w, "the other one")
    if BACKEND == "tensorflow":
        made, optimizer = built()
        tf.function(lambda: by_hand(made, optimizer, 0))()
        expect_weights(made, sgd_steps(N, factor=N), "tf.function")


def computed_by(optimizer, made, step=0):
    x, y = data(R, step)
    return optimizer.compute_gradients(
        lambda: tf.reduce_mean((made(x) - y) ** 2), made.trainable_variables, tape=tf.GradientTape()
    )


@on_tensorflow
def computed_then_changed_then_applied():
    made, optimizer = model(sgd()), summed()
    x, y = data(R)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((made(x) - y) ** 2)
    pairs = optimizer.compute_gradients(loss, made.trainable_variables, tape=tape)
    for pair, want in zip(pairs, pieces(N * mean_gradient(start(), N))):
        close(want if pair[0] is None else pair[0], want)  # the unused one's is zeros to numpy
    optimizer.apply_gradients([(None if g is None else g / 2, v) for g, v in pairs])
    expect_weights(made, sgd_steps(N, factor=N / 2))


@on_tensorflow
def another_loss_after_computed_gradients():
    """Gradients at the point that computed ones lead to: they come from this rank's data, and are reduced."""
    made, optimizer = built()

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
    tf.function(step)()
    expect_weights(made, want, "in a graph")
    if N == 1:
        return
    set_weights(made, start())
    expect_warning(["hvd.DistributedGradientTape", "clipped"], step)
    set_weights(made, start())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "horovod")
        step(lambda: hvd_tf.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum))
    expect_weights(made, want, "by a distributed tape")


@on_tensorflow
def computed_then_clipped_then_applied_in_parts():
    first = (At.W, At.B)
    want = chosen(first, sgd_steps(N, factor=N / 2), sgd_steps(N, factor=2 * N))
    for wrap in (lambda step: step, tf.function):
        made, optimizer = built()

        def apply(pairs, optimizer=optimizer):
            optimizer.apply_gradients(pairs)
            return 0

        def step(optimizer=optimizer, made=made, apply=apply):
            pairs = [(g, v) for g, v in computed_by(optimizer, made) if g is not None]
            one = [(g / 2, v) for g, v in pairs[: len(first)]]
            is_finite = tf.reduce_all(tf.math.is_finite(one[0][0]))
            tf.cond(is_finite, lambda: apply(one), lambda: 0)
            apply([(g * 2, v) for g, v in pairs[len(first) :]])

        wrap(step)()
        expect_weights(made, want)


@on_tensorflow
def computed_in_several_passes_or_local():
    for averages in (False, True):
        options = {"backward_passes_per_step": 2, "average_aggregated_gradients": averages}
        made, optimizer = model(sgd()), summed(sgd(0.05), **options)
        for step in range(4):
            optimizer.apply_gradients(computed_by(optimizer, made, step))
        want = sgd_steps(N, 0.05, steps=2, passes=2, factor=N / 2 if averages else N)
        expect_weights(made, want, f"averages={averages}")
    made, optimizer = model(sgd()), summed()
    optimizer.register_local_var(made.trainable_variables[At.V])
    optimizer.apply_gradients(computed_by(optimizer, made))
    own = gradient(start(), R) / N
    expect_weights(made, start() - 0.1 * chosen([At.V], own, N * mean_gradient(start(), N)), "local")


@check_if(IS_3)
def an_apply_gradients_of_the_users():
    """Written for Keras 2: it updates the variables itself, and calls no apply()."""

    class Own(keras.optimizers.Optimizer):
        def apply_gradients(self, grads_and_vars, doubled=False):
            for grad, variable in grads_and_vars:
                if grad is not None:
                    self.assign_sub(variable, (0.2 if doubled else 0.1) * grad)

    variable = keras.Variable(np.zeros(2, np.float32))
    grad = keras.ops.convert_to_tensor(np.full(2, 1.0 + R, np.float32))
    summed(Own(0.1)).apply_gradients([(grad, variable)], doubled=True)
    close(keras.ops.convert_to_numpy(variable), np.full(2, -0.2 * sum(1.0 + r for r in range(N))))


@on_tensorflow
def a_distributed_tape_beside_it():
    for wrap in (lambda step: step, tf.function):
        made, optimizer = built()

        optimizer.register_local_var(made.trainable_variables[At.V])

        def step(made=made, optimizer=optimizer):
            x, y = data(R)
            with hvd_tf.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
                loss = tf.reduce_mean((made(x) - y) ** 2)
            tape.register_local_source(made.trainable_variables[At.V])
            grads = tape.gradient(loss, made.trainable_variables)
            optimizer.apply_gradients(zip(grads, made.trainable_variables))

        wrap(step)()
        own = start() - 0.1 * gradient(start(), R) / N  # divided once, too
        expect_weights(made, chosen([At.V], own, sgd_steps(N, factor=N)))


@check_if(not IS_3)
def without_tensorflow_2s_behaviour():
    """Then compile() makes another optimizer of the new kind, of which only the name is ours."""
    from tensorflow.python import tf2

    tf2.disable()
    try:
        made = model(summed())
        if FLAVOUR == "2":
            words = ["Mine", "legacy"]
            expect_error(ValueError, words, hvd.DistributedOptimizer, type("Mine", (type(sgd()),), {})())
    finally:
        tf2.enable()
    fit(made, 2)
    expect_weights(made, sgd_steps(N, steps=2, factor=N))


@check
def train_on_batch():
    made = model(summed())
    for step in range(2):
        made.train_on_batch(*data(R, step))
    expect_weights(made, sgd_steps(N, steps=2, factor=N))


@check
def several_steps_an_execution():
    if BACKEND != "torch":  # for which Keras has none
        expect_trained("two and one", summed(sgd(0.05)), lr=0.05, steps=3, steps_per_execution=2)


@contextlib.contextmanager
def policy(name):
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


@check
def mixed_float16():
    """compile() puts a LossScaleOptimizer around ours, whose first scale overflows: steps are left out by all."""
    tries = 6
    with policy("mixed_float16"):
        made = model(summed(sgd(0.02)))
        assert "LossScale" in type(made.optimizer).__name__, made.optimizer
        x, y = data(R)
        for _ in range(tries):
            made.fit(x, y, batch_size=len(x), epochs=1, verbose=0)
    scale = made.optimizer.dynamic_scale if IS_3 else made.optimizer.loss_scale
    steps = tries - int(np.log2(2.0**15 / float(scale)))  # a step that is left out halves it
    assert 0 < steps < tries, f"{steps} of {tries} steps were taken: the scale did not overflow"
    w = start()
    for _ in range(steps):
        w = w - 0.02 * N * mean_gradient(w, N)
    got = weights(made)
    assert np.allclose(got, w, rtol=2e-2, atol=1e-2), (steps, got, w)
    expect_alike(got)


def root_and_two_steps():
    """The weights where ranks that differ take a step, then the first one's, and then another step."""
    w = start()
    w = w - 0.1 * np.sum([gradient(start() * (rank + 1), rank) for rank in range(N)], axis=0)
    return w - 0.1 * N * mean_gradient(w, N, 1)


def by(module, optimizer):
    """Horovod's module of this name trains, starts all as the root does, and loads."""
    other = importlib.import_module(module)
    made = expect_trained(module, other.DistributedOptimizer(optimizer(0.1), op=other.Sum))
    set_weights(made, start() * (R + 1))
    fit(made, 2, [other.callbacks.BroadcastGlobalVariablesCallback(0)])
    expect_weights(made, root_and_two_steps(), f"{module}, from the root's weights")
    path = os.path.join(os.environ["CHECKS_DIR"], f"{module}{R}.{SUFFIX}")
    made.save(path)
    loaded = other.load_model(path)
    set_weights(loaded, start())
    expect_operations(4, lambda: fit(loaded))
    expect_weights(loaded, sgd_steps(N), f"{module}, loaded")


@check
def the_other_module_of_horovod():
    """horovod.tensorflow.keras with Keras 3, horovod.keras with Keras 2."""
    if BACKEND == "tensorflow" and not os.environ.get("TF_USE_LEGACY_KERAS"):
        # else keras is Keras 3, and horovod.keras of that
        by("horovod.tensorflow.keras" if IS_3 else "horovod.keras", optimizers().SGD)


def two_steps(module, kinds, of):
    """Horovod's module of this name, with another kind of optimizers than the one under test."""
    other = importlib.import_module(module)
    optimizer = other.DistributedOptimizer(kinds.SGD(0.1), op=other.Sum)
    expect_trained(f"{module} {kinds.__name__}", optimizer, of=of, steps=2)


@check
def legacy_optimizers_of_keras_2():
    if FLAVOUR == "2":
        for module in ("horovod.tensorflow.keras", "horovod.keras"):
            two_steps(module, keras.optimizers.legacy, keras)


@check_if(IS_3 and BACKEND == "tensorflow")
def tf_keras_beside_keras_3():
    """Only what trains: callbacks and load_model are of the Keras that TensorFlow has."""
    import tf_keras

    two_steps("horovod.tensorflow.keras", tf_keras.optimizers, tf_keras)
    two_steps("horovod.keras", tf_keras.optimizers.legacy, tf_keras)


main(R)
