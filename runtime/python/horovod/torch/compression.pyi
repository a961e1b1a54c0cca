# SPDX-License-Identifier: Apache-2.0
from typing import Any

from torch import Tensor

class Compressor:
    wire: str | None
    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]: ...
    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor: ...

class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]: ...
    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor: ...

class FP16Compressor(Compressor):
    wire: str
    @classmethod
    def compress(cls, tensor: Tensor) -> tuple[Tensor, Any]: ...
    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor: ...

class BF16Compressor(FP16Compressor): ...

class WireCompressor(NoneCompressor):
    def __init__(self, codec: str, **parameters: float | bool | None) -> None: ...
    def __call__(self, **parameters: float | bool | None) -> WireCompressor: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Compression:
    none: type[NoneCompressor]
    fp16: type[FP16Compressor]
    bf16: type[BF16Compressor]
    int8: WireCompressor
    topk: WireCompressor
    powersgd: WireCompressor
