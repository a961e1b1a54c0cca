# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.optimizer``."""

from _hvd.torch.optimizer import (
    DistributedOptimizer,
    _DistributedAdasumOptimizer,
    _DistributedOptimizer,
)

__all__ = ["DistributedOptimizer", "_DistributedAdasumOptimizer", "_DistributedOptimizer"]
