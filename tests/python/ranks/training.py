# SPDX-License-Identifier: Apache-2.0
"""What the optimizer checks train: a small model in the world, each rank's batches and the joined one.

argv[1] of the script may be "legacy", the way gradients are waited for (torch before 2.1 has no other).
"""

import sys

import horovod.torch as hvd
import torch
from _hvd.torch import grad_hooks

if "legacy" in sys.argv[1:] and grad_hooks.HAS_PUBLIC_HOOK:
    modern = grad_hooks.on_gradient
    grad_hooks.on_gradient = lambda p, function: modern(p, function, use_public_hook=False)

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()
BATCH = 6


def model(seed=7):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(BATCH, 5, generator=generator, dtype=torch.float64)


def joined(step):
    return torch.cat([batch(step, r) for r in range(N)])


def loss_of(m, x):
    return (m(x) ** 2).mean()


def mine(step):
    return batch(step, R)


def train(m, optimizer, steps, data=mine, after=lambda: None):
    """So many steps, or these ones. The data are this rank's, or `joined`."""
    for step in range(steps) if isinstance(steps, int) else steps:
        optimizer.zero_grad()
        loss_of(m, data(step)).backward()
        optimizer.step()
        after()


def closure_of(m, optimizer, x):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(m, x)
        loss.backward()
        return loss

    return closure
