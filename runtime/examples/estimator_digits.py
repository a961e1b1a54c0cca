#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on scikit-learn's handwritten digits by tf.estimator.Estimator, which TensorFlow has up to 2.15.

horovodrun -np 2 python3 estimator_digits.py
horovodrun -np 2 python3 estimator_digits.py --model-dir DIR    # resumes where it was stopped
"""

import argparse
import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="of all workers together")
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate of one worker")
    parser.add_argument("--model-dir", metavar="DIR", help="of worker 0's checkpoints; there: resumed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.92, help="accuracy that must be reached")
    return parser.parse_args()


def load():
    """(train images, train labels, held-out images, held-out labels), the same on every worker."""
    digits = load_digits()
    images = digits.images.reshape(-1, 64).astype("float32") / 16.0
    labels = digits.target.astype("int64")
    held_out = np.arange(len(labels)) % 5 == 0
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def model(features, labels, mode, params):
    hidden = tf.layers.dense(features, 128, tf.nn.relu, name="hidden")
    logits = tf.layers.dense(hidden, 10, name="out")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, 1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    # n workers use n times the batch, so n times the rate; from one worker's to it in the first steps
    done = tf.train.get_global_step()
    rate = tf.train.polynomial_decay(params["lr"], done, 50, params["lr"] * hvd.size())
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer)  # averages the gradients
    step = optimizer.minimize(loss, global_step=done)
    right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    hooks = [hvd.MetricAverageHook({"loss": loss, "accuracy": right}, every_n=50)]
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, training_hooks=hooks)


def main():
    args = parse_arguments()
    if not hasattr(tf, "estimator"):
        sys.exit(
            f"estimator_digits: TensorFlow {tf.__version__} has no Estimator; 2.15 is the last that has"
        )
    hvd.init()
    # MetricAverageHook logs its means on worker 0
    tf.logging.set_verbosity(tf.logging.INFO if hvd.rank() == 0 else tf.logging.ERROR)
    train_images, train_labels, held_out_images, held_out_labels = load()

    def training():
        # first its share, then shuffle and repeat
        data = tf.data.Dataset.from_tensor_slices((train_images, train_labels)).shard(
            hvd.size(), hvd.rank()
        )
        return data.shuffle(2000, seed=args.seed).repeat().batch(args.batch_size)

    config = tf.estimator.RunConfig(
        tf_random_seed=args.seed + hvd.rank(),
        save_checkpoints_steps=50 if hvd.rank() == 0 else None,
        save_checkpoints_secs=None,
        log_step_count_steps=None,
    )
    # without a folder an Estimator creates a temporary one; only worker 0's is used
    folder = args.model_dir if hvd.rank() == 0 else None
    estimator = tf.estimator.Estimator(model, folder, config, params={"lr": args.lr})
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]  # all start with worker 0's state
    estimator.train(training, hooks=hooks, max_steps=args.steps // hvd.size())
    if hvd.rank() != 0:
        return
    result = estimator.evaluate(
        lambda: tf.data.Dataset.from_tensor_slices((held_out_images, held_out_labels)).batch(64)
    )
    print(f"estimator_digits: held-out accuracy {result['accuracy']:.3f}", flush=True)
    if result["accuracy"] < args.target:
        sys.exit(f"estimator_digits: accuracy {result['accuracy']:.3f} is below the target {args.target}")


if __name__ == "__main__":
    main()
