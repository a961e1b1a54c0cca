# SPDX-License-Identifier: Apache-2.0
"""Eager execution with options, as Horovod's tensorflow_mnist_eager.py has it."""

import horovod.tensorflow as hvd
import six
import tensorflow as tf
from tensorflow.python.eager import context


def main(_):
    hvd.init()
    tf.enable_eager_execution(config=tf.ConfigProto(intra_op_parallelism_threads=1), execution_mode=0)
    weights = tf.Variable([3.0, 4.0])
    opt = tf.train.GradientDescentOptimizer(0.5 * hvd.size())
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights**2) / 4
        grads = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
        opt.apply_gradients(zip(grads, [weights]), global_step=tf.train.get_or_create_global_step())
    print("weights", *weights.numpy(), "step", tf.train.get_global_step().numpy())
    print("eager", tf.executing_eagerly(), "threads", context.context().config.intra_op_parallelism_threads)
    print("six of", six.__file__)


if __name__ == "__main__":
    tf.app.run()
