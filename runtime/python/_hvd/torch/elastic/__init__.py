# SPDX-License-Identifier: Apache-2.0
"""``hvd.elastic``: training that continues from the last commit when a collective fails."""

from _hvd.elastic import reset_world, run_fn
from _hvd.exceptions import StateLostError
from _hvd.torch.elastic import sampler, state
from _hvd.torch.elastic.sampler import ElasticSampler
from _hvd.torch.elastic.sharded import ShardedState
from _hvd.torch.elastic.state import TorchState


def run(func):
    """Decorator: func(state, ...) is called with rank 0's state on all ranks, and again after a failure.

    When a collective fails, the last commit is restored, the ranks form a new world and func is called
    again, at most three times without a commit(). Collectives before func belong in the state or in a reset
    callback, because only func is repeated.
    """
    return run_fn(func, reset_world)


__all__ = ["ElasticSampler", "ShardedState", "StateLostError", "TorchState", "run", "sampler", "state"]
