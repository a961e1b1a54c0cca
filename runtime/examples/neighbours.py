#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers in a row exchange data with both neighbours: the temperature of a rod that is cut among them.

Each worker holds a part of the rod with one more point at each end, its neighbours' last ones, and
needs new values of these before every step. All four transfers of a worker are started and then waited
for, so they move at the same time and their order does not matter.

    horovodrun -np 3 python3 neighbours.py
"""

import argparse
import sys

import horovod.torch as hvd
import torch


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1000, help="of each worker")
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args()


def exchange(part):
    """Updates the first and the last point of a part, which are the neighbours'."""
    before, behind = hvd.rank() - 1, hvd.rank() + 1
    pending = []
    if before >= 0:
        pending.append(hvd.send_async(part[1:2], before, name="back"))
        pending.append(hvd.recv_async_(part[:1], before, name="forth"))
    if behind < hvd.size():
        pending.append(hvd.send_async(part[-2:-1], behind, name="forth"))
        pending.append(hvd.recv_async_(part[-1:], behind, name="back"))
    for handle in pending:
        hvd.synchronize(handle)


def step(part):
    """Heat flows between points; the first and the last one keep their temperature."""
    part[1:-1] += 0.25 * (part[:-2] - 2 * part[1:-1] + part[2:])


def main():
    args = parse_arguments()
    hvd.init()
    generator = torch.Generator().manual_seed(1)
    rod = torch.rand(args.points * hvd.size() + 2, generator=generator, dtype=torch.float64)
    first = args.points * hvd.rank()
    part = rod[first : first + args.points + 2].clone()
    for _ in range(args.steps):
        exchange(part)
        step(part)

    for _ in range(args.steps):  # the whole rod, without the other workers
        step(rod)
    wrong = (part[1:-1] - rod[first + 1 : first + args.points + 1]).abs().max()
    wrong = hvd.allreduce(wrong, op=hvd.Max).item()
    if hvd.rank() == 0:
        print(f"neighbours: {args.steps} steps of {hvd.size()} workers, largest error {wrong:.1e}")
    return 0 if wrong < 1e-12 else 1


if __name__ == "__main__":
    sys.exit(main())
