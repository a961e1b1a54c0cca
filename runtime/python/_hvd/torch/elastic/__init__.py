# SPDX-License-Identifier: Apache-2.0
"""``hvd.elastic``: training that goes on from the last commit when a collective fails."""

from _hvd.elastic import reset_world, run_fn
from _hvd.torch.elastic import sampler, state
from _hvd.torch.elastic.sampler import ElasticSampler
from _hvd.torch.elastic.state import TorchState


def run(func):
    """Decorator: func(state, ...) is started with rank 0's state on all ranks, and again after a failure.

    When a collective fails, the state goes back to its last commit, the ranks meet again and func is
    called once more, at most three times without a commit() between. Collectives before func belong
    into the state or into a reset callback, because only func is repeated.
    """
    return run_fn(func, reset_world)


__all__ = ["ElasticSampler", "TorchState", "run", "sampler", "state"]
