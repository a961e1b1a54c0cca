# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.optimizer``."""

from _hvd.torch.optimizer import DistributedOptimizer, _DistributedOptimizer

__all__ = ["DistributedOptimizer", "_DistributedOptimizer"]
