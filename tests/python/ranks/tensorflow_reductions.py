# SPDX-License-Identifier: Apache-2.0
"""hvd.allreduce and its relations on what users have: IndexedSlices, mixed lists, Variables, compressed."""

import os
import warnings

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, expect_error, main

tf.get_logger().setLevel("ERROR")  # each function here is traced once, and TensorFlow warns of that
hvd.init()
R, N = hvd.rank(), hvd.size()


def in_both(function):
    """Calls it eagerly, then twice as a tf.function."""
    yield function()
    traced = tf.function(function)
    yield traced()
    yield traced()


def numbers(shape, rank, dtype=np.float32):
    """Different ones on each rank, with few bits: sums of them are exact in 16-bit floats."""
    return ((np.arange(np.prod(shape)) * 7 + rank * 3) % 11 - 5).reshape(shape).astype(dtype)


def slices(rank, dtype=tf.float32, dense_shape=(6, 2)):
    """rank + 1 rows of a matrix; the last one is twice there."""
    rows = np.arange(rank + 1) % 5
    rows = np.append(rows, rows[-1])
    values = numbers((len(rows), 2), rank)
    return tf.IndexedSlices(tf.constant(values, dtype), tf.constant(rows), tf.constant(dense_shape))


def dense(x):
    return tf.convert_to_tensor(x).numpy()


def total(of=slices):
    return sum(dense(of(r)) for r in range(N))


@check
def slices_are_gathered():
    for got in in_both(lambda: hvd.allreduce(slices(R), op=hvd.Sum)):
        assert isinstance(got, tf.IndexedSlices) and got.values.shape[0] == sum(r + 2 for r in range(N))
        assert got.dense_shape.numpy().tolist() == [6, 2]
        assert np.array_equal(dense(got), total())
    cancelling = {"prescale_factor": 1 / 49, "postscale_factor": 49}  # as of gradient_predivide_factor
    got = hvd.allreduce(slices(R), op=hvd.Average, name="by_name", **cancelling)
    assert np.allclose(dense(got), total() / N)


@check
def averaged_slices_of_integers_are_floats():
    values = tf.constant([[-3 - 2 * R]])
    got = hvd.allreduce(tf.IndexedSlices(values, tf.constant([R])))
    assert got.values.dtype == tf.float64 and got.dense_shape is None
    assert got.values.numpy().ravel().tolist() == [(-3 - 2 * r) / N for r in range(N)]
    assert got.indices.numpy().tolist() == list(range(N))


@check
def a_rank_may_have_no_rows():
    mine = tf.IndexedSlices(tf.ones([R, 2]), tf.zeros([R], tf.int64), tf.constant([3, 2], tf.int64))
    got = hvd.allreduce(mine, op=hvd.Sum)
    assert got.values.shape == (sum(range(N)), 2) and got.indices.dtype == tf.int64


@check
def what_slices_cannot_be_reduced_by_is_refused():
    words = "Only Sum and Average ops are supported with tf.IndexedSlices"
    table = [([words], {"op": op}) for op in (hvd.Min, hvd.Max, hvd.Product)]
    words = "Pre/postscale_factor are not supported with tf.IndexedSlices; multiply its values instead"
    table += [([words], {factor: 0.5}) for factor in ("prescale_factor", "postscale_factor")]
    table += [(["Adasum", "sparse_as_dense=True"], {"op": hvd.Adasum})]
    for words, options in table:
        expect_error(NotImplementedError, words, hvd.allreduce, slices(R), **options)
        expect_error(NotImplementedError, words, hvd.grouped_allreduce, [slices(R)], **options)


@check
def a_mixed_list_is_reduced_in_its_places():
    def mixed():
        shapes = ((9, 2), (7, 2))  # not those of the tensors at their places
        return hvd.grouped_allreduce(
            [
                tf.constant(numbers((4, 3), R)),
                slices(R, dense_shape=shapes[0]),
                tf.constant(numbers((5,), R), tf.float64),
                tf.constant(numbers((2,), R), tf.int32),
                slices(R, tf.float64, dense_shape=shapes[1]),
            ],
            op=hvd.Sum,
        )

    for got in in_both(mixed):
        assert [x.dtype for x in got] == [tf.float32, tf.float32, tf.float64, tf.int32, tf.float64]
        for i, shape in ((0, (4, 3)), (2, (5,)), (3, (2,))):
            assert np.array_equal(got[i].numpy(), sum(numbers(shape, r) for r in range(N))), i
        for i, rows in ((1, 9), (4, 7)):
            assert got[i].dense_shape.numpy().tolist() == [rows, 2]
            assert np.array_equal(dense(got[i])[:6], total()), i


@check
def average_is_the_old_word_for_op():
    x = tf.constant([R + 1.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert float(hvd.allreduce(x, average=False)[0]) == N * (N + 1) / 2
        assert float(hvd.grouped_allreduce([x], average=True)[0][0]) == (N + 1) / 2
    caught = [w for w in caught if "`average`" in str(w.message)]
    assert [(w.category, w.filename) for w in caught] == [(DeprecationWarning, __file__)] * 2, caught
    words = ["The op parameter supersedes average"]
    expect_error(ValueError, words, hvd.allreduce, x, average=True, op=hvd.Sum)
    expect_error(ValueError, words, hvd.grouped_allreduce, [x], average=True, op=hvd.Sum)


@check
def variables_arrays_and_numbers_are_tensors_too():
    want = sum(r + 1.0 for r in range(N))
    variable = getattr(tf.keras, "Variable", tf.Variable)
    for value in (tf.Variable(R + 1.0), np.float32(R + 1.0), R + 1.0, variable(R + 1.0)):
        for got in in_both(lambda value=value: hvd.allreduce(value, op=hvd.Sum)):
            assert float(got) == want, value
        got = hvd.grouped_allreduce([value], op=hvd.Sum, compression=hvd.Compression.fp16)
        assert float(got[0]) == want, value


class Halver:
    """A compressor of a user's: half of each number travels."""

    asked = 0

    @classmethod
    def compress(cls, tensor):
        cls.asked += 1
        return tensor / 2, tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tf.cast(tensor * 2, ctx)


@check
def every_compressor_gives_the_sum():
    matrix = (np.outer(np.arange(1, 33), np.arange(1, 17)) / 64).astype(np.float32)
    want, x = matrix * (N * (N + 1) / 2), tf.constant(matrix * (R + 1))
    c = hvd.Compression
    of = {
        1e-7: [c.none, Halver, Halver(), c.topk(ratio=1.0)],
        1e-3: [c.fp16],
        1e-2: [c.bf16, c.int8, c.int8(block=256, feedback=False), c.powersgd(rank=1)],
    }
    for tolerance, compressors in of.items():
        for compressor in compressors:
            one = lambda c=compressor: hvd.allreduce(x, op=hvd.Sum, compression=c)  # noqa: E731
            group = lambda c=compressor: hvd.grouped_allreduce([x], op=hvd.Sum, compression=c)[0]  # noqa: E731
            for got in (*in_both(one), *in_both(group)):
                gap = np.abs(got.numpy() - want).max() / want.max()
                assert got.dtype == tf.float32 and gap <= tolerance * N, (compressor, gap)
    assert Halver.asked >= 8


@check
def sixteen_bits_travel_as_such():
    third = tf.constant([1 / 3])
    for compressor, kind in ((hvd.Compression.fp16, tf.float16), (hvd.Compression.bf16, tf.bfloat16)):
        rounded = tf.cast(tf.cast(third, kind), tf.float32).numpy()
        for got in in_both(lambda c=compressor: hvd.allreduce(third, compression=c)):
            assert N == 1 or (got.numpy() == rounded).all(), compressor
        sent, context = compressor.compress(third)
        assert sent.dtype == kind and (compressor.decompress(sent, context).numpy() == rounded).all()
    whole = tf.constant([7, 8])
    assert hvd.Compression.fp16.compress(whole)[0] is whole


@check
def a_wrong_compressor_is_an_error():
    x, topk = tf.ones([99, 2]), hvd.Compression.topk
    words = ["compress", "hvd.Compression"]
    expect_error(TypeError, words, hvd.allreduce, x, compression=object())
    expect_error(TypeError, words, hvd.grouped_allreduce, [x], compression="fp16")
    words = ["topk", "only allreduce does"]
    expect_error(NotImplementedError, words, hvd.reducescatter, x, compression=topk)
    expect_error(NotImplementedError, words, hvd.grouped_reducescatter, [x], compression=topk)
    words, wrong = ["int8", "chunk"], hvd.Compression.int8(chunk=3)
    expect_error(tf.errors.OpError, words, hvd.allreduce, x, compression=wrong)


@check
def gradients_go_through_all_of_it():
    x = tf.constant(numbers((6, 2), R))

    def gradient(operation):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = operation(x) * float(R + 1)
        return tape.gradient(y, x)

    want = np.full((6, 2), sum(r + 1 for r in range(N)))
    for options in (
        {"op": hvd.Sum},
        {"op": hvd.Sum, "compression": hvd.Compression.fp16},
        {"op": hvd.Sum, "compression": Halver},
    ):
        one = lambda t, o=options: hvd.allreduce(t, **o)  # noqa: E731
        several = lambda t, o=options: hvd.grouped_allreduce([t, t], **o)[1]  # noqa: E731
        for operation in (one, several):
            for got in in_both(lambda operation=operation: gradient(operation)):
                assert np.allclose(got.numpy(), want), options


@check
def rows_are_scattered():
    rows = 2 * N + 1  # the first rank gets one more
    every = np.stack([numbers((rows, 3), r) for r in range(N)])
    begin = 0 if R == 0 else 2 * R + 1
    want = every.sum(0)[begin : begin + 2 + (R == 0)]
    x = tf.constant(every[R])
    for got in in_both(lambda: hvd.reducescatter(x, compression=hvd.Compression.fp16)):
        assert got.dtype == tf.float32 and np.allclose(got.numpy(), want / N, atol=5e-3)
    both = [x, tf.cast(x, tf.float64)]
    options = {"op": hvd.Sum, "prescale_factor": 0.5, "postscale_factor": 4.0}
    for got in in_both(lambda: hvd.grouped_reducescatter(both, **options)):
        assert [g.dtype for g in got] == [tf.float32, tf.float64]
        assert all(np.array_equal(g.numpy(), 2 * want) for g in got)
    got = hvd.reducescatter(np.ones((N, 1), np.float32), name="named_scatter", op=hvd.Sum)
    assert got.numpy().tolist() == [[N]]


@check
def a_set_must_be_one():
    late, x = hvd.ProcessSet([0]), tf.ones([2])
    for call in (hvd.allreduce, hvd.reducescatter):
        expect_error(ValueError, ["not been registered"], call, x, process_set=late)
        expect_error(TypeError, ["process_set", "int"], call, x, process_set=0)
    for call in (hvd.grouped_allreduce, hvd.grouped_reducescatter):
        expect_error(ValueError, ["not been registered"], call, [x], process_set=late)


@check
def what_a_codec_keeps_of_one_tensor_does_not_reach_another():
    """And what is no gradient of weights loses nothing by HVD_COMPRESSION."""
    hvd.shutdown()
    os.environ["HVD_COMPRESSION"] = "topk:ratio=0.01"
    try:
        hvd.init()
        large, zeros = tf.constant(np.linspace(1, 2, 1000), tf.float32), tf.zeros([1000])
        for _ in range(3):
            sent = hvd.allreduce(large, op=hvd.Sum).numpy()
            assert N == 1 or np.count_nonzero(sent) < 1000, "was not compressed"
            assert not hvd.allreduce(zeros, op=hvd.Sum).numpy().any()
        for collect in (hvd.allgather, lambda x: hvd.broadcast(x, 0)):
            with tf.GradientTape() as tape:
                tape.watch(large)
                y = tf.reduce_sum(collect(large)[:1000] * large)
            assert np.count_nonzero(tape.gradient(y, large).numpy()) == 1000
        layer = hvd.SyncBatchNormalization(axis=1)
        x = tf.constant(np.random.default_rng(R).normal(size=(4, 500)), tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(layer(x, training=True) ** 3)
        gap = np.abs(hvd.allgather(tape.gradient(y, x)).numpy().sum(0)).max()
        assert gap < 1e-3, f"gradients through the mean add up to {gap}"
        with tf.Graph().as_default():
            metrics, run = {str(i): tf.constant(float(i + R)) for i in range(200)}, tf.constant(0)
            hook = hvd.MetricAverageHook(metrics, every_n=1)
            with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                session.run(run)
            assert np.allclose(list(hook.averages.values()), np.arange(200) + (N - 1) / 2)
    finally:
        hvd.shutdown()
        del os.environ["HVD_COMPRESSION"]
        hvd.init()


main(R)
