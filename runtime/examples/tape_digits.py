#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small CNN on scikit-learn's handwritten digits by a custom loop: DistributedGradientTape.

    horovodrun -np 2 python3 tape_digits.py
    horovodrun -np 2 python3 tape_digits.py --checkpoint-dir ckpt   # resumes where it was stopped

Needs TensorFlow 2.12 or later and scikit-learn.
"""

import argparse
import hashlib
import os
import sys

import horovod.tensorflow as hvd
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow import keras


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate of one worker")
    parser.add_argument("--warmup-epochs", type=int, default=3, help="to reach the rate of all")
    parser.add_argument("--checkpoint-dir", metavar="DIR", help="saved each epoch; there: resumed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.9, help="accuracy that must be reached")
    return parser.parse_args()


def say(text):
    """Prints on one worker only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def pick_devices():
    """One GPU for each worker of this host; without GPUs the workers share its cores."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    else:
        threads = max(1, len(os.sched_getaffinity(0)) // hvd.local_size())
        tf.config.threading.set_intra_op_parallelism_threads(threads)


def load():
    """(train images, train labels, held-out images, held-out labels), the same on every worker."""
    digits = load_digits()
    images = digits.images[..., None].astype("float32") / 16.0
    labels = digits.target.astype("int64")
    held_out = [i % 5 == 0 for i in range(len(labels))]
    train = [not h for h in held_out]
    return images[train], labels[train], images[held_out], labels[held_out]


def make_model():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def train_step(model, optimizer):
    """The function of a step; only one line is Horovod's."""
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step


def accuracy(model, images, labels):
    """Of all images, on every worker: means of shares that differ in size would not be the mean."""
    right = tf.argmax(model(images, training=False), axis=1) == labels
    return float(tf.reduce_mean(tf.cast(right, tf.float32)))


def same_weights(model):
    """Whether all workers hold the same weights, bit by bit; prints the result."""
    digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.trainable_variables))
    hashes = hvd.allgather_object(digest.hexdigest()[:16])
    if len(set(hashes)) == 1:
        say(f"all {hvd.size()} workers hold identical weights (sha256 {hashes[0]})")
    else:
        say("the workers hold different weights: " + " ".join(hashes))
    return len(set(hashes)) == 1


def main():
    args = parse_arguments()
    hvd.init()
    pick_devices()
    tf.random.set_seed(args.seed + hvd.rank())
    images, labels, held_out_images, held_out_labels = load()
    # first its share, then shuffle and repeat: otherwise workers would see some images twice, others never
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shard(hvd.size(), hvd.rank())
    batches = iter(data.shuffle(len(labels)).repeat().batch(args.batch_size))
    steps = len(labels) // args.batch_size // hvd.size()  # of an epoch, as many on every worker

    model = make_model()
    # n workers use n times the batch, so n times the rate; from one worker's to it in the first epochs
    rate = keras.optimizers.schedules.PolynomialDecay(
        args.lr, args.warmup_epochs * steps, args.lr * hvd.size()
    )
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    optimizer.build(model.trainable_variables)
    done = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=done)
    manager = None
    if hvd.rank() == 0 and args.checkpoint_dir:  # one writer only
        manager = tf.train.CheckpointManager(checkpoint, args.checkpoint_dir, max_to_keep=1)
        checkpoint.restore(manager.latest_checkpoint)
    # all start with rank 0's state; only rank 0 needs the files
    for variables in (model.variables, optimizer.variables, [done]):
        hvd.broadcast_variables(variables, root_rank=0)
    if int(done):
        say(f"resumed after epoch {int(done)} from {args.checkpoint_dir}")

    step = train_step(model, optimizer)
    while int(done) < args.epochs:
        losses = [step(*next(batches)) for _ in range(steps)]
        mean = hvd.allreduce(tf.add_n(losses) / steps, name="loss")  # of all workers
        done.assign_add(1)
        say(f"epoch {int(done)}  loss {float(mean):.4f}")
        if manager:
            manager.save()

    reached = accuracy(model, held_out_images, held_out_labels)
    same = same_weights(model)
    say(f"tape_digits: held-out accuracy {reached:.3f}")
    hvd.shutdown()
    if reached < args.target:
        sys.exit(f"tape_digits: accuracy {reached:.3f} is below the target {args.target}")
    if not same:
        sys.exit("tape_digits: the workers hold different weights")


if __name__ == "__main__":
    main()
