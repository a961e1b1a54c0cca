#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains by Keras' fit(), and continues when workers are lost, or new, or all ended.

Lost workers: the survivors go back to the last commit, in memory. All have ended: the same command, with
any number of workers, resumes from the file, which rank 0 has written after each epoch.

    horovodrun -np 2 --min-np 1 --max-np 4 -H localhost:4 python3 elastic_keras_digits.py \
        --checkpoint digits.state

Needs Keras 3 with one of its back ends or TensorFlow 2.12 to 2.15 with its Keras 2, and scikit-learn.
Scripts with "from tensorflow import keras" use horovod.tensorflow.keras instead of horovod.keras.
"""

import argparse
import sys

import horovod.keras as hvd
import keras
from sklearn.datasets import load_digits


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=96, help="images of all workers in a step")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--checkpoint", metavar="FILE", help="written each epoch; there: resumed")
    parser.add_argument("--target", type=float, default=0.9, help="accuracy that must be reached")
    return parser.parse_args()


def say(text):
    """Prints on one worker only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def make_model(args):
    layers = [keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(args.lr, momentum=0.9)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Checkpoint(keras.callbacks.Callback):
    """Writes what the last commit has kept, by rank 0, so that a half-written file is never seen."""

    def __init__(self, state, path):
        super().__init__()
        self.state, self.path = state, path

    def on_epoch_end(self, epoch, logs=None):
        self.state.commit()
        self.state.save_to(self.path)
        say(f"epoch {self.state.epoch} on {hvd.size()} workers")


def main():
    args = parse_arguments()
    hvd.init()
    keras.utils.set_random_seed(1)
    digits = load_digits()
    images, labels = digits.images.reshape(-1, 64).astype("float32") / 16.0, digits.target
    held_out = [i % 5 == 0 for i in range(len(labels))]
    kept = [not out for out in held_out]
    model = make_model(args)
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    # No collective: a worker that joins later runs this too. run() sends rank 0's state to all.
    if args.checkpoint and state.load_from(args.checkpoint):
        say(f"resumed after epoch {state.epoch} on {hvd.size()} workers")
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=5),
    ]
    if args.checkpoint:
        callbacks.append(Checkpoint(state, args.checkpoint))

    @hvd.elastic.run
    def train(state):
        # this worker's share in this world: equal ones, so that all take as many steps
        n = sum(kept) // hvd.size() * hvd.size()
        share = slice(hvd.rank(), n, hvd.size())
        model.fit(
            images[kept][share],
            labels[kept][share],
            batch_size=max(1, args.batch_size // hvd.size()),
            epochs=args.epochs - state.epoch,  # the callback adds the epochs that are done
            callbacks=callbacks,
            verbose=0,
        )

    train(state)
    reached = model.evaluate(images[held_out], labels[held_out], verbose=0)[1]
    say(f"elastic_keras_digits: held-out accuracy {reached:.3f}")
    hvd.shutdown()
    if reached < args.target:
        sys.exit(f"elastic_keras_digits: accuracy {reached:.3f} is below the target {args.target}")


if __name__ == "__main__":
    main()
