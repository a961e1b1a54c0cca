# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.sync_batch_norm``."""

from _hvd.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
