# SPDX-License-Identifier: Apache-2.0
"""Every TensorFlow operation on every dtype, eagerly and in tf.function: scalars, empty tensors, shapes
that are not known, groups, process sets, splits, what of each is refused, and the shapes that graphs know."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd.tensorflow import mpi_ops
from checks import check, expect_error, main

hvd.init()
R, N = hvd.rank(), hvd.size()
for _ in range(3 * R):  # what TensorFlow numbers for itself must not matter
    tf.function(lambda x: x + 1)(tf.constant(1.0))
FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64]
NUMBERS = FLOATS + INTEGERS
OPS = {hvd.Sum: sum, hvd.Min: min, hvd.Max: max, hvd.Product: lambda v: np.prod(v)}


def both(function, *args):
    """What the function gives eagerly, and in a graph whose inputs have no known shape.

    The kernels are the same: in graphs (whose making takes its time) a dtype of each kind is enough.
    """
    yield function(*args)
    if args[0].dtype not in (tf.float32, tf.bfloat16, tf.int64, tf.int32, tf.bool):
        return
    signature = [tf.TensorSpec(None, x.dtype) for x in args]
    yield tf.function(function, input_signature=signature)(*args)


def equal(got, expected, dtype=None):
    if dtype is not None:
        assert got.dtype == dtype, f"{got.dtype}, not {dtype}"
    expected = np.asarray(expected)
    assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}"
    got = tf.cast(got, tf.float64).numpy()
    assert np.array_equal(got, expected.astype(np.float64)), f"{got} is not {expected}"


def rows(rank, n=2):
    """rank + 1 rows that tell whose they are."""
    return np.arange((rank + 1) * n).reshape(rank + 1, n) % 7 + 10 * rank


@check
def every_reduction_of_every_dtype():
    values = [[r + 1, 3 - r % 3, 2] for r in range(N)]
    for dtype in NUMBERS:
        x = tf.cast(tf.constant(values[R]), dtype)
        for op, reduce in OPS.items():
            for got in both(lambda x, op=op: mpi_ops._allreduce(x, op=op), x):
                equal(got, [reduce(column) for column in zip(*values)], dtype)


@check
def bools_are_or_and_and():
    x = tf.constant([R == 0, True, False])
    for op, expected in ((hvd.Sum, [1, 1, 0]), (hvd.Max, [1, 1, 0]), (hvd.Min, [N == 1, 1, 0])):
        for got in both(lambda x, op=op: mpi_ops._allreduce(x, op=op), x):
            equal(got, expected, tf.bool)
    expect_error(tf.errors.InvalidArgumentError, ["bool", "average"], mpi_ops._allreduce, x, op=hvd.Average)


@check
def scales_are_doubles():
    third = 1.0 / 3.0  # as a float of TensorFlow's attributes: 0.333333343
    for got in both(
        lambda x: mpi_ops._allreduce(x, prescale_factor=0.5, postscale_factor=third),
        tf.constant([3.0 * (R + 1)], tf.float64),
    ):
        assert abs(float(got[0]) - N * (N + 1) / 4) < 1e-13, got
    got = mpi_ops._grouped_allreduce([tf.ones([2], tf.float64)], postscale_factor=third)[0]
    assert abs(float(got[0]) - N / 3) < 1e-15 * N
    got = mpi_ops._reducescatter(tf.ones([N], tf.float64), prescale_factor=third, postscale_factor=2)
    assert abs(float(got[0]) - 2 * N / 3) < 1e-15 * N


@check
def scalars_and_empty_tensors():
    for dtype in (*NUMBERS, tf.bool):
        one = tf.cast(1, dtype)
        for got in both(lambda x: mpi_ops._allreduce(x, op=hvd.Max), one):
            equal(got, 1, dtype)
        for got in both(lambda x: mpi_ops.broadcast(x, N - 1), one):
            equal(got, 1, dtype)
    for shape in ([0], [0, 3], [3, 0]):
        x = tf.zeros(shape)
        for got in both(mpi_ops._allreduce, x):
            equal(got, np.zeros(shape))
        for got in both(lambda x: mpi_ops.broadcast(x, 0), x):
            equal(got, np.zeros(shape))
        for got in both(mpi_ops.allgather, x):
            equal(got, np.zeros([shape[0] * N, *shape[1:]]))
        for got in both(lambda x: mpi_ops.alltoall(x, [0] * N), tf.zeros([0, *shape[1:]])):
            equal(got[0], np.zeros([0, *shape[1:]]))
            equal(got[1], [0] * N)
        for got in both(mpi_ops._reducescatter, tf.zeros([0, 2])):
            equal(got, np.zeros([0, 2]))
    for function in (mpi_ops.allgather, mpi_ops.alltoall, mpi_ops._reducescatter):
        expect_error(tf.errors.InvalidArgumentError, ["rank-zero"], function, tf.constant(1.0))
        expect_error(ValueError, ["at least rank 1"], tf.function(function), tf.constant(1.0))


@check
def one_row_or_none_from_a_rank():
    x = tf.ones([1 if R == 0 else 0, 2])
    for got in both(mpi_ops.allgather, x):
        equal(got, np.ones([1, 2]))
    for got in both(mpi_ops._reducescatter, tf.fill([1, 2], float(R + 1))):
        equal(got, np.full([1 if R == 0 else 0, 2], N * (N + 1) / 2))


@check
def every_dtype_is_moved():
    total = 2 * N + 1
    scattered = lambda r: np.arange(2 * total).reshape(-1, 2) % 5 + r  # noqa: E731
    sent = lambda r: np.arange(2 * N) + 10 * r  # noqa: E731
    mine = slice(0, 3) if R == 0 else slice(3 + 2 * (R - 1), 3 + 2 * R)  # the first has one row more
    table = [  # function, this rank's input, the expected result
        (mpi_ops.allgather, rows(R), np.concatenate([rows(r) for r in range(N)])),
        (mpi_ops.alltoall, sent(R), np.concatenate([sent(r)[2 * R : 2 * R + 2] for r in range(N)])),
        (mpi_ops._reducescatter, scattered(R), sum(scattered(r) for r in range(N))[mine]),
    ]
    for root in range(N):
        table.append(
            (lambda x, root=root: mpi_ops.broadcast(x, root), np.array([R, 3]), np.array([root, 3]))
        )
    for function, array, expected in table:
        for dtype in NUMBERS:
            for got in both(function, tf.cast(array, dtype)):
                equal(got, expected, dtype)
        if function is not mpi_ops._reducescatter:
            for got in both(function, tf.constant(array % 2 == 0)):
                equal(got, expected % 2 == 0, tf.bool)
    expect_error(tf.errors.OpError, ["root_rank", "-1"], mpi_ops.broadcast, tf.ones([1]), -1)
    expect_error(tf.errors.OpError, ["root", str(N)], mpi_ops.broadcast, tf.ones([1]), N)
    expect_error(NotImplementedError, ["Adasum"], mpi_ops._reducescatter, tf.ones([N]), op=hvd.Adasum)


@check
def alltoall_of_uneven_splits():
    # rank r sends r + i rows to rank i
    splits = [R + i for i in range(N)]
    x = np.repeat(np.arange(N) + 10 * R, splits)
    expected = np.concatenate([np.full(r + R, 10 * r + R) for r in range(N)])
    for dtype in (tf.int32, tf.int64):
        given = tf.constant(splits, dtype)
        for got, received in both(mpi_ops.alltoall, tf.constant(x), given):
            equal(got, expected)
            equal(received, [r + R for r in range(N)], tf.int32)
    got, received = mpi_ops.alltoall(x, splits)  # numpy and a list
    equal(got, expected)
    equal(received, [r + R for r in range(N)])


@check
def alltoall_refuses_bad_splits():
    x = tf.ones([2 * N])
    for splits, words in (
        ([2] * (N + 1), ["number of entries in splits", str(N + 1)]),
        ([1] * N, ["sum of splits", str(2 * N)]),
        ([-1] + [3] * (N - 1), ["splits[0]", "-1"]),
        ([[2] * N], ["must be a vector"]),
    ):
        expect_error(tf.errors.InvalidArgumentError, words, mpi_ops.alltoall, x, splits)
    if N > 1:
        expect_error(tf.errors.InvalidArgumentError, ["even multiple"], mpi_ops.alltoall, tf.ones([N + 1]))
    expect_error(Exception, ["int32"], mpi_ops.alltoall, x, [2.0] * N)
    equal(mpi_ops.alltoall(x), np.ones(2 * N))  # nothing is left of them


@check
def groups_of_several_dtypes():
    tensors = [tf.fill([3], float(R)), tf.constant(R), tf.cast([[R, 1]], tf.bfloat16)]
    for got in both(lambda *x: mpi_ops._grouped_allreduce(list(x)), *tensors):
        for one, expected, x in zip(
            got, ([sum(range(N))] * 3, sum(range(N)), [[sum(range(N)), N]]), tensors
        ):
            equal(one, expected, x.dtype)
    gathered = [tf.constant(rows(R)), tf.constant([float(R)])]
    for got in both(lambda *x: mpi_ops.grouped_allgather(list(x)), *gathered):
        equal(got[0], np.concatenate([rows(r) for r in range(N)]))
        equal(got[1], list(range(N)))
    scattered = [tf.ones([N, 2]), tf.range(2 * N)]
    for got in both(lambda *x: mpi_ops._grouped_reducescatter(list(x)), *scattered):
        equal(got[0], np.full([1, 2], N))
        equal(got[1], [2 * R * N, (2 * R + 1) * N])
    for function in (mpi_ops._grouped_allreduce, mpi_ops.grouped_allgather, mpi_ops._grouped_reducescatter):
        assert function([]) == []


@check
def a_group_with_a_bad_tensor_is_refused_whole():
    # the second is refused before the first is on its way
    bad = [tf.ones([2]), tf.constant(1.0)]
    expect_error(tf.errors.InvalidArgumentError, ["rank-zero"], mpi_ops.grouped_allgather, bad)
    expect_error(
        tf.errors.InvalidArgumentError,
        ['_2of2": ALLREDUCE of bool'],
        mpi_ops._grouped_allreduce,
        [tf.ones([2]), tf.constant([True])],
        op=hvd.Average,
    )
    equal(mpi_ops._grouped_allreduce([tf.ones([2]), tf.ones([])])[1], N)


@check
def more_dimensions_than_the_runtime_has():
    shape = [1, 2, 1, 1, 2, 1, 1, 1, 2, 1]
    x = tf.fill(shape, float(R + 1))
    for got in both(mpi_ops._allreduce, x):
        equal(got, np.full(shape, N * (N + 1) / 2))
    for got in both(mpi_ops.allgather, x):
        equal(got, np.concatenate([np.full(shape, r + 1.0) for r in range(N)]))
    for got in both(lambda x: mpi_ops.broadcast(x, N - 1), x):
        equal(got, np.full(shape, float(N)))


@check
def other_dtypes_are_refused_by_name():
    refused = (TypeError, tf.errors.InvalidArgumentError)
    text, number = tf.constant(["a"]), tf.constant([1j * R])
    for x in (text, number):
        for function in (mpi_ops._allreduce, mpi_ops.allgather):
            expect_error(refused, [x.dtype.name], function, x)
    expect_error(refused, ["string"], mpi_ops.broadcast, text, 0)
    assert mpi_ops.broadcast(number, N - 1)[0] == 1j * (N - 1)  # as bytes


@check
def graphs_know_the_shapes_that_do_not_depend_on_others():
    def f(x, y):
        assert mpi_ops._allreduce(x).shape == [2, 3]
        assert [g.shape for g in mpi_ops._grouped_allreduce([x, x[0]])] == [[2, 3], [3]]
        assert mpi_ops.broadcast(x, 0).shape == [2, 3]
        assert mpi_ops.allgather(x).shape.as_list() == [None, 3]
        assert mpi_ops.grouped_allgather([x[0], x])[1].shape.as_list() == [None, 3]
        output, received = mpi_ops.alltoall(x, splits=[2] + [0] * (N - 1))
        assert output.shape.as_list() == [None, 3] and received.shape.as_list() == [None]
        assert mpi_ops._reducescatter(x).shape.as_list() == [None, 3]
        assert mpi_ops.size_op().shape == mpi_ops.rank_op().shape == mpi_ops.join().shape == []
        assert mpi_ops.allgather(y).shape.rank is None and mpi_ops._allreduce(y).shape.rank is None
        return x

    tf.function(f).get_concrete_function(tf.zeros([2, 3]), tf.TensorSpec(None))


@check
def variables_are_broadcast_in_place():
    for root in range(N):
        variables = [tf.Variable([float(R)] * 3), tf.Variable(R), tf.Variable([root == R])]
        got = mpi_ops.broadcast_(variables, root)
        for value, variable, expected in zip(got, variables, ([root] * 3, root, [True])):
            equal(value, expected)
            equal(variable.read_value(), expected)
    variable = tf.Variable([float(R)])
    values = tf.function(lambda: mpi_ops.broadcast_([variable], N - 1, name="mine"))()
    equal(values[0], [N - 1])
    equal(variable.read_value(), [N - 1])


@check
def numbers_are_of_the_world_when_the_graph_runs():
    functions = (mpi_ops.size_op, mpi_ops.rank_op, mpi_ops.local_size_op, mpi_ops.local_rank_op)
    expected = [hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank()]
    assert [int(f()) for f in functions] == expected

    @tf.function
    def graph():
        return [f(name="n") for f in functions]

    assert [int(x) for x in graph()] == expected
    assert int(mpi_ops.process_set_included_op()) == 1
    assert int(mpi_ops.process_set_included_op(77)) == -2
    expect_error(tf.errors.InvalidArgumentError, ["77"], mpi_ops.size_op, 77)


@check
def process_sets_have_their_own_collectives():
    if N == 1:
        return
    first, rest = hvd.add_process_set([0]), hvd.add_process_set(list(range(1, N)))
    mine, others = (first, rest) if R == 0 else (rest, first)
    ranks = mine.ranks
    n, place = len(ranks), ranks.index(R)
    x = tf.constant([float(R)] * n)
    for got in both(lambda x: mpi_ops._allreduce(x, process_set=mine), x):
        equal(got, [sum(ranks)] * n)
    for got in both(lambda x: mpi_ops._grouped_allreduce([x], process_set=mine)[0], x):
        equal(got, [sum(ranks)] * n)
    for got in both(lambda x: mpi_ops.allgather(x[:1], process_set=mine), x):
        equal(got, ranks)
    for got in both(lambda x: mpi_ops.broadcast(x, ranks[-1], process_set=mine), x):
        equal(got, [ranks[-1]] * n)
    for got in both(lambda x: mpi_ops.alltoall(x, process_set=mine), x):
        equal(got, ranks)
    for got in both(lambda x: mpi_ops.alltoall(x, [1] * n, process_set=mine)[1], x):
        equal(got, [1] * n)
    for got in both(lambda x: mpi_ops._reducescatter(x, process_set=mine), x):
        equal(got, [sum(ranks)])
    mpi_ops.barrier(process_set=mine)
    assert int(mpi_ops.size_op(mine.process_set_id)) == n and mine.rank() == place
    assert int(mpi_ops.process_set_included_op(mine.process_set_id)) == 1
    assert int(mpi_ops.process_set_included_op(others.process_set_id)) == 0
    words = ["not in process set", str(others.process_set_id)]
    expect_error(tf.errors.InvalidArgumentError, words, mpi_ops._allreduce, x, process_set=others)
    expect_error(tf.errors.InvalidArgumentError, words, mpi_ops._reducescatter, x, process_set=others)
    graph = tf.function(lambda x: mpi_ops._allreduce(x, process_set=mine))
    number, same = mine.process_set_id, graph(x)
    equal(same, [sum(ranks)] * n)
    hvd.remove_process_set(first)
    hvd.remove_process_set(rest)
    expect_error(ValueError, ["has not been registered"], mpi_ops._allreduce, x, process_set=mine)
    rest, first = hvd.add_process_set(rest), hvd.add_process_set(first)  # with each other's numbers
    assert mine.process_set_id != number and others.process_set_id == number
    assert int(mpi_ops.process_set_included_op(number)) == 0
    equal(mpi_ops._allreduce(x, process_set=mine), [sum(ranks)] * n)
    words = ["process set", str(number), "has been removed, and another one has its number now"]
    expect_error(tf.errors.InvalidArgumentError, words, graph, x)
    hvd.remove_process_set(first)
    hvd.remove_process_set(rest)


@check
def inputs_keep_their_values():
    x = tf.constant([1.0, 2.0])
    y = tf.function(lambda: (mpi_ops._allreduce(x), mpi_ops.broadcast(x + 1, N - 1)))
    y()
    equal(x, [1, 2])

    @tf.function
    def f(x):
        x = x * 2
        reduced = mpi_ops._allreduce(x)
        return x, reduced, mpi_ops._allreduce(x + 0.0) + x

    for _ in range(3):
        kept, reduced, both_used = f(x)
        equal(kept, [2, 4])
        equal(reduced, [2 * N, 4 * N])
        equal(both_used, [2 * N + 2, 4 * N + 4])


main(R)
