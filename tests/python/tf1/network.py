# SPDX-License-Identifier: Apache-2.0
"""A module of the program beside its script: TensorFlow 1's names here, too."""

import tensorflow as tf


def logits_of(images):
    with tf.variable_scope("hidden"):
        w = tf.get_variable("w", [64, 32], initializer=tf.truncated_normal_initializer(stddev=0.1))
        b = tf.get_variable("b", [32], initializer=tf.constant_initializer(0.1))
        hidden = tf.nn.relu(tf.matmul(images, w) + b)
    w = tf.get_variable("w", [32, 10], initializer=tf.glorot_uniform_initializer())
    return tf.nn.bias_add(
        tf.matmul(hidden, w), tf.get_variable("b", [10], initializer=tf.zeros_initializer())
    )
