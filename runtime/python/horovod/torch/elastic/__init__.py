# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.elastic``."""

from _hvd.basics import init, shutdown
from _hvd.elastic import run_fn
from _hvd.torch.elastic import ElasticSampler, ShardedState, StateLostError, TorchState, run

__all__ = ["ElasticSampler", "ShardedState", "StateLostError", "TorchState", "run"]
