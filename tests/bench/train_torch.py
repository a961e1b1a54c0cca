# SPDX-License-Identifier: Apache-2.0
"""Training a CNN on 28 x 28 images: train_torch.py KIND NAME HIDDEN.

KIND is one of
    hvd       the first `horovod.torch` on the path
    ddp       DistributedDataParallel on Gloo, started by torchrun or horovodrun
    ddp-hvd   the same on our back end
    apart     all processes, without any exchange: the upper bound of data-parallel training
HIDDEN 128 gives 1,199,882 parameters, 2048 gives 18,915,722. A step is zero_grad, forward, backward and a step
of SGD with momentum. Each rank times its own step; the median of the slowest rank counts.

Prints the row of allreduce_torch.py, with the batch of all ranks in place of the bytes.
"""

import sys
import time

import torch
from rows import print_row
from torch import nn
from torch.nn import functional
from worlds import Alone, Distributed, Horovod

BATCH, WARM_UP, STEPS, IMAGES = 64, 5, 60, 512


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.f1, self.f2 = nn.Linear(9216, hidden), nn.Linear(hidden, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.c2(functional.relu(self.c1(x)))), 2)
        x = functional.relu(self.f1(torch.flatten(x, 1)))
        return functional.log_softmax(self.f2(x), 1)


def world_of(kind):
    if kind == "hvd":
        return Horovod()
    if kind == "apart":
        return Alone()
    if kind == "ddp":
        return Distributed()
    import horovod.torch.distributed  # noqa: F401  (makes the name known)

    return Distributed("hvd")


def wrap(world, model, optimizer):
    """The model and the optimizer that exchange gradients."""
    if isinstance(world, Distributed):
        return nn.parallel.DistributedDataParallel(model), optimizer
    if isinstance(world, Horovod):
        world.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        named = model.named_parameters()
        return model, world.hvd.DistributedOptimizer(optimizer, named_parameters=named)
    return model, optimizer


def main(kind, name, hidden):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    world = world_of(kind)
    model = Net(int(hidden))
    generator = torch.Generator().manual_seed(100 + world.rank)
    x = torch.randn(IMAGES, 1, 28, 28, generator=generator)
    y = (x.mean((1, 2, 3)) * 280).long().clamp(-5, 4) + 5
    net, optimizer = wrap(world, model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    times = []
    start = time.perf_counter()
    for i in range(WARM_UP + STEPS):
        at = (i * BATCH) % IMAGES
        start = start if i != WARM_UP else time.perf_counter()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = functional.nll_loss(net(x[at : at + BATCH]), y[at : at + BATCH])
        loss.backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e6)
    mean = (time.perf_counter() - start) * 1e6 / STEPS
    slowest = world.slowest(torch.tensor(times[WARM_UP:], dtype=torch.float64))
    if world.rank == 0:
        print_row(name, world.size, BATCH * world.size, slowest, mean)
    world.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
