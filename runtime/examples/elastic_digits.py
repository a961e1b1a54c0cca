#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on scikit-learn's handwritten digits, and continues when workers are lost, or new, or all ended.

Lost workers: the survivors go back to the last commit, in memory. All have ended: the same command, with
any number of workers, resumes from the file, which rank 0 has written after each epoch.

    horovodrun -np 2 --min-np 1 --max-np 4 -H localhost:4 python3 elastic_digits.py --checkpoint digits.pt

Needs torch (1.13 or later) and scikit-learn.
"""

import argparse
import sys

import horovod.torch as hvd
import torch
import torch.nn.functional as F
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


def load():
    """(training images, their labels, held-out images, their labels)"""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16.0
    labels = torch.tensor(digits.target)
    held_out = torch.arange(len(labels)) % 5 == 0
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def train_epoch(state, data, batch_size):
    loader = torch.utils.data.DataLoader(data, max(1, batch_size // hvd.size()), sampler=state.sampler)
    for i, (images, labels) in enumerate(loader):
        state.optimizer.zero_grad()
        F.cross_entropy(state.model(images), labels).backward()
        state.optimizer.step()
        state.sampler.record_batch(i, len(labels))
        if i % 5 == 4:
            state.commit()  # in memory: what a failure goes back to


def main():
    args = parse_arguments()
    torch.set_num_threads(1)  # the workers of a host share its cores
    hvd.init()
    torch.manual_seed(1)
    images, labels, held_out_images, held_out_labels = load()
    data = torch.utils.data.TensorDataset(images, labels)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(data)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
    # No collective: a worker that joins later runs this too. run() sends rank 0's state to all.
    if args.checkpoint and state.load_from(args.checkpoint):
        say(f"resumed after epoch {state.epoch} on {hvd.size()} workers")

    @hvd.elastic.run
    def train(state):
        while state.epoch < args.epochs:
            train_epoch(state, data, args.batch_size)
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)
            state.commit()
            if args.checkpoint:
                state.save_to(args.checkpoint)  # rank 0 writes, and a half-written file is never seen
            say(f"epoch {state.epoch} of {args.epochs} on {hvd.size()} workers")

    train(state)
    with torch.no_grad():
        reached = (model(held_out_images).argmax(1) == held_out_labels).float().mean().item()
    say(f"elastic_digits: held-out accuracy {reached:.3f}")
    hvd.shutdown()
    if reached < args.target:
        sys.exit(f"elastic_digits: accuracy {reached:.3f} is below the target {args.target}")


if __name__ == "__main__":
    main()
