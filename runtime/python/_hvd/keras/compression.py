# SPDX-License-Identifier: Apache-2.0
"""`Compression` for Keras' back end: TensorFlow's or torch's own; for JAX the runtime's codecs by name."""

from _hvd.compression import Codecs, WireCompressor, wire_of


class Compression(Codecs):
    __doc__ = Codecs.__doc__

    fp16 = WireCompressor("fp16")
    bf16 = WireCompressor("bf16")


def compression_for(backend):
    """Returns the class `Compression` for a back end: "tensorflow", "torch" or "jax"."""
    if backend == "tensorflow":
        from _hvd.tensorflow.compression import Compression as of_backend
    elif backend == "torch":
        from _hvd.torch.compression import Compression as of_backend
    else:
        return Compression
    return of_backend


def ways_of(compression, is_named=True):
    """Returns (codec name, object with compress() and decompress()); at most one of the two is not None.

    is_named: whether the operation has the same name in every step; see wire_of(). TypeError: not a
    compressor.
    """
    if compression is None or compression is Codecs.none:
        return None, None
    wire = wire_of(compression, is_named)
    return wire, compression if wire is None else None
