# SPDX-License-Identifier: Apache-2.0
"""Gradient compression on the wire: torch's casts, and the codecs of _hvd/compression.py."""

import torch

from _hvd.compression import Codecs, Compressor, NoneCompressor, WireCompressor, caster, wire_of


class FP16Compressor(Compressor):
    """Sends floating-point tensors as 16-bit floats."""

    wire = "fp16"
    _dtype = torch.float16

    @classmethod
    def compress(cls, tensor):
        if tensor.dtype.is_floating_point:
            return tensor.type(cls._dtype), tensor.dtype
        return tensor, tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.type(ctx) if ctx.is_floating_point else tensor


class BF16Compressor(FP16Compressor):
    """Sends floating-point tensors as bfloat16: float32's range, 8 bits of precision."""

    wire = "bf16"
    _dtype = torch.bfloat16


class Compression(Codecs):
    __doc__ = Codecs.__doc__

    fp16 = FP16Compressor
    bf16 = BF16Compressor


__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "WireCompressor",
    "caster",
    "wire_of",
]
