#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data that does not divide evenly: DistributedSampler, or hvd.join().

Every step's gradients are averaged over all workers, so all must take the same number of steps, or
say that they have no more. Two ways:

sampler   the data are one set. torch's DistributedSampler deals it out again each epoch; the last
          images are left out (drop_last=True) or some seen twice (False): each worker gets as many.
join      each worker has data of its own, here twice as many on worker 1 as on worker 0. A
          worker that has no more data calls hvd.join(). Until all workers have called it, it counts
          as zeros in the averages of the other workers.

    horovodrun -np 2 python3 uneven_data.py --how sampler
    horovodrun -np 2 python3 uneven_data.py --how join

Data and model are train_digits.py's.
"""

import argparse
import sys

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from train_digits import Net, accuracy, load, pick_device, same_weights, say


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--how", choices=["sampler", "join"], default="sampler")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.04)
    parser.add_argument("--target", type=float, default=0.93, help="accuracy that must be reached")
    return parser.parse_args()


def own_part(data):
    """This worker's own images: worker k has k + 1 parts of all."""
    parts = hvd.size() * (hvd.size() + 1) // 2
    first = hvd.rank() * (hvd.rank() + 1) // 2
    bounds = [len(data) * part // parts for part in (first, first + hvd.rank() + 1)]
    return Subset(data, range(*bounds))


def train_epoch(model, optimizer, loader):
    """Returns the number of steps."""
    model.train()
    steps = 0
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        steps += 1
    return steps


def main():
    args = parse_arguments()
    hvd.init()
    torch.manual_seed(1)
    images, labels, held_out_images, held_out_labels = load(pick_device())
    data = TensorDataset(images, labels)
    sampler = None
    if args.how == "sampler":
        sampler = DistributedSampler(data, hvd.size(), hvd.rank(), drop_last=True)
        loader = DataLoader(data, args.batch_size, sampler=sampler)
    else:
        loader = DataLoader(own_part(data), args.batch_size, shuffle=True)

    model = Net().to(images.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    for epoch in range(args.epochs):
        if sampler:
            sampler.set_epoch(epoch)  # another order each epoch, the same on all workers
        steps = train_epoch(model, optimizer, loader)
        if args.how == "join":
            last = hvd.join()
            # a rank that joined earlier has missed the last steps: it takes their result
            hvd.broadcast_parameters(model.state_dict(), root_rank=last)
            hvd.broadcast_optimizer_state(optimizer, root_rank=last)
        everywhere = hvd.allgather(torch.tensor([steps])).tolist()
        say(f"epoch {epoch + 1}  steps of each worker: {' '.join(map(str, everywhere))}")

    # The held-out images are divided without a DistributedSampler, which would count some
    # twice where they do not divide evenly.
    reached = accuracy(model, held_out_images, held_out_labels)
    same = same_weights(model)
    say(f"uneven_data --how {args.how}: held-out accuracy {reached:.3f}")
    if reached < args.target or not same:
        sys.exit(f"uneven_data: should reach {args.target}, with the same weights everywhere")


if __name__ == "__main__":
    main()
