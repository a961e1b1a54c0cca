# SPDX-License-Identifier: Apache-2.0
"""Elastic training by a trainer that has the loop and calls hooks, as Lightning's does; leaves a record.

The script has no loop: a callback commits, another one writes the record. The position in the epoch is the
ElasticSampler's. Run by tests/python/test_elastic_loops.py; options: --help.
"""

import os
import sys
import time

import horovod.torch as hvd
import torch

IMPORTED_NS = time.monotonic_ns()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from loops import BATCH, Trace, parse_args  # noqa: E402
from model import Model, Samples  # noqa: E402


class Callback:
    def on_train_start(self, trainer):
        pass

    def on_train_batch_start(self, trainer, batch):
        pass

    def on_train_batch_end(self, trainer, batch, batch_idx):
        pass

    def on_train_epoch_end(self, trainer):
        pass


class Trainer:
    """Knows nothing of elastic jobs but where its epochs begin."""

    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks = max_epochs, callbacks
        self.current_epoch = 0

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *args)

    def fit(self, model, optimizer, make_loader, ckpt_epoch):
        self.current_epoch = ckpt_epoch
        self.call("on_train_start")
        while self.current_epoch < self.max_epochs:
            for i, batch in enumerate(make_loader()):
                self.call("on_train_batch_start", batch)
                optimizer.zero_grad()
                model.loss(*batch[1:]).backward()
                optimizer.step()
                model.finish_step(optimizer)
                self.call("on_train_batch_end", batch, i)
            self.current_epoch += 1
            self.call("on_train_epoch_end")


class Count(Callback):
    """The position of the training, in the state."""

    def __init__(self, state):
        self.state = state

    def on_train_batch_end(self, trainer, batch, batch_idx):
        self.state.sampler.record_batch(batch_idx, len(batch[0]))
        self.state.step += 1

    def on_train_epoch_end(self, trainer):
        self.state.epoch = trainer.current_epoch
        self.state.sampler.set_epoch(self.state.epoch)


class Record(Count):
    def on_train_start(self, trainer):
        trace.enter(self.state)

    def on_train_batch_start(self, trainer, batch):
        trace.begin(self.state, batch[0].tolist())

    def on_train_batch_end(self, trainer, batch, batch_idx):
        super().on_train_batch_end(trainer, batch, batch_idx)
        trace.end(self.state)


class Commit(Callback):
    """The last callback: it keeps what other callbacks count."""

    def __init__(self, state):
        self.state = state

    def on_train_batch_end(self, trainer, batch, batch_idx):
        self.state.commit()

    def on_train_epoch_end(self, trainer):
        self.state.commit()


class RecordedState(hvd.elastic.TorchState):
    def save(self):
        super().save()
        trace.save(self)


@hvd.elastic.run
def train(state):
    def make_loader():
        return torch.utils.data.DataLoader(samples, BATCH // hvd.size(), sampler=state.sampler)

    trainer = Trainer(args.epochs, [Record(state), Commit(state)])
    trainer.fit(state.model, state.optimizer, make_loader, state.epoch)


if __name__ == "__main__":
    args = parse_args()
    torch.set_num_threads(1)
    trace = Trace(hvd, hvd.allgather_object, args, IMPORTED_NS)
    hvd.init()
    model, samples = Model(), Samples(BATCH * args.steps)
    optimizer = hvd.DistributedOptimizer(
        model.optimizer(BATCH), named_parameters=model.named_parameters(), op=hvd.Sum
    )
    sampler = hvd.elastic.ElasticSampler(samples)
    state = RecordedState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0)
    train(state)
    trace.finish(state, len(samples), model.digest())
    hvd.shutdown()
