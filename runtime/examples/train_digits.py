#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small CNN on scikit-learn's handwritten digits, each worker on its own digits only.

Worker k of n sees only its share of the ten classes (of two workers, the first sees 0 to 4 and the
second 5 to 9). Neither could learn the other's digits: only averaging the gradients of all workers
makes a model that knows all ten. At the end the held-out accuracy on all ten digits is measured and
the workers compare a hash of their weights.

    horovodrun -np 2 python3 train_digits.py
    horovodrun -np 2 python3 train_digits.py --no-average     # fails: shows that averaging works

Needs torch (1.13 or later) and scikit-learn.
"""

import argparse
import hashlib
import platform
import sys

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

CLASSES = 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate of Adam")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.97, help="accuracy that must be reached")
    parser.add_argument("--no-average", action="store_true", help="do not average gradients")
    return parser.parse_args()


def load():
    """(train images, train labels, held-out images, held-out labels), the same on every worker."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    held_out = torch.arange(len(labels)) % 5 == 0
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def worker_of(labels):
    """For each label, the worker that sees it: classes are dealt out in equal runs."""
    return torch.div(labels * hvd.size(), CLASSES, rounding_mode="floor")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = torch.nn.Linear(32 * 4 * 4, 64)
        self.out = torch.nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        x = F.relu(self.hidden(F.dropout(x, 0.25, self.training)))
        return self.out(x)


def weights_hash(model):
    """A hash of all weights, bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def say(text):
    if hvd.rank() == 0:
        print(text, flush=True)


def train(model, optimizer, images, labels, args):
    mine = (worker_of(labels) == hvd.rank()).nonzero().flatten()
    print(
        f"worker {hvd.rank()} of {hvd.size()} on {platform.node()} trains on the digits "
        f"{' '.join(str(c) for c in labels[mine].unique().tolist())} ({len(mine)} images)",
        flush=True,
    )
    # every worker takes the same number of steps, whatever its share is
    largest = int(worker_of(labels).bincount().max())
    steps = -(-largest // args.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 1 - e / args.epochs)
    torch.manual_seed(args.seed * 1000 + hvd.rank())
    random = torch.Generator().manual_seed(args.seed * 1000 + hvd.rank())
    for epoch in range(1, args.epochs + 1):
        order = mine[torch.randperm(len(mine), generator=random)].repeat(3)
        total = 0.0
        for step in range(steps):
            batch = order[step * args.batch_size : (step + 1) * args.batch_size]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
        schedule.step()
        mean = hvd.allreduce(torch.tensor(total / steps), name="loss")
        say(f"epoch {epoch:2d}  loss {mean.item():.4f}")


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    hvd.init()
    if hvd.size() > CLASSES:
        sys.exit(f"train_digits: {hvd.size()} workers, but only {CLASSES} digits to share out")
    images, labels, held_out_images, held_out_labels = load()

    model = Net()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    if args.no_average:
        say("averaging of gradients is switched off")
    else:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    train(model, optimizer, images, labels, args)

    model.eval()
    with torch.no_grad():
        right = (model(held_out_images).argmax(1) == held_out_labels).sum().item()
    accuracy = hvd.broadcast_object(right / len(held_out_labels), root_rank=0)
    say(f"held-out accuracy on all ten digits: {accuracy:.3f} ({len(held_out_labels)} images)")
    hashes = hvd.allgather_object(weights_hash(model))
    if len(set(hashes)) == 1:
        say(f"all {hvd.size()} workers hold identical weights (sha256 {hashes[0][:16]})")
    else:
        say("the workers hold different weights: " + " ".join(h[:16] for h in hashes))
    hvd.shutdown()

    if accuracy < args.target:
        sys.exit(f"train_digits: accuracy {accuracy:.3f} is below the target {args.target}")
    if len(set(hashes)) != 1:
        sys.exit("train_digits: the workers hold different weights")


if __name__ == "__main__":
    main()
