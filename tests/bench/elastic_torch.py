#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The training of tests/elastic/train.py for torchrun: torch.distributed on Gloo, and a checkpoint.

torchrun restarts all workers when one dies, so the state is in a file: rank 0 writes it after each step,
and all ranks load it at their start. The record and the model are those of train.py.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist

IMPORTED_NS = time.monotonic_ns()
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../elastic"))
import random  # noqa: E402

from model import Model, Samples  # noqa: E402
from record import Writer, next_world  # noqa: E402


def order_of(epoch, n):
    """ElasticSampler's."""
    order = list(range(n))
    random.Random(epoch).shuffle(order)
    return order


def load(path, model, optimizer):
    """The step after which training continues."""
    if not os.path.exists(path):
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def save(path, model, optimizer, step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path + ".new")
    os.rename(path + ".new", path)


def world_of(rank):
    world = [next_world(0) if rank == 0 else None]
    dist.broadcast_object_list(world)
    return world[0]


def train(args, writer):
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model, samples = Model(), Samples(args.batch * args.steps)
    optimizer = model.optimizer(args.batch)
    step = load(args.checkpoint, model, optimizer)
    world = world_of(rank)
    writer.add("world", world, size, rank, step // args.steps, step)
    while step < args.epochs * args.steps:
        epoch, place = divmod(step, args.steps)
        mine = order_of(epoch, len(samples))[place * args.batch : (place + 1) * args.batch][rank::size]
        writer.add("try", world, epoch, step + 1, rank, mine)
        _, inputs, targets = zip(*(samples[i] for i in mine))
        optimizer.zero_grad()
        model.loss(torch.stack(inputs), torch.stack(targets)).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        model.finish_step(optimizer)
        step += 1
        if rank == 0:
            save(args.checkpoint, model, optimizer, step)
        writer.add("save", world, step)
        time.sleep(args.pace)
    if rank == 0:
        writer.add("end", args.epochs, step, len(samples), model.digest())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--pace", type=float, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    train(args, Writer(args.records, IMPORTED_NS))


if __name__ == "__main__":
    main()
