#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Elastic training that leaves a record: what tests, chaos.py and tests/bench/elastic.py run.

Uses Horovod's API only, so that it runs unchanged under the original 0.28.1. Options: --help.

A step takes the next --batch samples of the epoch's order, in a world of any size that divides --batch:
rank r of n takes every n-th of them. The model at the end depends on nothing else (model.py), so it has
the same bits whatever happened to the job.
"""

import argparse
import os
import sys
import time

import horovod.torch as hvd
import torch

IMPORTED_NS = time.monotonic_ns()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from model import Model, Samples  # noqa: E402
from record import Writer, next_world  # noqa: E402


class RecordedState(hvd.elastic.TorchState):
    """commit() is save() and then a collective; what is saved is committed even where that one fails."""

    def save(self):
        super().save()
        if recorder.world:
            recorder.writer.add("save", recorder.world, self.step)


class Recorder:
    """This process' record and the world that it is in (0: none yet)."""

    def __init__(self, writer):
        self.writer, self.world = writer, 0

    def enter(self, state):
        """Called by all ranks of a new world, when they have the same state."""
        self.world = max(hvd.allgather_object(next_world(self.world)))
        self.writer.add("world", self.world, hvd.size(), hvd.rank(), state.epoch, state.step)

    def add_try(self, state, samples):
        self.writer.add("try", self.world, state.epoch, state.step + 1, hvd.rank(), samples)


def share_of(batch):
    """Samples of a rank in a step."""
    if batch % hvd.size():
        sys.exit(f"train.py: --batch {batch} is not a multiple of {hvd.size()} ranks; 840 is of 1 to 8")
    return batch // hvd.size()


def is_over(state):
    """The same on all ranks: rank 0 decides. With --until only between epochs; a reset may be in one."""
    if args.until is None:
        return state.epoch >= args.epochs
    if state.sampler.processed_num:
        return False
    return hvd.broadcast_object(os.path.exists(args.until), root_rank=0, name="is_over")


def train_epoch(state):
    loader = torch.utils.data.DataLoader(state.sampler.dataset, share_of(args.batch), sampler=state.sampler)
    for i, (samples, inputs, targets) in enumerate(loader):
        began = time.monotonic()
        recorder.add_try(state, samples.tolist())
        state.optimizer.zero_grad()
        state.model.loss(inputs, targets).backward()
        state.optimizer.step()
        state.model.finish_step(state.optimizer)
        state.sampler.record_batch(i, len(samples))
        state.step += 1
        time.sleep(max(0.0, began + args.pace - time.monotonic()))
        if state.step % args.commit_every == 0:
            state.commit()


@hvd.elastic.run
def train(state):
    recorder.enter(state)
    while not is_over(state):
        train_epoch(state)
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


def main():
    model, samples = Model(), Samples(args.batch * args.steps)
    optimizer = hvd.DistributedOptimizer(
        model.optimizer(args.batch), named_parameters=model.named_parameters(), op=hvd.Sum
    )
    sampler = hvd.elastic.ElasticSampler(samples)
    state = RecordedState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0)
    train(state)
    if hvd.rank() == 0:
        recorder.writer.add("end", state.epoch, state.step, len(samples), model.digest())
        print(f"train.py: {state.epoch} epochs, {state.step} steps, model {model.digest()}", flush=True)
    hvd.shutdown()


def parse_args():
    parser = argparse.ArgumentParser(description="Elastic training that leaves a record.")
    parser.add_argument("--records", metavar="DIR", required=True, help="where the record goes")
    parser.add_argument("--steps", type=int, default=50, help="of an epoch (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=24, help="samples of all ranks (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--until", metavar="FILE", help="train until an epoch has ended and FILE exists")
    parser.add_argument("--commit-every", type=int, default=1, metavar="STEPS")
    parser.add_argument(
        "--pace", type=float, default=0, metavar="S", help="seconds that a step takes at least"
    )
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    torch.set_num_threads(1)
    recorder = Recorder(Writer(args.records, IMPORTED_NS))
    hvd.init()
    main()
