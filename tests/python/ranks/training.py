# SPDX-License-Identifier: Apache-2.0
"""What the optimizer checks share: the world, a small model, each rank's batches and the joined one.

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


def reference(steps, make):
    """One rank with the joined batches."""
    m = model()
    train(m, make(m.parameters()), steps, joined)
    return m


def close(a, b, tolerance=1e-12):
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        gap = (p - q).abs().max().item()
        assert gap <= tolerance, f"{name} differs by {gap}"


def sgd(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def plain(params):
    return torch.optim.SGD(params, lr=0.1)


def adam(params):
    return torch.optim.Adam(params, lr=0.01)


def wrap(m, make=sgd, **options):
    return hvd.DistributedOptimizer(make(m.parameters()), named_parameters=m.named_parameters(), **options)


def trained(steps, make=sgd, **options):
    """A model and its optimizer after steps that one rank takes alike with the joined batches."""
    m = model()
    optimizer = wrap(m, make, **options)
    train(m, optimizer, steps)
    close(m, reference(steps, make))
    return m, optimizer


def compare(run, net=model, make=sgd, data=(mine, joined), **options):
    """run(m, optimizer, data) on all ranks with their own data, and on one rank with the joined ones."""
    m, other = net(), net()
    run(m, wrap(m, make, **options), data[0])
    run(other, make(other.parameters()), data[1])
    close(m, other)


def closure_of(m, optimizer, x):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(m, x)
        loss.backward()
        return loss

    return closure


def same_everywhere(value):
    said = hvd.allgather_object(value)
    assert said == [said[0]] * N, said
    return value


def same_weights(m):
    return same_everywhere([p.sum().item() for p in m.parameters()])
