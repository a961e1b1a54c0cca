#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small CNN on scikit-learn's handwritten digits with torch's own DistributedDataParallel.

Nothing here is Horovod's: this is a script for torch.distributed that names another back end. What a
script for Gloo needs to run on this runtime is the import (which the wheel makes unnecessary from
PyTorch 2.5 on) and the name.

    horovodrun -np 2 python3 train_ddp.py
    torchrun --nproc_per_node 2 train_ddp.py
    mpirun -np 2 python3 train_ddp.py
    torchrun --nproc_per_node 2 train_ddp.py --backend gloo   # the same, by torch's own back end

Needs torch (1.13 or later) and scikit-learn.
"""

import argparse
import sys

import horovod.torch.distributed  # noqa: F401  (makes "hvd" known)
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="hvd", help="hvd or gloo")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--target", type=float, default=0.95, help="accuracy that must be reached")
    return parser.parse_args()


def say(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def load():
    """(training set, held-out images, held-out labels)"""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    held_out = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~held_out], labels[~held_out]), images[held_out], labels[held_out]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = torch.nn.Linear(32 * 4 * 4, 64)
        self.out = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.out(F.relu(self.hidden(x)))


def accuracy(model, images, labels):
    """Of all workers together: each tries its share of the images."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    with torch.no_grad():
        right = (model(images[mine]).argmax(1) == labels[mine]).sum()
    dist.all_reduce(right)
    return right.item() / len(labels)


def same_weights(model):
    """Do all workers hold the same weights, bit by bit?"""
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return all(torch.equal(w, mine) for w in everyone)


def main():
    args = parse_arguments()
    dist.init_process_group(args.backend)
    torch.manual_seed(dist.get_rank())  # DDP gives all workers rank 0's weights
    torch.set_num_threads(1)
    train_set, images, labels = load()
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)

    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        say(f"epoch {epoch + 1} of {args.epochs}")

    reached = accuracy(model.module, images, labels)
    same = same_weights(model)
    n = dist.get_world_size()
    say(f"train_ddp on {n} workers by {dist.get_backend()}: held-out accuracy {reached:.3f}")
    say(f"all {n} workers hold identical weights" if same else "the workers hold different weights")
    dist.destroy_process_group()
    if reached < args.target or not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
