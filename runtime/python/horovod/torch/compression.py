# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.compression``."""

from _hvd.torch.compression import (
    BF16Compressor,
    Compression,
    Compressor,
    FP16Compressor,
    NoneCompressor,
    WireCompressor,
)

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "WireCompressor",
]
