# SPDX-License-Identifier: Apache-2.0
"""What a replica check costs: replica_torch.py [MILLIONS], started by horovodrun with HVD_REPLICA_CHECK=1.

A step of a model of so many million parameters (100), and the check after each, on the slowest rank: the
medians of 10, and the share of a step that one check in 100 steps costs.
"""

import statistics
import sys
import time

import horovod.torch as hvd
import torch
from _hvd.torch import optimizer as module

WIDTH = 2000

torch.set_num_threads(1)
hvd.init()
layers = int(sys.argv[1] if len(sys.argv) > 1 else 100) * 1000000 // (WIDTH * WIDTH)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
plain, took = module.after_step, []


def after_step(*args):
    begun = time.perf_counter()
    plain(*args)
    took.append(time.perf_counter() - begun)


module.after_step = after_step
steps = []
for _ in range(13):
    begun = time.perf_counter()
    optimizer.zero_grad()
    model(torch.randn(4, WIDTH)).square().mean().backward()
    optimizer.step()
    steps.append(time.perf_counter() - begun)
both = hvd.allreduce(torch.tensor([steps[3:], took[3:]]), op=hvd.Max)
step, check = (statistics.median(row.tolist()) for row in both)
if hvd.rank() == 0:
    n = sum(p.numel() for p in model.parameters())
    step -= check
    print(
        f"{n / 1e6:.0f} M parameters on {hvd.size()} ranks: step {1e3 * step:.0f} ms, check {1e3 * check:.0f} ms"
    )
    print(f"digest at {4 * n / check / 1e9:.1f} GB/s; every 100 steps {check / step:.2f} % of a step")
