#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation and clipping: several backward passes for one exchange and one step.

With backward_passes_per_step=4, gradients of four small batches are summed on each worker and
sent once, so a batch that does not fit into memory costs no additional communication. The script
must do two things: divide the loss by the number of passes, and clip the averaged gradients after
synchronize(), not those of this worker.

    horovodrun -np 2 python3 gradient_accumulation.py

Data and model are train_digits.py's.
"""

import argparse
import sys

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from train_digits import Net, accuracy, load, pick_device, same_weights, say


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=8, help="images of one backward pass")
    parser.add_argument("--passes", type=int, default=4, help="backward passes per step")
    parser.add_argument("--max-norm", type=float, default=1.0, help="of all gradients together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--target", type=float, default=0.93, help="accuracy that must be reached")
    return parser.parse_args()


def main():
    args = parse_arguments()
    hvd.init()
    torch.manual_seed(1)
    images, labels, held_out_images, held_out_labels = load(pick_device())
    model = Net().to(images.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        backward_passes_per_step=args.passes,
    )

    per_step = args.batch_size * args.passes
    steps = len(images) // (per_step * hvd.size())
    clipped = 0
    for epoch in range(args.epochs):
        model.train()
        order = torch.randperm(len(images))[hvd.rank() :: hvd.size()]  # one order for all workers
        for step in range(steps):
            optimizer.zero_grad()
            for batch in order[step * per_step : (step + 1) * per_step].split(args.batch_size):
                loss = F.cross_entropy(model(images[batch]), labels[batch])
                (loss / args.passes).backward()  # passes are summed: this makes it their mean
            optimizer.synchronize()  # the gradients are now those of all workers
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            clipped += int(norm > args.max_norm)
            with optimizer.skip_synchronize():
                optimizer.step()
        say(f"epoch {epoch + 1}  last loss of rank 0 {loss.item():.4f}")

    everywhere = hvd.allgather(torch.tensor([clipped])).tolist()
    reached = accuracy(model, held_out_images, held_out_labels)
    same = same_weights(model)
    say(
        f"gradient_accumulation: held-out accuracy {reached:.3f}, {args.passes} passes a step, "
        f"{' '.join(map(str, everywhere))} of {steps * args.epochs} steps clipped on each worker"
    )
    if reached < args.target or not same:
        sys.exit(f"gradient_accumulation: should reach {args.target}, with the same weights")


if __name__ == "__main__":
    main()
