# SPDX-License-Identifier: Apache-2.0
"""n ranks learn by Keras' fit() what one learns: the same joined batches for every n, on any Keras.

The model and the data are those of runtime/examples/keras_digits.py, without dropout, so that shares compute what
the joined batch does. Rank 0 also trains alone, on joined batches in the same order, by an optimizer that
is not wrapped; that is what the others are compared with.

Tolerances. One step of SGD without momentum moves a weight by its gradient alone, so gradients are read from
weights: they differ by the order of float32 sums and by the rounding of the weight itself, 2^-24 of it;
allowed is 1e-4 of the tensor's largest change. A whole training: rounding is amplified by the steps that
follow, so accuracies are compared: the same but for 4 of 360 held-out images.
"""

import os
import sys

import horovod.keras as hvd
import keras
import numpy as np
from checks import check, main

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../runtime/examples"))
import keras_digits

hvd.init()
R, N = hvd.rank(), hvd.size()
BATCH = 48  # of all ranks together: 1, 2, 3 and 4 divide it
HVD = keras_digits.hvd


class World:
    """What keras_digits.load() asks: all data."""

    rank, size = staticmethod(lambda: 0), staticmethod(lambda: 1)


keras_digits.hvd = World
IMAGES, LABELS, HELD_OUT, HELD_OUT_LABELS = keras_digits.load()
keras_digits.hvd = HVD


def make(optimizer):
    keras.utils.set_random_seed(3)
    layers = keras.layers
    model = keras.Sequential(
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
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    return model


def joined(epochs):
    """Images and labels of all batches of the epochs in order: equal on all ranks."""
    order = np.random.RandomState(5)
    steps = len(IMAGES) // BATCH
    return np.concatenate([order.permutation(len(IMAGES))[: steps * BATCH] for _ in range(epochs)])


def fit(model, indices, together):
    """Trains on the joined batches, or on this rank's share of each."""
    size = BATCH // N if together else BATCH
    if together:
        indices = indices.reshape(-1, BATCH)[:, R::N].reshape(-1)
    model.fit(IMAGES[indices], LABELS[indices], batch_size=size, epochs=1, shuffle=False, verbose=0)
    return model


def momentum():
    return keras.optimizers.SGD(0.05, momentum=0.9)


def right(model):
    return int((model.predict(HELD_OUT, verbose=0).argmax(1) == HELD_OUT_LABELS).sum())


@check
def gradients_are_those_of_the_joined_batch():
    alone = make(keras.optimizers.SGD(1.0))
    fit(alone, joined(1)[:BATCH], together=False)
    for wrapped in (True, False):
        optimizer = keras.optimizers.SGD(1.0)
        ours = make(hvd.DistributedOptimizer(optimizer) if wrapped else optimizer)
        before = [w.copy() for w in ours.get_weights()]
        fit(ours, joined(1)[:BATCH], together=True)
        gaps = []
        for w, a, b in zip(before, ours.get_weights(), alone.get_weights()):
            largest = np.abs(b - w).max()
            assert largest > 1e-6, "the gradient is zero, which proves nothing"
            gaps.append(np.abs(a - b).max() / largest)
        if wrapped:
            assert max(gaps) <= 1e-4, f"{max(gaps):.2e} of the largest element apart"
        else:  # without exchange it would not be
            assert (max(gaps) <= 1e-4) == (N == 1), gaps


@check
def n_ranks_reach_the_accuracy_of_one():
    together = fit(make(hvd.DistributedOptimizer(momentum())), joined(6), together=True)
    theirs = right(fit(make(momentum()), joined(6), together=False)) if R == 0 else 0
    theirs = int(np.asarray(hvd.broadcast([theirs], 0, name="alone"))[0])
    ours = right(together)
    assert ours >= 0.96 * len(HELD_OUT), f"{ours} of {len(HELD_OUT)} right"
    assert abs(ours - theirs) <= 4, f"{ours} of {len(HELD_OUT)} right, one rank alone: {theirs}"
    assert keras_digits.same_weights(together), "ranks hold different weights"


main(R)
