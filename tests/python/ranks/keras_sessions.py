# SPDX-License-Identifier: Apache-2.0
"""tf.keras as TensorFlow 1 had it, in graphs and sessions: what scripts from then do, on every rank.

After v1.disable_v2_behavior(), which v1_optimizer.py v1 calls for all that these ranks run; Keras 2.
"""

import os

import horovod.tensorflow
import numpy as np
import tensorflow as tf
from checks import check, expect_error, main
from keras_flavour import N, R, hvd, keras
from keras_models import fit, layers, set_weights, sgd, weights
from keras_steps import SHAPES, At, close, data, gradient, predicted, sgd_steps, start

v1 = tf.compat.v1
v1.disable_v2_behavior()


class Unused(keras.layers.Layer):
    """Has a weight whose gradient is 0; none at all is what Keras then refuses in a graph."""

    def build(self, shape):
        self.unused = self.add_weight(name="unused", shape=SHAPES[At.UNUSED], initializer="zeros")
        self.built = True

    def call(self, x):
        return x + 0 * tf.reduce_sum(self.unused)


def model(optimizer, scale=1.0):
    made = keras.Sequential(layers(unused=Unused))
    set_weights(made, scale * start())
    made.compile(optimizer=optimizer, loss="mse")
    return made


def fresh():
    """A session of its own, as `K.set_session(tf.Session(config=config))` at a script's head makes it."""
    keras.backend.clear_session()
    v1.keras.backend.set_session(v1.Session(config=v1.ConfigProto(allow_soft_placement=True)))


def legacy(lr=0.1, **options):
    return hvd.DistributedOptimizer(sgd(lr), **options)


@check
def every_optimizer_of_then_sums_once():
    def of_tensorflow_1(**options):
        return horovod.tensorflow.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), **options)

    for kind in (legacy, of_tensorflow_1):
        for op, factor in ((hvd.Average, 1), (hvd.Sum, N)):
            fresh()
            assert not tf.executing_eagerly()
            made = model(kind(op=op))
            fit(made, 2)
            close(weights(made), sgd_steps(N, steps=2, factor=factor), f"{kind} {factor}")
    fresh()
    alone = model(sgd(0.1))
    fit(alone)
    close(weights(alone), start() - 0.1 * gradient(start(), R), "alone")


@check
def optimizers_of_the_new_kind_are_refused_with_advice():
    """Keras itself fails with them here, in the midst of compile()."""
    fresh()
    words, new = ["SGD", "legacy optimizers only"], keras.optimizers.SGD(0.1)
    expect_error(ValueError, words, hvd.DistributedOptimizer, new)


@check
def train_on_batch_does_too():
    fresh()
    made = model(legacy(op=hvd.Sum))
    for step in range(2):
        made.train_on_batch(*data(R, step))
    close(weights(made), sgd_steps(N, steps=2, factor=N))


@check
def all_start_as_the_root_does():
    fresh()
    made = model(legacy(0.0), R + 1.0)
    fit(made, 1, [hvd.callbacks.BroadcastGlobalVariablesCallback(N - 1)])
    close(weights(made), N * start(), "callback")
    set_weights(made, (R + 1) * start())
    hvd.broadcast_global_variables(N - 1)
    close(weights(made), N * start(), "function")


@check
def metrics_are_averaged_and_rates_warm_up():
    fresh()
    made = model(sgd(0.0))
    average = hvd.callbacks.MetricAverageCallback()
    got = fit(made, 1, [average]).history["loss"]
    losses = [np.mean((predicted(start(), x) - y) ** 2) for x, y in map(data, range(N))]
    close(got, [np.mean(losses)])
    steps = 4
    made = model(sgd(0.8))
    warm = hvd.callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2)
    rates = fit(made, steps, [warm], epochs=3).history["lr"]
    close(rates, [0.8 / N * (0.5 * (N - 1) + 1), 0.8, 0.8])


@check
def what_is_saved_is_loaded_distributed():
    fresh()
    path = os.path.join(os.environ["CHECKS_DIR"], f"model-{R}.h5")
    model(legacy()).save(path)
    fresh()
    again = hvd.load_model(path, custom_objects={"Unused": Unused})
    fit(again, 2)
    close(weights(again), sgd_steps(N, steps=2))


main(R)
