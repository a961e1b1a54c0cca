#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small CNN on scikit-learn's handwritten digits by Keras' fit(), each worker on its share.

    horovodrun -np 2 python3 keras_digits.py
    horovodrun -np 2 python3 keras_digits.py --checkpoint digits.keras   # resumes where it was stopped
    KERAS_BACKEND=torch horovodrun -np 2 python3 keras_digits.py         # or jax, with Keras 3

Needs Keras 3 with one of its back ends or TensorFlow 2.12 to 2.15 with its Keras 2, and scikit-learn.
Scripts with "from tensorflow import keras" use horovod.tensorflow.keras instead of horovod.keras.
"""

import argparse
import hashlib
import os
import sys

import horovod.keras as hvd
import keras
import numpy as np
from sklearn.datasets import load_digits


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate of one worker")
    parser.add_argument("--warmup-epochs", type=int, default=3, help="to reach the rate of all")
    parser.add_argument("--checkpoint", metavar="FILE.keras", help="saved each epoch; there: resumed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.9, help="accuracy that must be reached")
    return parser.parse_args()


def say(text):
    """Prints on one worker only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def load():
    """(train images, train labels, held-out images, held-out labels), the first two this worker's share.

    Shares are equal: a worker that took more steps than the other workers would wait for them forever.
    Held-out images are not shared out: means of shares that differ in size would not be the mean.
    """
    digits = load_digits()
    images = digits.images[..., None].astype("float32") / 16.0
    labels = digits.target.astype("int32")
    held_out = np.arange(len(labels)) % 5 == 0

    def share(array):
        return array[: len(array) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]

    return share(images[~held_out]), share(labels[~held_out]), images[held_out], labels[held_out]


def make_model(args):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.25),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    # n workers use n times the batch, so n times the rate; the callback below warms it up
    optimizer = keras.optimizers.SGD(args.lr * hvd.size(), momentum=0.9)
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def start(args, steps):
    """(model, finished epochs): rank 0's from its checkpoint, if it exists.

    Only rank 0 needs to see the file: the first callback sends its content to the other ranks.
    """
    if hvd.rank() == 0 and args.checkpoint and os.path.exists(args.checkpoint):
        model = hvd.load_model(args.checkpoint)  # with a distributed optimizer again
    else:
        model = make_model(args)
    done = int(hvd.broadcast(int(model.optimizer.iterations) // steps, root_rank=0, name="done"))
    if done:
        say(f"resumed after epoch {done} from {args.checkpoint}")
    return model, done


def same_weights(model):
    """Whether all workers hold the same weights, bit by bit; prints the result."""
    digest = hashlib.sha256(b"".join(np.asarray(w).tobytes() for w in model.get_weights())).digest()
    digests = hvd.allgather(np.array([list(digest[:8])], "uint8"), name="weights")
    hashes = [bytes(row).hex() for row in np.asarray(digests)]
    if len(set(hashes)) == 1:
        say(f"all {hvd.size()} workers hold identical weights (sha256 {hashes[0]})")
    else:
        say("the workers hold different weights: " + " ".join(hashes))
    return len(set(hashes)) == 1


def main():
    args = parse_arguments()
    hvd.init()
    keras.utils.set_random_seed(args.seed + hvd.rank())  # each worker its own order and dropout
    images, labels, held_out_images, held_out_labels = load()
    model, done = start(args, steps=-(-len(images) // args.batch_size))

    callbacks = [
        # all start with rank 0's state, which may be from a checkpoint
        hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
        # averages the metrics over the workers; before callbacks that use them
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(
            initial_lr=args.lr * hvd.size(), warmup_epochs=args.warmup_epochs
        ),
    ]
    if hvd.rank() == 0 and args.checkpoint:  # one writer only
        callbacks.append(keras.callbacks.ModelCheckpoint(args.checkpoint))
    history = model.fit(
        images,
        labels,
        batch_size=args.batch_size,
        initial_epoch=done,
        epochs=args.epochs,
        validation_data=(held_out_images, held_out_labels),
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    ).history

    same = same_weights(model)
    if not history:
        sys.exit(f"keras_digits: {args.checkpoint} has all {done} epochs already")
    reached = history["val_accuracy"][-1]
    say(f"keras_digits by {keras.backend.backend()}: held-out accuracy {reached:.3f}")
    hvd.shutdown()
    if reached < args.target:
        sys.exit(f"keras_digits: accuracy {reached:.3f} is below the target {args.target}")
    if not same:
        sys.exit("keras_digits: the workers hold different weights")


if __name__ == "__main__":
    main()
