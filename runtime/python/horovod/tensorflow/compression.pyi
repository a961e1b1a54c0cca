# SPDX-License-Identifier: Apache-2.0
from typing import Any, Protocol

import tensorflow as tf

# A class or an object of the user's may be passed as compression.
class _HasCompress(Protocol):
    def compress(self, tensor: Any, /) -> tuple[Any, Any]: ...
    def decompress(self, tensor: Any, ctx: Any, /) -> Any: ...

class Compressor:
    wire: str | None
    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]: ...
    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor: ...

class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]: ...
    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor: ...

class FP16Compressor(Compressor):
    wire: str
    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]: ...
    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor: ...

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
