#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on scikit-learn's handwritten digits in TensorFlow 1's way: graph, session, hooks.

    horovodrun -np 2 python3 tf1_digits.py
    horovodrun -np 2 python3 tf1_digits.py --checkpoint-dir ckpt    # resumes where it was stopped

Needs TensorFlow 2.12 or later, whose tensorflow.compat.v1 it uses, and scikit-learn.
"""

import argparse
import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="of all workers together")
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate of one worker")
    parser.add_argument("--warmup-steps", type=int, default=50, help="to reach the rate of all")
    parser.add_argument("--checkpoint-dir", metavar="DIR", help="saved at times; there: resumed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.92, help="accuracy that must be reached")
    return parser.parse_args()


def load():
    """(train images, train labels, held-out images, held-out labels), the same on every worker."""
    digits = load_digits()
    images, labels = (
        digits.data if hasattr(digits, "data") else digits.images.reshape(-1, 64),
        digits.target,
    )
    images, held_out = images.astype("float32") / 16.0, np.arange(len(labels)) % 5 == 0
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def dense(x, outputs, name):
    with tf.variable_scope(name):
        shape = [int(x.shape[-1]), outputs]
        weights = tf.get_variable("weights", shape, initializer=tf.glorot_uniform_initializer())
        return tf.matmul(x, weights) + tf.get_variable("bias", outputs, initializer=tf.zeros_initializer())


def make_graph(args, data):
    """(images, labels, mean loss of all workers, accuracy, step) of the graph.

    Images and labels are the next ones of the training data where nothing is fed.
    """
    images, labels = tf.data.make_one_shot_iterator(data).get_next()
    images, labels = (
        tf.placeholder_with_default(images, [None, 64]),
        tf.placeholder_with_default(labels, [None]),
    )
    logits = dense(tf.nn.relu(dense(images, 128, "hidden")), 10, "out")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    # n workers use n times the batch, so n times the rate; from one worker's to it in the first steps
    done = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(args.lr, done, args.warmup_steps, args.lr * hvd.size())
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer)  # averages the gradients
    step = optimizer.minimize(loss, global_step=done)
    return images, labels, hvd.allreduce(loss, name="loss"), accuracy, step


def main():
    args = parse_arguments()
    hvd.init()
    tf.disable_eager_execution()
    tf.set_random_seed(args.seed + hvd.rank())
    train_images, train_labels, held_out_images, held_out_labels = load()
    # first its share, then shuffle and repeat: otherwise workers would see some images twice, others never
    data = tf.data.Dataset.from_tensor_slices((train_images, train_labels)).shard(hvd.size(), hvd.rank())
    data = data.shuffle(2000, seed=args.seed).repeat().batch(args.batch_size)
    images, labels, mean_loss, accuracy, step = make_graph(args, data)
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())  # one GPU for each worker of a host
    done = tf.train.get_global_step()
    with tf.train.MonitoredTrainingSession(
        # one writer only
        checkpoint_dir=args.checkpoint_dir if hvd.rank() == 0 else None,
        hooks=[hvd.BroadcastGlobalVariablesHook(0)],  # all start as rank 0 does, from its checkpoint too
        config=config,
        save_checkpoint_steps=50,
        save_checkpoint_secs=None,
    ) as session:
        first, last = session.run(done), args.steps // hvd.size()
        losses = []
        for number in range(first, last):
            losses.append(session.run([step, mean_loss])[1])
            if hvd.rank() == 0 and (number + 1) % 50 == 0:
                print(f"step {number + 1}  loss {np.mean(losses[-50:]):.4f}", flush=True)
        # all held-out images on every worker: means of shares that differ in size would not be the mean
        reached = session.run(accuracy, {images: held_out_images, labels: held_out_labels})
    if hvd.rank() == 0:
        resumed = f", resumed after step {first}" if first else ""
        print(f"tf1_digits: held-out accuracy {reached:.3f} after {last} steps{resumed}", flush=True)
    if reached < args.target:
        sys.exit(f"tf1_digits: accuracy {reached:.3f} is below the target {args.target}")


if __name__ == "__main__":
    main()
