# SPDX-License-Identifier: Apache-2.0
"""Elastic training by Keras' fit() that leaves a record.

fit() counts epochs and batches from 0 each time, and UpdateBatchStateCallback sets what it counts, as
Horovod's does. So the finished steps of an epoch are counted in an attribute of the state, by a callback
before the one that commits. After a reset the first fit() is the rest of the epoch. Run by
tests/python/test_elastic_fit.py; options: --help.
"""

import hashlib
import os
import random
import sys
import time

import horovod.keras as hvd
import keras
import numpy as np
from horovod.tensorflow import allgather_object

IMPORTED_NS = time.monotonic_ns()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from loops import BATCH, Trace, parse_args  # noqa: E402


class Rest(keras.utils.PyDataset):
    """The batches of this rank in an epoch, after its first steps. Keras reads them in advance."""

    def __init__(self, epoch, first):
        super().__init__()
        self.first, self.rank, self.size = first, hvd.rank(), hvd.size()
        self.order = list(range(BATCH * args.steps))
        random.Random(epoch).shuffle(self.order)

    def __len__(self):
        return args.steps - self.first

    def __getitem__(self, i):
        begin = (self.first + i) * BATCH
        samples = np.array(self.order[begin + self.rank : begin + BATCH : self.size])
        inputs = np.stack([samples, samples % 7, samples % 5], axis=1).astype("float32")
        return inputs, (samples % 3).astype("float32")


class Recorded(keras.Model):
    """Records the samples that a step is given; they are the first input."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x / (BATCH * args.steps))

    def train_step(self, data):
        trace.begin(state, [int(x) for x in np.array(data[0])[:, 0]])
        return super().train_step(data)


class Count(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        state.step += 1
        state.finished += 1
        trace.end(state)

    def on_epoch_end(self, epoch, logs=None):
        state.finished = 0


class RecordedState(hvd.elastic.KerasState):
    def save(self):
        super().save()
        trace.save(self)


def digest():
    sha = hashlib.sha256()
    for value in model.get_weights():
        sha.update(value.tobytes())
    return sha.hexdigest()


@hvd.elastic.run
def train(state):
    trace.enter(state)
    callbacks = [
        Count(),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state),
    ]
    if state.finished == args.steps:  # interrupted by the commit of the epoch's last step
        state.epoch, state.finished = state.epoch + 1, 0
    while state.epoch < args.epochs:
        model.fit(
            Rest(state.epoch, state.finished), epochs=1, callbacks=callbacks, verbose=0, shuffle=False
        )


if __name__ == "__main__":
    args = parse_args()
    trace = Trace(hvd, allgather_object, args, IMPORTED_NS)
    hvd.init()
    keras.utils.set_random_seed(1)
    model = Recorded()
    model.build((None, 3))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.5))
    model.compile(optimizer, "mse", run_eagerly=True)
    state = RecordedState(model, epoch=0, batch=0, step=0, finished=0)
    train(state)
    trace.finish(state, BATCH * args.steps, digest())
    hvd.shutdown()
