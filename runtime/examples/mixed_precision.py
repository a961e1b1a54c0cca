#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: autocast with bfloat16 on CPUs, with float16 and a GradScaler on GPUs.

The scaler multiplies the loss, so that small gradients do not vanish in float16, and skips a step
in which one overflowed. It must check the averaged gradients, or workers would skip different steps:
call synchronize() first, then unscale_, clip, and step without a second synchronize().

    horovodrun -np 2 python3 mixed_precision.py

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
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as 16 bits")
    parser.add_argument("--target", type=float, default=0.93, help="accuracy that must be reached")
    return parser.parse_args()


def make_scaler(device):
    """A GradScaler; disabled on CPUs, because bfloat16 has float32's range."""
    if hasattr(torch.amp, "GradScaler"):  # torch 2.3
        return torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    return torch.cuda.amp.GradScaler(enabled=device.type == "cuda")


def main():
    args = parse_arguments()
    hvd.init()
    torch.manual_seed(1)
    device = pick_device()
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    images, labels, held_out_images, held_out_labels = load(device)
    model = Net().to(device)  # weights and gradients stay float32
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
    )
    scaler = make_scaler(device)

    steps = len(images) // (args.batch_size * hvd.size())
    for epoch in range(args.epochs):
        model.train()
        order = torch.randperm(len(images))[hvd.rank() :: hvd.size()]  # one order for all workers
        for step in range(steps):
            batch = order[step * args.batch_size : (step + 1) * args.batch_size]
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=half):
                output = model(images[batch])
                loss = F.cross_entropy(output, labels[batch])
            scaler.scale(loss).backward()
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
        say(f"epoch {epoch + 1}  last loss of rank 0 {loss.item():.4f}")

    reached = accuracy(model, held_out_images, held_out_labels)
    same = same_weights(model)
    say(f"mixed_precision: held-out accuracy {reached:.3f}, computed in {output.dtype}")
    if reached < args.target or not same:
        sys.exit(f"mixed_precision: should reach {args.target}, with the same weights everywhere")


if __name__ == "__main__":
    main()
