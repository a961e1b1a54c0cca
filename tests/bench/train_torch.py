# SPDX-License-Identifier: Apache-2.0
"""Training a CNN on 28 x 28 images: train_torch.py KIND NAME HIDDEN [BATCH].

KIND is one of
    hvd       the first `horovod.torch` on the path
    ddp       DistributedDataParallel on Gloo, started by torchrun or horovodrun
    ddp-hvd   the same on our back end
    local     one process
    apart     all processes, without any exchange: the upper bound of data-parallel training
HIDDEN 128 gives 1,199,882 parameters, 2048 gives 18,915,722. A step is zero_grad, forward, backward and a step
of SGD with momentum. Each rank times its own step; the median of the slowest rank counts.

Prints the row of allreduce_torch.py, with the batch of all ranks in place of the bytes.
"""

import os
import sys
import time

import torch
from rows import print_row
from torch import nn
from torch.nn import functional

WARM_UP, STEPS, IMAGES = 5, int(os.environ.get("BENCH_STEPS", "60")), 512


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.f1, self.f2 = nn.Linear(9216, hidden), nn.Linear(hidden, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.c2(functional.relu(self.c1(x)))), 2)
        x = functional.relu(self.f1(torch.flatten(x, 1)))
        return functional.log_softmax(self.f2(x), 1)


class Alone:
    """No exchange of gradients."""

    def __init__(self):
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))

    def wrap(self, model, optimizer):
        return model, optimizer

    def slowest(self, times):
        return times

    def end(self):
        pass


class Horovod(Alone):
    def __init__(self):
        import horovod.torch as hvd

        self.hvd = hvd
        hvd.init()
        self.rank, self.size = hvd.rank(), hvd.size()

    def wrap(self, model, optimizer):
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        named = model.named_parameters()
        return model, self.hvd.DistributedOptimizer(optimizer, named_parameters=named)

    def slowest(self, times):
        return self.hvd.allgather(times.reshape(1, -1), name="times").max(dim=0).values

    def end(self):
        self.hvd.shutdown()


class Ddp(Alone):
    backend = "gloo"

    def __init__(self):
        import torch.distributed as dist

        self.dist = dist
        dist.init_process_group(self.backend)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def wrap(self, model, optimizer):
        return nn.parallel.DistributedDataParallel(model), optimizer

    def slowest(self, times):
        self.dist.all_reduce(times, op=self.dist.ReduceOp.MAX)
        return times

    def end(self):
        self.dist.destroy_process_group()


class DdpHvd(Ddp):
    backend = "hvd"

    def __init__(self):
        import horovod.torch.distributed  # noqa: F401  (makes the name known)

        super().__init__()


KINDS = {"hvd": Horovod, "ddp": Ddp, "ddp-hvd": DdpHvd, "local": Alone, "apart": Alone}


def main(kind, name, hidden, batch="64"):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    batch = int(batch)
    world = KINDS[kind]()
    model = Net(int(hidden))
    generator = torch.Generator().manual_seed(100 + world.rank)
    x = torch.randn(IMAGES, 1, 28, 28, generator=generator)
    y = (x.mean((1, 2, 3)) * 280).long().clamp(-5, 4) + 5
    net, optimizer = world.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    times = []
    start = time.perf_counter()
    for i in range(WARM_UP + STEPS):
        at = (i * batch) % IMAGES
        start = start if i != WARM_UP else time.perf_counter()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = functional.nll_loss(net(x[at : at + batch]), y[at : at + batch])
        loss.backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e6)
    mean = (time.perf_counter() - start) * 1e6 / STEPS
    slowest = world.slowest(torch.tensor(times[WARM_UP:], dtype=torch.float64))
    if world.rank == 0:
        print_row(name, world.size, batch * world.size, slowest, mean)
    world.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
