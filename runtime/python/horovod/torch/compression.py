# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.compression``."""

from _hvd.torch.compression import Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
