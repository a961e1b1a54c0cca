# SPDX-License-Identifier: Apache-2.0
"""For the keras_*.py scripts: the Keras under test, as $WANT_KERAS names it.

"3": keras by itself on $KERAS_BACKEND, through horovod.keras. "2", "2 legacy": tf.keras through
horovod.tensorflow.keras, with optimizers of the new kind or the legacy ones.
"""

import os
import sys

from checks import check

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
assert hasattr(keras, "ops") == IS_3, f"WANT_KERAS={FLAVOUR}, but this is Keras {keras.__version__}"
hvd.init()
R, N = hvd.rank(), hvd.size()


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
