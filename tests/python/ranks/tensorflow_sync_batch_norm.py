# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNormalization: n ranks with their shares equal one process with the joined batch."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, expect_error, main

hvd.init()
R, N = hvd.rank(), hvd.size()
IS_KERAS_2 = not hasattr(tf.keras, "ops")
PLAIN = {"fused": False} if IS_KERAS_2 else {}
v1 = tf.compat.v1


def share(rank, rows, shape, seed=0, dtype="float64"):
    rng = np.random.default_rng(100 * seed + rank)
    return (rng.normal(size=(rows, *shape)) * (1 + np.arange(shape[-1])) + 10 * rank).astype(dtype)


def filled(layer, shape, seed=3):
    layer.build((None, *shape))
    rng = np.random.default_rng(seed)
    for v in layer.trainable_variables:
        v.assign(rng.uniform(0.5, 1.5, size=v.shape))
    return layer


def loss_of(out, x):
    return tf.reduce_sum(tf.sin(out) * (1 + tf.stop_gradient(x)))


def step_of(layer, as_function):
    """A function of x that gives the output and the gradients; a tf.function is traced once for all steps."""

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = layer(x, training=True)
            loss = loss_of(out, x)
        return out, tape.gradient(loss, [x, *layer.trainable_variables])

    return tf.function(step) if as_function else step


def equal(a, b, what, tolerance=1e-11):
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=tolerance, atol=tolerance, err_msg=what)


def compare(
    rows, shape=(3,), as_function=False, steps=2, dtype="float64", tolerance=1e-11, ranks=None, **options
):
    """Both layers over some steps, with a loss that all ranks' rows add to alike."""
    ranks = ranks or range(N)
    process_set = {k: options.pop(k) for k in ("process_set",) if k in options}
    ours = filled(hvd.SyncBatchNormalization(dtype=dtype, **process_set, **options), shape)
    plain = filled(tf.keras.layers.BatchNormalization(dtype=dtype, **options, **PLAIN), shape)
    start = sum(rows[r] for r in ranks if r < R)
    mine = slice(start, start + rows[R])
    step_of_ours, step_of_plain = step_of(ours, as_function), step_of(plain, as_function)
    for step in range(steps):
        shares = [share(r, rows[r], shape, step, dtype) for r in ranks]
        out, grads = step_of_ours(tf.constant(shares[list(ranks).index(R)]))
        whole, expected = step_of_plain(tf.constant(np.concatenate(shares)))
        equal(out, whole[mine], "output", tolerance)
        equal(grads[0], expected[0][mine], "gradient of the input", tolerance * 100)
        for g, e in zip(grads[1:], expected[1:]):
            equal(hvd.allreduce(g, op=hvd.Sum, **process_set), e, "gradient of a weight", tolerance * 100)
        for a, b in zip(ours.non_trainable_variables, plain.non_trainable_variables):
            equal(a.numpy(), b.numpy(), "moving average", tolerance)


@check
def it_equals_the_joined_batch():
    compare([6] * N)
    compare([4] * N, shape=(5, 2))
    compare([2] * N, shape=(4, 3, 2), as_function=True)
    compare([2] * N, shape=(3, 4), axis=1)
    compare([4] * N, scale=False, center=False, epsilon=0.1, momentum=0.5, name="by_name")


@check
def batches_may_differ_and_be_empty():
    for as_function in (False, True):
        compare([1 + 3 * r for r in range(N)], as_function=as_function)
    if N > 1:
        compare([0 if r == N - 1 else 5 for r in range(N)], as_function=True)


@check
def a_far_mean_does_not_cancel():
    # by E[x^2] - E[x]^2 the variance of these float32 values would be lost
    mine = slice(R * 8, R * 8 + 8)
    ours = hvd.SyncBatchNormalization(epsilon=0.0)
    x = (10000 + share(0, 8 * N, (2,), dtype="float32") / 10).astype("float32")
    out = ours(x[mine], training=True)
    whole = x.astype("float64")
    expected = (whole - whole.mean(0)) / whole.std(0)
    equal(out, expected[mine], "output", 2e-2)


@check
def sixteen_bits_have_statistics_of_32():
    tf.keras.backend.set_floatx("float32")
    layer = hvd.SyncBatchNormalization(dtype="mixed_float16")
    x = tf.cast(share(R, 64, (2,)) * 300, tf.float16)
    out = layer(x, training=True)
    assert out.dtype == tf.float16 and bool(tf.reduce_all(tf.math.is_finite(out)))
    assert layer.moving_variance.dtype in (tf.float32, "float32")
    mean = hvd.allreduce(tf.reduce_mean(tf.cast(out, tf.float32)))
    assert abs(float(mean)) < 0.02, mean


@check
def masked_values_do_not_count():
    x = share(R, 4, (5, 2))
    mask = np.random.default_rng(R).integers(0, 2, (4, 5)).astype(bool)
    layer = hvd.SyncBatchNormalization(dtype="float64", momentum=0.0)
    layer(x, training=True, mask=tf.constant(mask))
    seen = np.concatenate(hvd.allgather_object(x[mask]))
    equal(layer.moving_mean.numpy(), seen.mean(0), "mean")
    equal(layer.moving_variance.numpy(), seen.var(0), "variance")


@check
def evaluation_needs_no_other_rank():
    layer = filled(hvd.SyncBatchNormalization(dtype="float64"), (3,))
    if R == 0:
        layer(share(0, 4, (3,)), training=False)


if N > 1:

    @check
    def process_sets_share_among_themselves():
        ranks = [0, N - 1] if N > 2 else [0]
        some = hvd.add_process_set(ranks)
        layer = hvd.SyncBatchNormalization(process_set=some)
        if some.included():
            compare([3] * N, ranks=ranks, process_set=some)
            again = hvd.SyncBatchNormalization.from_config(layer.get_config())
            assert again.process_set is some and layer.get_config()["process_set"] == ranks
        else:
            words = ["not part of provided process set"]
            expect_error(ValueError, words, layer, share(R, 2, (3,)), training=True)
        words = ["no process set of the ranks [0, 77]"]
        expect_error(ValueError, words, hvd.SyncBatchNormalization, process_set=[77, 0])
        hvd.remove_process_set(some)


@check
def it_trains_in_a_model_by_fit():
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    first, second = hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization()
    model = tf.keras.Sequential([tf.keras.Input((4,)), first, layers.Dense(3), second, layers.Dense(1)])
    assert first.name != second.name
    model.compile(optimizer="sgd", loss="mse")
    model.fit(share(R, 16, (4,)), np.ones((16, 1)), batch_size=8, epochs=2, verbose=0, shuffle=False)
    moving = [v.numpy().tolist() for v in first.non_trainable_variables]
    assert all(m == moving for m in hvd.allgather_object(moving))
    config = first.get_config()
    assert hvd.SyncBatchNormalization.from_config(config).get_config() == config
    assert "process_set" not in config
    assert type(tf.keras.models.clone_model(model).layers[0]) is hvd.SyncBatchNormalization


@check
def one_layer_may_be_in_two_places():
    layer = filled(hvd.SyncBatchNormalization(dtype="float64", momentum=0.5), (2,))
    places = [tf.function(lambda x: layer(x, training=True)) for _ in range(2)]

    @tf.function
    def both(*data):
        with tf.GradientTape() as tape:
            tape.watch(data)
            out = [place(x) for place, x in zip(places, data)]
            loss = tf.add_n([tf.reduce_sum(y * y * x) for y, x in zip(out, data)])
        return out, tape.gradient(loss, data)

    data = [tf.constant(share(R, 4, (2,), seed)) for seed in (0, 9)]
    out, grads = both(*data)
    for y, x in zip(out, data):
        equal(y, layer(x, training=True), "output")
    assert all(bool(tf.reduce_all(tf.math.is_finite(g))) for g in grads)


@check
def what_cannot_be_is_refused():
    make = hvd.SyncBatchNormalization
    for fused in (True, None):
        expect_error(ValueError, ["does not support fused=True"], make, fused=fused)
    expect_error(ValueError, ["does not support virtual_batch_size"], make, virtual_batch_size=2)


if IS_KERAS_2:

    @check
    def graphs_of_tensorflow_1_find_the_updates():
        with tf.Graph().as_default():
            layer = hvd.SyncBatchNormalization(momentum=0.0)
            x = v1.placeholder(tf.float32, [None, 2])
            layer(x, training=True)
            updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
            assert len(updates) == 2
            everything = v1.global_variables_initializer()
            with v1.Session() as session:
                session.run(everything)
                session.run(updates, {x: share(R, 4, (2,))})
                mean = session.run(layer.moving_mean)
            equal(mean, np.concatenate([share(r, 4, (2,)) for r in range(N)]).mean(0), "mean", 1e-5)


main(R)
