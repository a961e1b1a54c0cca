# SPDX-License-Identifier: Apache-2.0
"""A MonitoredTrainingSession with hooks, as the first page of Horovod 0.18 prints it; on digits made up."""

import horovod.tensorflow as hvd
import tensorflow as tf
from digits import batches
from network import logits_of

tf.app.flags.DEFINE_integer("steps", 80, "steps of all workers together")
tf.app.flags.DEFINE_string("checkpoints", "checkpoints", "folder of rank 0's checkpoints")
FLAGS = tf.app.flags.FLAGS


def main(_):
    # Initialize Horovod
    hvd.init()
    tf.set_random_seed(hvd.rank())  # weights that differ until the broadcast

    # Build model...
    images = tf.placeholder(tf.float32, [None, 64], name="images")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    with tf.variable_scope("network"):
        logits = logits_of(images)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    opt = tf.train.AdagradOptimizer(0.05 * hvd.size())

    # Pin GPU to be used to process local rank (one GPU per process)
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.per_process_gpu_memory_fraction = 0.5
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    # Add Horovod Distributed Optimizer
    opt = hvd.DistributedOptimizer(opt)
    global_step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=global_step)

    hooks = [
        # Broadcast initial variable states from rank 0 to all other processes
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=FLAGS.steps // hvd.size()),
        tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=10),
    ]
    # Save checkpoints only on worker 0 to prevent other workers from corrupting them
    checkpoint_dir = FLAGS.checkpoints if hvd.rank() == 0 else None
    weights = tf.concat([tf.reshape(v, [-1]) for v in tf.trainable_variables()], axis=0)
    data = batches(hvd.rank(), 32)
    losses = []
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir, config=config, hooks=hooks, save_checkpoint_steps=20
    ) as mon_sess:
        while not mon_sess.should_stop():
            # Perform synchronous training
            x, y = next(data)
            _, value, held = mon_sess.run([train_op, loss, weights], feed_dict={images: x, labels: y})
            losses.append(value)
    print(f"rank {hvd.rank()}: loss {losses[0]:.4f} to {losses[-1]:.4f}, weights {held.sum()!r}")


if __name__ == "__main__":
    tf.app.run()
