# SPDX-License-Identifier: Apache-2.0
"""The TensorFlow operation: eagerly, in tf.function, in a v1 session, its gradient and its errors."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, expect_error, main

# would fail if importing us had started TensorFlow's devices
tf.config.threading.set_inter_op_parallelism_threads(2)
hvd.init()
R, N = hvd.rank(), hvd.size()


def values(size, rank):
    return (np.arange(size) * 7 + rank * 3) % 11 - 5


def total(size):
    return sum(values(size, r) for r in range(N))


@check
def completion_is_as_the_test_wants_it():
    assert hvd.completion_mode() == os.environ["WANT_MODE"], hvd.completion_mode()


@check
def eager_sum_and_average_equal_numpy():
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64):
        for size in (0, 1, 7, 2**20 + 3):
            x = tf.cast(tf.constant(values(size, R)), dtype)
            got = hvd.allreduce(x, op=hvd.Sum)
            assert got.dtype == dtype and got.shape == x.shape
            assert np.array_equal(tf.cast(got, tf.float64).numpy(), total(size)), (dtype, size)
    got = hvd.allreduce(tf.constant(values(7, R), tf.float32))
    assert np.allclose(got.numpy(), total(7) / N, atol=1e-5)


@check
def graph_and_gradient_work():
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) * float(R + 1))
        return y, tape.gradient(y, x)

    for _ in range(3):
        y, g = f(tf.fill([4], float(R + 1)))
        assert abs(float(y) - 4 * (R + 1) * N * (N + 1) / 2) < 1e-3, y
        assert np.allclose(g.numpy(), N * (N + 1) / 2), g


@check
def many_operations_of_one_graph_complete_in_any_order():
    @tf.function
    def f(x):
        return tf.stack([hvd.allreduce(x * float(i), op=hvd.Sum, name=f"many_{i}") for i in range(40)])

    for _ in range(3):
        assert np.allclose(f(tf.constant(1.0)).numpy(), np.arange(40) * N)


@check
def session_of_a_v1_graph_works():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        y = hvd.allreduce(tf.constant([float(R)]), op=hvd.Sum, name="v1")
        assert session.run(y)[0] == sum(range(N))


@check
def tensorflow_without_eager_execution_works():
    import subprocess
    import sys

    code = """if 1:
        import tensorflow.compat.v1 as tf
        import horovod.tensorflow as hvd
        tf.disable_eager_execution()
        hvd.init()
        y = hvd.allreduce(tf.constant([2.0]), op=hvd.Sum)
        with tf.Session() as session:
            print("MODE", hvd.completion_mode(), session.run(y))
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        env.pop(name, None)
    if R == 0:
        out = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=90
        )
        assert f"MODE {os.environ['WANT_MODE']} [2.]" in out.stdout, out


@check
def shape_is_known_when_tracing():
    @tf.function
    def f(x):
        assert hvd.allreduce(x, op=hvd.Sum, name="shape").shape.as_list() == [2, 3]
        return x

    f(tf.zeros([2, 3]))


@check
def compression_and_scales_work():
    x = tf.ones([3]) * (R + 1)
    got = hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16, prescale_factor=0.5)
    assert got.dtype == tf.float32 and np.allclose(got.numpy(), N * (N + 1) / 4)


@check
def a_mismatch_is_a_tensorflow_error_that_names_it():
    if N == 1:
        return
    shape = [3] if R == 0 else [4]
    words = ["wrong_tf", "3", "4"]
    expect_error(tf.errors.OpError, words, hvd.allreduce, tf.ones(shape), name="wrong_tf")
    assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == N


@check
def objects_travel():
    assert hvd.broadcast_object(R, N - 1) == N - 1
    assert hvd.allgather_object(R) == list(range(N))


@check
def absent_things_say_so():
    expect_error(NotImplementedError, ["DistributedGradientTape"], hvd.DistributedGradientTape, None)
    expect_error(NotImplementedError, ["Adasum"], hvd.allreduce, tf.ones(1), op=hvd.Adasum)
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))
    expect_error(NotImplementedError, ["IndexedSlices"], hvd.allreduce, slices)


@check
def perseus_is_the_same():
    import perseus.tensorflow.horovod as perseus

    assert perseus.allreduce is hvd.allreduce and perseus.Sum == 1


main(R)
