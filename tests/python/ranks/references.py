# SPDX-License-Identifier: Apache-2.0
"""What the optimizer checks compare: ranks whose optimizer is distributed, and one rank with the joined batches."""

import horovod.torch as hvd
import torch
from training import N, joined, mine, model, train


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


def same_everywhere(value):
    said = hvd.allgather_object(value)
    assert said == [said[0]] * N, said
    return value


def same_weights(m):
    return same_everywhere([p.sum().item() for p in m.parameters()])
