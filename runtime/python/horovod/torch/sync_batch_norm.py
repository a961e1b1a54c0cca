# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.sync_batch_norm``."""

from _hvd.torch.sync_batch_norm import SyncBatchNorm, convert_sync_batchnorm

__all__ = ["SyncBatchNorm", "convert_sync_batchnorm"]
