# SPDX-License-Identifier: Apache-2.0
"""Reductions: allreduce, grouped_allreduce, reducescatter, and what carries and compresses them."""

from harness import N, R, hvd, np, symbol, tf
from horovod.tensorflow import compression, mpi_ops


def of(rank, shape=(4, 3)):
    """The numbers of a rank: small, so that every dtype holds their sums and products."""
    return (np.arange(np.prod(shape)).reshape(shape) + rank) % 5 + 1


def both(how, shape=(4, 3)):
    return how(np.stack([of(r, shape) for r in range(N)]).astype(np.float64), axis=0)


@symbol("horovod.tensorflow.mpi_ops._allreduce", "horovod.tensorflow.mpi_ops._grouped_allreduce")
def raw_allreduce(t):
    x = tf.cast(of(R), tf.float32)
    t.equal(mpi_ops._allreduce(x), both(np.sum))
    t.equal(mpi_ops._allreduce(x, name="raw", op=hvd.Max), both(np.max))
    got = mpi_ops._grouped_allreduce([x, x + 1], postscale_factor=0.5)
    t.equal(got[0], both(np.sum) / 2)
    t.equal(got[1], both(np.sum) / 2 + 1)


@symbol("horovod.tensorflow.mpi_ops._reducescatter", "horovod.tensorflow.mpi_ops._grouped_reducescatter")
def raw_reducescatter(t):
    x = tf.cast(of(R), tf.float32)
    mine = both(np.sum)[2 * R : 2 * R + 2]
    t.equal(mpi_ops._reducescatter(x), mine)
    got = mpi_ops._grouped_reducescatter([x, 2 * x])
    t.equal(got[0], mine)
    t.equal(got[1], 2 * mine)


@symbol("horovod.tensorflow.compression.NoneCompressor", "horovod.tensorflow.compression.FP16Compressor")
@symbol("horovod.tensorflow.compression.Compressor", "Compression")
def compressors(t):
    x = tf.constant([1.0, 1.5])
    assert hvd.Compression.none.compress(x) == (x, None)
    assert hvd.Compression.none.decompress(x, None) is x
    half, context = compression.FP16Compressor.compress(x)
    assert half.dtype == tf.float16
    t.equal(hvd.Compression.fp16.decompress(half, context), [1, 1.5], dtype=tf.float32)
    whole = tf.constant([1, 2])
    kept, context = hvd.Compression.fp16.compress(whole)
    t.equal(hvd.Compression.fp16.decompress(kept, context), [1, 2], dtype=tf.int32)
    t.fails((NotImplementedError, TypeError), [], compression.Compressor.compress, x)
    t.fails((NotImplementedError, TypeError), [], compression.Compressor.decompress, x, None)
