# SPDX-License-Identifier: Apache-2.0
"""Reductions: allreduce, grouped_allreduce, reducescatter, and what carries and compresses them."""

from harness import N, R, hvd, np, session_run, symbol, tf
from horovod.tensorflow import compression, mpi_ops

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
NUMBERS = (*FLOATS, tf.uint8, tf.int8, tf.int32, tf.int64)
OPS = (
    (hvd.Sum, np.sum),
    (hvd.Average, np.mean),
    (hvd.Min, np.min),
    (hvd.Max, np.max),
    (hvd.Product, np.prod),
)


def of(rank, shape=(4, 3)):
    """The numbers of a rank: small, so that every dtype holds their sums and products."""
    return (np.arange(np.prod(shape)).reshape(shape) + rank) % 5 + 1


def both(how, shape=(4, 3)):
    return how(np.stack([of(r, shape) for r in range(N)]).astype(np.float64), axis=0)


def slices(values, indices, rows=3):
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices), tf.constant([rows, 2]))


@symbol("allreduce")
def allreduce(t):
    for dtype in NUMBERS:
        x = tf.cast(tf.constant(of(R)), dtype)
        for op, how in OPS:
            if dtype in FLOATS or op != hvd.Average:
                t.equal(hvd.allreduce(x, op=op), both(how), dtype=dtype)
    t.equal(hvd.allreduce(tf.cast(of(R), tf.float32)), both(np.mean))
    t.equal(hvd.allreduce(tf.cast(of(R), tf.float32), average=False), both(np.sum))
    t.equal(hvd.allreduce(tf.constant(float(R))), 0.5)
    t.equal(hvd.allreduce(tf.zeros([0, 3])), np.zeros([0, 3]))
    t.equal(hvd.allreduce(tf.Variable([float(R)]), op=hvd.Sum, name="of.a.variable"), [1])
    t.fails(ValueError, ["op", "average"], hvd.allreduce, tf.ones(1), average=True, op=hvd.Sum)


@symbol("allreduce")
def allreduce_scaled_and_compressed(t):
    x = tf.cast(of(R), tf.float32)
    t.equal(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), both(np.sum) * 2)
    half = hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16)
    t.equal(half, both(np.sum), dtype=tf.float32)
    with tf.device("/cpu:0"):
        t.equal(hvd.allreduce(x, device_dense="/cpu:0", device_sparse="/cpu:0"), both(np.mean))


@symbol("allreduce")
def allreduce_in_graphs(t):
    x = tf.cast(of(R), tf.float32)
    traced = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="traced"))
    for _ in range(2):
        t.equal(traced(x), both(np.sum))
    t.equal(session_run(lambda: hvd.allreduce(tf.constant(of(R), tf.float32))), both(np.mean))
    with tf.name_scope("scope"):
        t.equal(hvd.allreduce(x, op=hvd.Sum, ignore_name_scope=True, name="outside"), both(np.sum))


@symbol("allreduce")
def allreduce_of_indexed_slices(t):
    dense = np.zeros([3, 2])
    dense[0] += 1.0
    dense[2] += 2.0
    dense[1] += 4.0
    x = slices([[1.0, 1.0]], [0]) if R == 0 else slices([[2.0, 2.0], [4.0, 4.0]], [2, 1])
    t.sparse(hvd.allreduce(x, op=hvd.Sum), dense)
    t.sparse(hvd.allreduce(x), dense / N)
    t.fails(NotImplementedError, ["Adasum", "sparse_as_dense=True"], hvd.allreduce, x, op=hvd.Adasum)
    t.fails(NotImplementedError, ["IndexedSlices"], hvd.allreduce, x, op=hvd.Max)
    t.fails(NotImplementedError, ["IndexedSlices", "scale_factor"], hvd.allreduce, x, prescale_factor=2.0)


@symbol("allreduce")
def gradient_of_allreduce(t):
    x = tf.Variable([1.0, 2.0])
    for op, factor in ((hvd.Sum, N), (hvd.Average, 1)):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(hvd.allreduce(x, op=op))
        t.equal(tape.gradient(y, x), [factor] * 2)


@symbol("allreduce")
def allreduce_by_adasum(t):
    x = tf.constant([1.0, 0.0] if R == 0 else [0.0, 2.0])
    t.equal(hvd.allreduce(x, op=hvd.Adasum), [1, 2], tolerance=1e-6)  # orthogonal: added
    same = tf.constant([3.0, 4.0])
    t.equal(hvd.allreduce(same, op=hvd.Adasum), [3, 4], tolerance=1e-6)  # parallel: averaged


@symbol("grouped_allreduce")
def grouped_allreduce(t):
    parts = [tf.cast(of(R), tf.float32), tf.cast(of(R, (2,)), tf.float32)]
    for op, how in OPS:
        got = hvd.grouped_allreduce(parts, op=op)
        assert isinstance(got, list)
        t.equal(got[0], both(how))
        t.equal(got[1], both(how, (2,)))
    t.equal(hvd.grouped_allreduce(parts)[1], both(np.mean, (2,)))
    t.equal(hvd.grouped_allreduce(parts, average=False, prescale_factor=2.0)[0], 2 * both(np.sum))
    half = hvd.grouped_allreduce(parts, compression=hvd.Compression.fp16, name="half")
    t.equal(half[0], both(np.mean), dtype=tf.float32)
    assert hvd.grouped_allreduce([]) == []


@symbol("grouped_allreduce")
def grouped_allreduce_with_indexed_slices_among_them(t):
    """Each comes back in its place (the original mixes up their shapes)."""
    sparse = tf.IndexedSlices(tf.constant([[1.0 + R, 0.0]]), tf.constant([4 * R]), tf.constant([5, 2]))
    got = hvd.grouped_allreduce([tf.fill([3], 1.0 + R), sparse, tf.fill([1], 2.0 * R)], op=hvd.Sum)
    dense = np.zeros([5, 2])
    dense[0, 0], dense[4, 0] = 1, 2
    t.equal(got[0], [3, 3, 3])
    t.sparse(got[1], dense)
    t.equal(got[2], [2])
    t.fails(NotImplementedError, ["IndexedSlices"], hvd.grouped_allreduce, [sparse], op=hvd.Min)
    t.fails(NotImplementedError, ["Adasum"], hvd.grouped_allreduce, [sparse], op=hvd.Adasum)


@symbol("grouped_allreduce")
def gradient_of_grouped_allreduce(t):
    a, b = tf.Variable([1.0]), tf.Variable([2.0, 3.0])
    with tf.GradientTape() as tape:
        got = hvd.grouped_allreduce([a.read_value(), b.read_value()], op=hvd.Sum)
        y = tf.reduce_sum(got[0]) + 2 * tf.reduce_sum(got[1])
    da, db = tape.gradient(y, [a, b])
    t.equal(da, [N])
    t.equal(db, [2 * N] * 2)


@symbol("reducescatter")
def reducescatter(t):
    x = tf.cast(of(R), tf.float32)
    mine = slice(2 * R, 2 * R + 2)
    for op, how in ((hvd.Sum, np.sum), (hvd.Average, np.mean), (hvd.Max, np.max), (hvd.Min, np.min)):
        t.equal(hvd.reducescatter(x, op=op), both(how)[mine], dtype=tf.float32)
    t.equal(hvd.reducescatter(x), both(np.mean)[mine])
    scaled = hvd.reducescatter(x, op=hvd.Sum, prescale_factor=3.0, postscale_factor=0.5, name="scaled")
    t.equal(scaled, both(np.sum)[mine] * 1.5)
    t.equal(hvd.reducescatter(x, compression=hvd.Compression.fp16), both(np.mean)[mine], dtype=tf.float32)
    odd = hvd.reducescatter(tf.cast(of(R, (3, 2)), tf.float32), op=hvd.Sum)  # the first ranks get more
    t.equal(odd, both(np.sum, (3, 2))[:2] if R == 0 else both(np.sum, (3, 2))[2:])


@symbol("reducescatter")
def gradient_of_reducescatter(t):
    x = tf.Variable(tf.ones([4, 3]))
    for op, factor in ((hvd.Sum, N), (hvd.Average, 1)):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(hvd.reducescatter(x.read_value(), op=op)) * (R + 1.0)
        want = np.repeat([1.0, 2.0], 2)[:, None] * np.ones([4, 3]) * factor
        t.equal(tape.gradient(y, x), want)


@symbol("grouped_reducescatter")
def grouped_reducescatter(t):
    parts = [tf.cast(of(R), tf.float32), tf.cast(of(R, (2, 2)), tf.float32)]
    got = hvd.grouped_reducescatter(parts, op=hvd.Sum, prescale_factor=2.0)
    t.equal(got[0], 2 * both(np.sum)[2 * R : 2 * R + 2])
    t.equal(got[1], 2 * both(np.sum, (2, 2))[R : R + 1])
    t.equal(hvd.grouped_reducescatter(parts)[1], both(np.mean, (2, 2))[R : R + 1])
    assert hvd.grouped_reducescatter([]) == []


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


@symbol("allreduce")
def a_compressor_of_the_users(t):
    class Doubled(compression.Compressor):
        @staticmethod
        def compress(tensor):
            return tf.cast(tensor, tf.float64), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tf.cast(tensor * 2, ctx)

    got = hvd.allreduce(tf.constant([1.0 + R]), op=hvd.Sum, compression=Doubled)
    t.equal(got, [6], dtype=tf.float32)
