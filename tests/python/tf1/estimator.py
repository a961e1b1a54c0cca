# SPDX-License-Identifier: Apache-2.0
"""tf.estimator.Estimator with tf.layers, as Horovod 0.18's tensorflow_mnist_estimator.py does."""

import horovod.tensorflow as hvd
import tensorflow as tf
from digits import batches

tf.logging.set_verbosity(tf.logging.ERROR)


def cnn_model_fn(features, labels, mode):
    images = tf.reshape(features["x"], [-1, 8, 8, 1])
    conv = tf.layers.conv2d(images, filters=8, kernel_size=[3, 3], padding="same", activation=tf.nn.relu)
    pool = tf.layers.max_pooling2d(conv, pool_size=[2, 2], strides=2)
    dense = tf.layers.dense(tf.layers.flatten(pool), units=32, activation=tf.nn.relu)
    dropout = tf.layers.dropout(dense, rate=0.1, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = tf.layers.dense(inputs=dropout, units=10)
    onehot_labels = tf.one_hot(indices=tf.cast(labels, tf.int32), depth=10)
    loss = tf.losses.softmax_cross_entropy(onehot_labels=onehot_labels, logits=logits)
    if mode == tf.estimator.ModeKeys.TRAIN:
        # Horovod: scale learning rate by the number of workers, add Horovod Distributed Optimizer
        optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.02 * hvd.size(), momentum=0.9))
        train_op = optimizer.minimize(loss=loss, global_step=tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=train_op)
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss)


def main(unused_argv):
    hvd.init()
    x, y = next(batches(hvd.rank(), 640))
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    # Horovod: save checkpoints only on worker 0 to prevent other workers from corrupting them.
    model_dir = "./mnist_convnet_model" if hvd.rank() == 0 else None
    estimator = tf.estimator.Estimator(
        model_fn=cnn_model_fn, model_dir=model_dir, config=tf.estimator.RunConfig(session_config=config)
    )
    bcast_hook = hvd.BroadcastGlobalVariablesHook(0)
    losses, inputs = [], tf.estimator.inputs.numpy_input_fn
    for steps in (1, 60):
        estimator.train(inputs({"x": x}, y, 32, None, True), hooks=[bcast_hook], steps=steps)
        losses.append(estimator.evaluate(inputs({"x": x}, y, 128, 1, False))["loss"])
    names = sorted(name for name in estimator.get_variable_names() if "Momentum" not in name)
    held = sum(float(estimator.get_variable_value(name).sum()) for name in names)
    print(f"rank {hvd.rank()}: loss {losses[0]:.4f} to {losses[-1]:.4f}, weights {held!r}")


if __name__ == "__main__":
    tf.app.run()
