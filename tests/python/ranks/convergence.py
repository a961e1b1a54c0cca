# SPDX-License-Identifier: Apache-2.0
"""n ranks learn what one learns: a small CNN on real digits, the same global batch for every n.

The model and the data are those of runtime/examples/train_digits.py, without dropout, so that shares
compute what the joined batch does. Rank 0 also trains alone, on joined batches in the same order,
with torch only; that is what the others are compared with.

Tolerances. One gradient: the two differ by the order of float32 sums, 2^-24 a term; allowed is 1e-5 of
the tensor's largest element, and 2e-3 where it travelled as 16 bits (2^-11 a value, once on each rank
and once for the sum). A whole training: rounding is amplified by the steps that follow, so weights are
not compared but accuracies: the same but for 4 of 360 held-out images, those nearest to the boundary
between two digits. Between the ranks of one job there is no tolerance.
"""

import functools
import os
import sys

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from checks import check, main

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../runtime/examples"))
from train_digits import Net, load, same_weights

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()
BATCH = 48  # of all ranks together: 1, 2, 3 and 4 divide it, and two passes of each
IMAGES, LABELS, HELD_OUT, HELD_OUT_LABELS = load(torch.device("cpu"))
WAYS = {
    "plain": {},
    "groups": {"num_groups": 2},
    "fp16": {"compression": hvd.Compression.fp16},
    "predivide": {"gradient_predivide_factor": 2.0},
    "accumulation": {"backward_passes_per_step": 2},
}


def make(way=None):
    """(model, optimizer): the same start everywhere; distributed in one of WAYS, or torch's alone."""
    torch.manual_seed(3)
    model = Net().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if way is None:
        return model, optimizer
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), **WAYS[way])


def batches(epochs):
    """The joined batches of every epoch, as indices: equal on all ranks."""
    order = torch.Generator().manual_seed(5)
    for _ in range(epochs):
        yield from torch.randperm(len(IMAGES), generator=order)[: len(IMAGES) // BATCH * BATCH].split(BATCH)


def backward(model, batch, passes=1):
    for part in batch.chunk(passes):
        (F.cross_entropy(model(IMAGES[part]), LABELS[part]) / passes).backward()


def train(way, epochs):
    """The model after training, by all ranks in one of WAYS or (None) by this one alone."""
    model, optimizer = make(way)
    passes = WAYS[way].get("backward_passes_per_step", 1) if way else 1
    for batch in batches(epochs):
        optimizer.zero_grad()
        backward(model, batch[R::N] if way else batch, passes)
        optimizer.step()
    return model


def right(model):
    with torch.no_grad():
        return (model(HELD_OUT).argmax(1) == HELD_OUT_LABELS).sum().item()


@functools.lru_cache(maxsize=None)
def trained():
    return train("plain", epochs=6)


def gradients_agree(way, tolerance):
    """Ranks' gradients of their shares are those of the joined batch, at the start and when trained."""
    for start in (None, trained()):
        ours, optimizer = make(way)
        alone, _ = make()
        for model in (ours, alone) if start else ():
            model.load_state_dict(start.state_dict())
        batch = next(iter(batches(1)))
        backward(ours, batch[R::N], WAYS[way].get("backward_passes_per_step", 1))
        optimizer.synchronize()
        backward(alone, batch)
        for (name, p), q in zip(ours.named_parameters(), alone.parameters()):
            assert q.grad.abs().max() > 1e-6, f"{name}: the gradient is zero, which proves nothing"
            gap = ((p.grad - q.grad).abs().max() / q.grad.abs().max()).item()
            assert gap <= tolerance, f"{name}: {gap:.2e} of the largest element apart"
            if way == "fp16" and N > 1:
                p16 = p.grad.half().float()
                assert torch.equal(p.grad, p16), f"{name}: has not travelled as 16 bits"


@check
def n_ranks_reach_the_accuracy_of_one():
    alone = hvd.broadcast_object(right(train(None, epochs=6)) if R == 0 else None, root_rank=0)
    together = right(trained())
    assert together >= 0.97 * len(HELD_OUT), f"{together} of {len(HELD_OUT)} right"
    assert abs(together - alone) <= 4, f"{together} of {len(HELD_OUT)} right, one rank alone: {alone}"
    assert same_weights(trained()), "ranks hold different weights"


@check
def gradients_are_those_of_the_joined_batch():
    gradients_agree("plain", 1e-5)


@check
def gradients_in_groups_are_too():
    gradients_agree("groups", 1e-5)


@check
def gradients_of_16_bits_nearly():
    gradients_agree("fp16", 2e-3)


@check
def gradients_divided_before_and_after():
    gradients_agree("predivide", 1e-5)


@check
def gradients_of_two_passes():
    gradients_agree("accumulation", 1e-5)


@check
def weights_are_equal_bit_by_bit_in_every_way():
    for way in WAYS:
        assert same_weights(train(way, epochs=1)), f"{way}: ranks hold different weights"


@check
def without_exchange_they_would_not_be():
    model, optimizer = make()
    for batch in batches(1):
        optimizer.zero_grad()
        backward(model, batch[R::N])
        optimizer.step()
    assert same_weights(model) == (N == 1)


main(R)
