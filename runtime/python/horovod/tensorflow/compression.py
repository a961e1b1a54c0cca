# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.compression``."""

from _hvd.tensorflow.compression import Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
