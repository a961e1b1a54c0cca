# SPDX-License-Identifier: Apache-2.0
"""For the keras_*.py scripts: the Keras under test, as $WANT_KERAS names it.

"3": keras by itself on $KERAS_BACKEND, through horovod.keras. "2", "2 legacy": tf.keras through
horovod.tensorflow.keras, with optimizers of the new kind or the legacy ones.
"""

import functools
import json
import os
import sys
import warnings

import numpy as np
from checks import check
from keras_steps import ROWS, SHAPES, UNUSED, WIDTH, close, data, joined, pieces, sgd_steps, start

FLAVOUR = os.environ["WANT_KERAS"]
if FLAVOUR == "3":
    import horovod.keras as hvd
    import keras

    BACKEND = keras.backend.backend()
else:
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    keras = tf.keras
    BACKEND = "tensorflow"
IS_3 = FLAVOUR == "3"
# Keras 2 makes an optimizer's variables within the first trace of a step, which TensorFlow then does again. These
# scripts make them before in `short`: what the others do, and test-full, is with variables of the trace.
BUILT = ("keras_options.py",)
SUFFIX = "keras" if FLAVOUR == "3" else "h5"  # of files with models
assert hasattr(keras, "ops") == IS_3, f"WANT_KERAS={FLAVOUR}, but this is Keras {keras.__version__}"
if BACKEND == "tensorflow":
    import tensorflow as tf
hvd.init()
R, N = hvd.rank(), hvd.size()


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
            self.unused = self.add_weight(name="unused", shape=SHAPES[UNUSED], initializer="zeros")
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


def layers(of=keras):
    inner = [of.layers.Dense(WIDTH), unused_layer(of)(), of.layers.Dense(1)]
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


def weights(made):
    """As one vector, as keras_steps has them."""
    return joined(made.get_weights())


def set_weights(made, vector):
    made.set_weights(pieces(vector))


def expect_weights(made, want, what=""):
    close(weights(made), want, f"{FLAVOUR} {BACKEND} {what}")


def expect_trained(what, optimizer, kind=None, of=keras, factor=N, lr=0.1, steps=1, passes=1, **kwargs):
    """A model that is compiled with this optimizer learns what SGD does with the sum of the gradients (factor=1:
    with their average); returns it. kwargs: options of compile()."""
    made = model(optimizer, kind, of, **kwargs)
    fit(made, steps * passes)
    expect_weights(made, sgd_steps(N, lr, steps, passes, factor), what)
    return made


def expect_alike(vector, what=""):
    """Every rank has this vector."""
    every = np.asarray(hvd.allgather(np.reshape(vector, (1, -1))))
    for rank in range(N):
        close(every[rank], every[0], f"{what}: rank {rank} and rank 0")


def expect_operations(number, function):
    """Calls function, during which rank 0 must take part in so many operations, by its timeline."""
    path = os.path.join(os.environ["CHECKS_DIR"], "timeline.json")
    if R == 0:
        hvd.start_timeline(path)
    function()
    if R == 0:
        hvd.stop_timeline()
    behind = "behind the timeline"
    hvd.allreduce(1.0, name=behind)  # what comes next on other ranks would else be in it, too
    if R == 0:
        with open(path) as f:
            events = json.load(f)
        names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
        said = [names[e["pid"]] for e in events if e.get("name", "").startswith("NEGOTIATE_")]
        said = [name for name in said if not name.endswith(behind)]
        assert len(said) == (number if N > 1 else 0), said


def expect_warning(words, function):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = function()
    texts = [str(w.message) for w in said]
    assert any(all(word in text for word in words) for text in texts), (words, texts)
    return result


def is_short():
    return "short" in sys.argv


def in_full(function):
    """A check that `short` leaves out."""
    return function if is_short() else check(function)


def on_one(function):
    """A check that `short` leaves to torch and Keras 2: no line of ours that it runs asks which back end it is,
    but for the reduction, which other checks have. torch's fit() is the cheapest, as nothing is compiled."""
    return function if is_short() and IS_3 and BACKEND != "torch" else check(function)


def ways():
    """Options of compile(); {}: jit_compile="auto" in Keras 3."""
    return [{}] if is_short() else [{}, {"run_eagerly": True}]
