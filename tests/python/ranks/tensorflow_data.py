# SPDX-License-Identifier: Apache-2.0
"""Every TensorFlow operation on every dtype, eagerly and in tf.function: scalars, empty tensors, shapes
that are not known, groups, process sets, splits, what of each is refused, and the shapes that graphs know.

The original's values and errors: symbols_tf/recorded.py.
"""

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


def reductions():
    """(function of a tensor, this rank's array, what it gives)"""
    values = [[r + 1, 3 - r % 3, 2] for r in range(N)]
    for op, reduce in OPS.items():
        yield (
            lambda x, op=op: mpi_ops._allreduce(x, op=op),
            values[R],
            [reduce(column) for column in zip(*values)],
        )
    every = [np.arange(4 * N + 2).reshape(-1, 2) % 5 + r for r in range(N)]
    mine = slice(0, 3) if R == 0 else slice(3 + 2 * (R - 1), 3 + 2 * R)  # the first has one row more
    yield mpi_ops._reducescatter, every[R], sum(every)[mine]
    yield mpi_ops._reducescatter, np.zeros([0, 2]), np.zeros([0, 2])
    yield mpi_ops._allreduce, R + 1, N * (N + 1) / 2
    many = [1, 2, 1, 1, 2, 1, 1, 1, 2, 1]  # more dimensions than the runtime has
    for shape in ([0], [0, 3], [3, 0], many):
        yield mpi_ops._allreduce, np.full(shape, R + 1), np.full(shape, N * (N + 1) / 2)


def moves():
    """The same for what takes bools, too."""
    yield mpi_ops.allgather, rows(R), np.concatenate([rows(r) for r in range(N)])
    every = [np.arange(2 * N) + 10 * r for r in range(N)]
    yield mpi_ops.alltoall, every[R], np.concatenate([sent[2 * R : 2 * R + 2] for sent in every])
    for root in range(N):
        for of in (lambda r: np.array([r, 3]), lambda r: np.array(r)):
            yield (lambda x, root=root: mpi_ops.broadcast(x, root)), of(R), of(root)
    for shape in ([0], [0, 3], [3, 0], [1, 2, 1, 1, 2, 1, 1, 1, 2, 1]):
        every = [np.full(shape, r + 1) for r in range(N)]
        yield mpi_ops.allgather, every[R], np.concatenate(every)
        yield (lambda x: mpi_ops.broadcast(x, N - 1)), every[R], every[-1]
        if shape[0] == 0:
            yield (lambda x: mpi_ops.alltoall(x, [0] * N)[0]), every[R], every[R]


@check
def every_dtype_is_reduced():
    for function, array, expected in reductions():
        for dtype in NUMBERS:
            for got in both(function, tf.cast(array, dtype)):
                equal(got, expected, dtype)


@check
def every_dtype_is_moved():
    for function, array, expected in moves():
        for dtype in NUMBERS:
            for got in both(function, tf.cast(array, dtype)):
                equal(got, expected, dtype)
        for got in both(function, tf.constant(array % 2 == 0)):
            equal(got, expected % 2 == 0, tf.bool)


@check
def roots_scalars_and_adasum_are_refused():
    expect_error(tf.errors.OpError, ["root_rank", "-1"], mpi_ops.broadcast, tf.ones([1]), -1)
    expect_error(tf.errors.OpError, ["root", str(N)], mpi_ops.broadcast, tf.ones([1]), N)
    expect_error(NotImplementedError, ["Adasum"], mpi_ops._reducescatter, tf.ones([N]), op=hvd.Adasum)
    for function in (mpi_ops.allgather, mpi_ops.alltoall, mpi_ops._reducescatter):
        expect_error(tf.errors.InvalidArgumentError, ["rank-zero"], function, tf.constant(1.0))
        expect_error(ValueError, ["at least rank 1"], tf.function(function), tf.constant(1.0))


@check
def alltoall_of_uneven_splits():
    # rank r sends r + i rows to rank i
    splits = [R + i for i in range(N)]
    x = np.repeat(np.arange(N) + 10 * R, splits)
    results = [mpi_ops.alltoall(x, splits)]  # numpy and a list
    for dtype in (tf.int32, tf.int64):
        results += both(mpi_ops.alltoall, tf.constant(x), tf.constant(splits, dtype))
    for got, received in results:
        equal(got, np.concatenate([np.full(r + R, 10 * r + R) for r in range(N)]))
        equal(received, [r + R for r in range(N)], tf.int32)


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
    total = sum(range(N))
    for got in both(lambda *x: mpi_ops._grouped_allreduce(list(x)), *tensors):
        for one, expected, x in zip(got, ([total] * 3, total, [[total, N]]), tensors):
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
def process_sets_have_their_own_collectives():
    assert int(mpi_ops.process_set_included_op(77)) == -2
    expect_error(tf.errors.InvalidArgumentError, ["77"], mpi_ops.size_op, 77)
    if N == 1:
        return
    first, rest = hvd.add_process_set([0]), hvd.add_process_set(list(range(1, N)))
    mine, others = (first, rest) if R == 0 else (rest, first)
    ranks = mine.ranks
    n, total = len(ranks), sum(ranks)
    x = tf.constant([float(R)] * n)
    for function, expected in (
        (lambda x: mpi_ops._allreduce(x, process_set=mine), [total] * n),
        (lambda x: mpi_ops._grouped_allreduce([x], process_set=mine)[0], [total] * n),
        (lambda x: mpi_ops.allgather(x[:1], process_set=mine), ranks),
        (lambda x: mpi_ops.broadcast(x, ranks[-1], process_set=mine), [ranks[-1]] * n),
        (lambda x: mpi_ops.alltoall(x, process_set=mine), ranks),
        (lambda x: mpi_ops.alltoall(x, [1] * n, process_set=mine)[1], [1] * n),
        (lambda x: mpi_ops._reducescatter(x, process_set=mine), [total]),
    ):
        for got in both(function, x):
            equal(got, expected)
    mpi_ops.barrier(process_set=mine)
    assert int(mpi_ops.size_op(mine.process_set_id)) == n and mine.rank() == ranks.index(R)
    assert int(mpi_ops.process_set_included_op(mine.process_set_id)) == 1
    assert int(mpi_ops.process_set_included_op(others.process_set_id)) == 0
    words = ["not in process set", str(others.process_set_id)]
    for function in (mpi_ops._allreduce, mpi_ops._reducescatter):
        expect_error(tf.errors.InvalidArgumentError, words, function, x, process_set=others)
    graph = tf.function(lambda x: mpi_ops._allreduce(x, process_set=mine))
    number, same = mine.process_set_id, graph(x)
    equal(same, [total] * n)
    hvd.remove_process_set(first)
    hvd.remove_process_set(rest)
    expect_error(ValueError, ["has not been registered"], mpi_ops._allreduce, x, process_set=mine)
    rest, first = hvd.add_process_set(rest), hvd.add_process_set(first)  # with each other's numbers
    assert mine.process_set_id != number and others.process_set_id == number
    assert int(mpi_ops.process_set_included_op(number)) == 0
    equal(mpi_ops._allreduce(x, process_set=mine), [total] * n)
    words = ["process set", str(number), "has been removed, and another one has its number now"]
    expect_error(tf.errors.InvalidArgumentError, words, graph, x)
    hvd.remove_process_set(first)
    hvd.remove_process_set(rest)


@check
def inputs_keep_their_values():
    @tf.function
    def f(x):
        x = x * 2
        reduced = mpi_ops._allreduce(x)
        return x, reduced, mpi_ops._allreduce(x + 0.0) + x

    x = tf.constant([1.0, 2.0])
    for _ in range(3):
        kept, reduced, both_used = f(x)
        equal(x, [1, 2])
        equal(kept, [2, 4])
        equal(reduced, [2 * N, 4 * N])
        equal(both_used, [2 * N + 2, 4 * N + 4])


main(R)
