# SPDX-License-Identifier: Apache-2.0
"""For the keras_*.py scripts: models and optimizers of the Keras under test; their gradients: keras_steps.py."""

import functools
import os
import sys

import numpy as np
from keras_flavour import FLAVOUR, R, hvd, is_short, keras
from keras_steps import ROWS, SHAPES, WIDTH, At, data, joined, pieces, start

SUFFIX = "keras" if FLAVOUR == "3" else "h5"  # of files with models
# Keras 2 creates an optimizer's variables within the first trace of a step, and TensorFlow then traces again. In
# `short` these scripts create them earlier; the other scripts, and all of them in test-full, leave that to the trace.
BUILT = ("keras_options.py",)


def optimizers():
    return keras.optimizers.legacy if FLAVOUR == "2 legacy" else keras.optimizers


def sgd(lr=0.1, **kwargs):
    return optimizers().SGD(lr, **kwargs)


def summed(optimizer=None, **options):
    """A DistributedOptimizer with op=Sum: a second reduction shows, and none too."""
    return hvd.DistributedOptimizer(optimizer or sgd(), op=hvd.Sum, **options)


def scaler(optimizer, **options):
    return keras.mixed_precision.LossScaleOptimizer(optimizer, **options)


@functools.lru_cache(maxsize=None)
def unused_layer(of):
    @of.utils.register_keras_serializable("ringmaster")
    class Unused(of.layers.Layer):
        """Has a weight without a gradient: None, but zeros on JAX."""

        def build(self, shape):
            self.unused = self.add_weight(name="unused", shape=SHAPES[At.UNUSED], initializer="zeros")
            self.built = True

        def call(self, x):
            return x

    return Unused


class FP16Compressor:
    """A user's own: only its name is that of one of ours."""

    @staticmethod
    def compress(tensor):
        return tensor * 2, "of compress"

    @staticmethod
    def decompress(tensor, ctx):
        assert ctx == "of compress"
        return tensor


def layers(of=keras, unused=None):
    """unused: another class for the layer between."""
    inner = [of.layers.Dense(WIDTH), (unused or unused_layer(of))(), of.layers.Dense(1)]
    if hasattr(of, "ops"):
        return [of.Input((WIDTH,)), *inner]
    return [of.layers.InputLayer(input_shape=(WIDTH,)), *inner]


def model(optimizer, kind=None, of=keras, **kwargs):
    """A compiled model with the weights of keras_steps.start().

    kind: a subclass of Sequential; of: another Keras than the one under test.
    """
    made = (kind or of.Sequential)(layers(of))
    set_weights(made, start())
    made.compile(optimizer=optimizer, loss="mse", **kwargs)
    if is_short() and FLAVOUR == "2" and os.path.basename(sys.argv[0]) in BUILT:
        inner = getattr(made.optimizer, "inner_optimizer", made.optimizer)
        if hasattr(inner, "build"):  # a legacy one has it not
            inner.build(made.trainable_variables)
    return made


def fit(made, steps=1, callbacks=(), first=0, **kwargs):
    """One epoch of this rank's steps, in order."""
    x, y = (np.concatenate(part) for part in zip(*[data(R, first + i) for i in range(steps)]))
    kwargs = {"epochs": 1, "shuffle": False, "verbose": 0, **kwargs}
    return made.fit(x, y, batch_size=ROWS, callbacks=list(callbacks), **kwargs)


def tensor(array):
    """A tensor of the back end."""
    if hasattr(keras, "ops"):
        return keras.ops.convert_to_tensor(array)
    import tensorflow as tf

    return tf.convert_to_tensor(array)


def weights(made):
    """As one vector, as keras_steps has them."""
    return joined(made.get_weights())


def set_weights(made, vector):
    made.set_weights(pieces(vector))
