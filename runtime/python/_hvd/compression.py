# SPDX-License-Identifier: Apache-2.0
"""Compression on the wire, without a framework: what torch's and TensorFlow's compressors share.

Two kinds of compressor, one argument (compression=...):

 - With `wire`, the runtime's name of a codec ("int8", "topk:ratio=0.01"): tensors are passed unchanged, and
   the runtime compresses what it sends. compress() and decompress() do nothing.
 - Without it: compress() and decompress() around an uncompressed operation. Users may pass any class
   or object that has these two, as with Horovod.

Compression.fp16 and bf16 are both: an allreduce takes the `wire`; the two methods are Horovod's casts,
which reducescatter uses.
"""

import numbers
import os


class Compressor:
    """Interface for compressing and decompressing a given tensor."""

    wire = None

    @staticmethod
    def compress(tensor):
        """Returns the tensor compressed, and the context needed to decompress it."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        """Returns the tensor decompressed with the context of compress()."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Default no-op compression."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class WireCompressor(NoneCompressor):
    """A codec of the runtime with its parameters; calling it returns one with other parameters.

    Compression.int8(block=256, feedback=False). The runtime refuses an unknown parameter or a value out of
    range when the first tensor is submitted.
    """

    def __init__(self, codec, **parameters):
        self._codec = codec
        self._parameters = parameters
        values = (f"{k}={_text(k, v)}" for k, v in parameters.items() if v is not None)
        text = ",".join(values)
        self.wire = f"{codec}:{text}" if text else codec

    def __call__(self, **parameters):
        return WireCompressor(self._codec, **{**self._parameters, **parameters})

    def __repr__(self):
        return f"Compression.{self.wire}"

    def __eq__(self, other):
        return isinstance(other, WireCompressor) and other.wire == self.wire

    def __hash__(self):
        return hash(self.wire)


def _text(name, value):
    """A parameter as the runtime reads it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return f"{float(value):.9f}".rstrip("0").rstrip(".")  # the runtime knows no exponents
    raise TypeError(f"compression: {name} must be a number, not {type(value).__name__}")


class Codecs:
    """The part of `Compression` that all frameworks share.

    none: nothing (HVD_COMPRESSION may still name a codec). fp16, bf16: 16 bits a number. int8: 8 bits,
    a scale for each block. topk(ratio=0.01) or topk(k=100): the largest in magnitude. powersgd(rank=4):
    two thin factors of a matrix. Of the last three, what a step did not send is added to the next
    (feedback=False turns that off).
    """

    none = NoneCompressor
    int8 = WireCompressor("int8")
    topk = WireCompressor("topk")
    powersgd = WireCompressor("powersgd")


_LOSSY = ("int8", "topk", "powersgd")


def _check_methods(compression):
    """Raises TypeError if the argument is not a compressor."""
    lacks = [m for m in ("compress", "decompress") if not callable(getattr(compression, m, None))]
    if lacks:
        what = getattr(compression, "__name__", type(compression).__name__)
        raise TypeError(
            f"compression={what} has no {lacks[0]}() method; pass one of hvd.Compression, or a class with "
            "compress(tensor) -> (tensor, context) and decompress(tensor, context)"
        )


def _wire(compression):
    """Returns the codec's name; None for a compressor that works by its own methods, such as a user's
    subclass of ours that overrides them."""
    kind = compression if isinstance(compression, type) else type(compression)
    wire = None
    for place in (compression, *kind.__mro__):
        names = getattr(place, "__dict__", {})
        if "wire" in names or "compress" in names or "decompress" in names:
            wire = names.get("wire")
            break
    if wire is None:
        _check_methods(compression)
    elif not isinstance(wire, str):
        raise TypeError(f"compression: wire must be a string such as 'int8', not {type(wire).__name__}")
    return wire


def wire_of(compression, is_named=True):
    """Returns the runtime's name of the codec; None for a compressor that works by its own compress() and
    decompress().

    is_named: the operation has the same name in every step. Only then is a codec with feedback allowed to
    store what it did not send: automatic names are never used again, so stored values would accumulate.
    Raises TypeError for anything but a compressor.
    """
    wire = _wire(compression)
    return wire if wire is None or is_named or "feedback=" in wire else without_feedback(wire)


def has_feedback(compression):
    """Whether values that an operation does not send are stored for the next operation of that name."""
    wire = _wire(compression) or os.environ.get("HVD_COMPRESSION", "")
    return "feedback=0" not in wire and without_feedback(wire) != wire


def without_feedback(wire):
    """Returns the name of the same codec without feedback: it stores nothing for the next operation."""
    codec, _, parameters = wire.partition(":")
    if codec not in _LOSSY:
        return wire
    kept = [p for p in parameters.split(",") if p and not p.startswith("feedback=")]
    return f"{codec}:{','.join([*kept, 'feedback=0'])}"


def caster(compression, what):
    """Returns the compressor for an operation without codec support, which uses its two methods.

    what: the operation, for the NotImplementedError that a codec of the runtime (int8, topk, powersgd)
    raises.
    """
    wire = _wire(compression)
    if wire is not None and wire.split(":")[0] in _LOSSY:
        raise NotImplementedError(
            f"{what} does not support {wire}: only allreduce does; use hvd.Compression.fp16 or bf16 here"
        )
    _check_methods(compression)
    return compression
