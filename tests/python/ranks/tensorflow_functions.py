# SPDX-License-Identifier: Apache-2.0
"""One rank's variables and objects for all: eagerly, in tf.function and in TensorFlow 1's sessions."""

import subprocess
import warnings
from unittest import mock

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd.tensorflow import mpi_ops
from checks import check, check_if, expect_error, main

tf.get_logger().setLevel("ERROR")
hvd.init()
R, N = hvd.rank(), hvd.size()
ROOT = N - 1
V1 = tf.compat.v1


def value(rank, dtype):
    kind = tf.as_dtype(dtype)
    numbers = np.arange(6).reshape(2, 3) + 10 * rank
    if kind == tf.bool:
        return numbers % (rank + 2) == 0
    if kind.is_complex:
        return (numbers + 1j * (rank + 1)).astype(kind.as_numpy_dtype)
    if kind in (tf.uint32, tf.uint64):
        return ~numbers.astype(kind.as_numpy_dtype)  # needs all bits
    return numbers.astype(kind.as_numpy_dtype)


NAMES = "float32 float64 float16 bfloat16 int8 uint8 int16 uint16 int32 int64 bool uint32 uint64"
DTYPES = [getattr(tf, name) for name in f"{NAMES} complex64 complex128".split()]


def check_values(variables, rank=ROOT):
    for v in variables:
        assert np.array_equal(v.numpy(), value(rank, v.dtype)), (v.dtype, v.numpy())


@check
def a_gpu_is_looked_for_without_another_tensorflow():
    with mock.patch.object(subprocess, "run", side_effect=AssertionError("started a process")):
        assert hvd.gpu_available("tensorflow") is False  # CUDA_VISIBLE_DEVICES=-1


@check
def variables_of_every_dtype_are_the_roots():
    for inplace in (False, True):
        for _ in range(2):
            variables = [tf.Variable(value(R, d), dtype=d) for d in DTYPES]
            assert hvd.broadcast_variables(variables, ROOT, inplace=inplace) is None
            check_values(variables)
    variables = [tf.Variable(value(R, tf.float32)) for _ in range(3)]
    hvd.broadcast_variables((v for v in variables), root_rank=0)
    check_values(variables, 0)
    scalar, empty = tf.Variable(float(R)), tf.Variable(tf.zeros([0, 3]))
    hvd.broadcast_variables([scalar, empty], ROOT)
    assert float(scalar) == ROOT
    for inplace in (False, True):
        assert hvd.broadcast_variables([], 0, inplace=inplace) is None


@check
def variables_of_keras_follow():
    keras = tf.keras
    keras.utils.set_random_seed(R)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5)])
    model.build((None, 3))
    for inplace in (False, True):
        for v in model.trainable_variables:
            v.assign(tf.random.normal(v.shape, seed=R))
        # all: also what dropout counts with, of 32 bits without a sign
        hvd.broadcast_variables(model.variables, ROOT, inplace=inplace)
        every = hvd.allgather_object([v.numpy().tolist() for v in model.variables])
        assert all(one == every[ROOT] for one in every), "ranks hold different weights"


@check
def variables_meet_by_their_names():
    a, b = tf.Variable([1.0 + R], name="a"), tf.Variable([20.0 + R], name="b")
    order = [a, b] if R == 0 else [b, a]
    hvd.broadcast_variables(order, 0)
    assert (float(a[0]), float(b[0])) == (1, 20), (a, b)
    if hvd.completion_mode() == "blocking":
        return  # these need one order

    @tf.function
    def sums():
        return [hvd.allreduce(v, op=hvd.Sum) for v in order]

    got = [float(x[0]) for x in sums()]
    assert got == [N * float(v[0]) for v in order], got


@check
def variables_follow_in_a_function():
    variables = [tf.Variable(value(R, d), dtype=d) for d in (tf.float32, tf.uint32, tf.int64)]
    for inplace in (False, True):

        @tf.function
        def start(inplace=inplace):
            hvd.broadcast_variables(variables, ROOT, inplace=inplace)

        for _ in range(2):
            for v in variables:
                v.assign(value(R, v.dtype))
            start()
            check_values(variables)


@check
def variables_that_cannot_travel_are_named():
    words = tf.Variable(["a", "b"])
    expect_error((TypeError, tf.errors.OpError), ["string"], hvd.broadcast_variables, [words], 0)


@check
def graphs_of_tensorflow_1_broadcast():
    for use_resource in (True, False):
        for inplace in (False, True):
            with tf.Graph().as_default(), V1.Session() as session:
                variables = [
                    V1.get_variable(f"v_{d.name}", initializer=value(R, d), use_resource=use_resource)
                    for d in (tf.float32, tf.float64, tf.int64, tf.bool)
                ]
                operation = hvd.broadcast_variables(variables, ROOT, inplace=inplace)
                session.run(V1.global_variables_initializer())
                for _ in range(2):
                    session.run(operation)
                for v, got in zip(variables, session.run(variables)):
                    assert np.array_equal(got, value(ROOT, v.dtype.base_dtype)), (v, got)
    with tf.Graph().as_default(), V1.Session() as session:
        mixed = [V1.get_variable(f"m{i}", initializer=float(R), use_resource=bool(i)) for i in range(2)]
        operation = hvd.broadcast_variables(mixed, ROOT, inplace=True)
        session.run(V1.global_variables_initializer())
        session.run(operation)
        assert session.run(mixed) == [ROOT, ROOT]
        expect_error(ValueError, ["same kind"], mpi_ops.broadcast_, mixed, 0)


@check
def global_variables_are_those_of_the_graph():
    with tf.Graph().as_default(), V1.Session() as session, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.run(hvd.broadcast_global_variables(0))
        said = [w.filename for w in caught if "found no variables" in str(w.message)]
        assert said == [__file__]
        v = V1.get_variable("v", initializer=float(R))
        own = V1.get_variable("own", initializer=float(R), collections=[V1.GraphKeys.LOCAL_VARIABLES])
        operation = hvd.broadcast_global_variables(ROOT)
        session.run([V1.global_variables_initializer(), V1.local_variables_initializer()])
        session.run(operation)
        assert session.run([v, own]) == [ROOT, R]
    words = [
        "hvd.broadcast_global_variables() does not support eager execution. Please use "
        "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
    ]
    expect_error(RuntimeError, words, hvd.broadcast_global_variables, 0)
    expect_error(RuntimeError, words, tf.function(lambda: hvd.broadcast_global_variables(0)))


@check
def objects_travel_in_every_mode():
    thing = {"rank": R, "list": [1, 2, None], "array": np.arange(R + 3)}

    def all_of_them(session=None):
        got = hvd.broadcast_object(thing if R == ROOT else None, ROOT, session=session, name="thing")
        assert got["rank"] == ROOT and got["array"].tolist() == list(range(ROOT + 3))
        function = hvd.broadcast_object_fn(ROOT, session=session, name="fn")
        for i in range(2):
            assert function((R, i)) == (ROOT, i)
        assert hvd.allgather_object(R * "x", session=session, name="words") == [r * "x" for r in range(N)]

    all_of_them()
    with tf.Graph().as_default():
        all_of_them()
        with V1.Session() as session:
            all_of_them()
            all_of_them(session)
    assert hvd.broadcast_object_fn()(R) == 0


@check
def objects_are_not_fetched_while_tracing():
    for name in ("broadcast_object", "allgather_object"):
        words = [f"hvd.{name}() inside a tf.function", "traced"]
        expect_error(RuntimeError, words, tf.function(lambda name=name: getattr(hvd, name)(1)))


@check
def only_the_set_takes_part():
    late = hvd.ProcessSet([0])
    expect_error(ValueError, ["not been registered"], hvd.broadcast_variables, [tf.Variable(1.0)], 0, late)
    if N < 4:
        return
    pair = hvd.add_process_set([1, 3])
    v = tf.Variable(float(R))
    if pair.included():
        for inplace in (False, True):
            v.assign(float(R))
            hvd.broadcast_variables([v], 3, process_set=pair, inplace=inplace)
            assert float(v) == 3
        assert hvd.broadcast_object(R, 3, process_set=pair) == 3
        assert hvd.allgather_object(R, process_set=pair) == [1, 3]
    assert hvd.remove_process_set(pair)
    again = hvd.add_process_set([1, 3])  # another set, whatever was traced for the first
    if again.included():
        v.assign(float(R))
        hvd.broadcast_variables([v], 1, process_set=again)
        assert float(v) == 1
    assert hvd.remove_process_set(again)


@check_if(N > 1)
def different_shapes_are_an_error():
    v = tf.Variable(tf.ones([2 + R]))
    expect_error(tf.errors.OpError, ["shape"], hvd.broadcast_variables, [v], 0)


main(R)
