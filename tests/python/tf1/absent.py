# SPDX-License-Identifier: Apache-2.0
"""Prints what a program reads that uses names which this TensorFlow does not have; and who sees TensorFlow 1."""

import sys

import _hvd.tensorflow.functions
import library
import tensorflow as tf
from network import tf as of_network
from package.below import tf as of_package

assert of_network is tf is of_package
assert sys.modules["tensorflow"] is _hvd.tensorflow.functions.tf is library.tf is library.when_called()
assert tf is not library.tf and tf.__version__ == library.tf.__version__
assert tf.compat.v1 is tf and tf.compat.as_bytes("a") == b"a" and not tf.executing_eagerly()
assert "Session" in dir(tf) and not hasattr(library.tf, "Session")

with tf.Session() as session:
    try:
        session.run(tf.check_numerics(tf.constant(1.0) / tf.constant(0.0), "no number"))
    except tf.errors.InvalidArgumentError as e:
        assert "absent.py" in str(e) and "compat/tf1.py" not in str(e) and "runpy" not in str(e), e

STATEMENTS = """
tf.contrib.layers.xavier_initializer()
import tensorflow.contrib.slim as slim
from tensorflow import contrib
from tensorflow.examples.tutorials.mnist import input_data
tf.estimator.Estimator
from tensorflow.estimator import RunConfig
tf.estimator.ModeKeys.TRAIN
tf.layers.dense
from tensorflow.layers import dense
tf.nn.rnn_cell.LSTMCell
from tensorflow.keras.backend import set_session
import keras; keras.backend.get_session
tf.Sitzung
import tensorflow.nowhere
from tensorflow import nowhere
from tensorflow.python.framework import ops; ops.Graph
import tensorflow.python.framework.ops as ops; ops.Graph
import tensorflow.keras.layers as L; L.Dense
from tensorflow import *; Session, placeholder
import tensorflow.compat.v1.keras.backend as K; K.epsilon
__import__("tensorflow").Session
"""
for statement in STATEMENTS.strip().splitlines():
    try:
        exec(statement, {"tf": tf})
    except Exception as e:
        print(f"{statement} -> {type(e).__name__}: {e}")
    else:
        print(f"{statement} -> works")
