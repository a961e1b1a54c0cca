# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's operations in graphs: names, order, loops, sessions, many at once, join, barrier, threads,
XLA, errors; without eager execution, and in pipelines of data."""

import contextlib
import os
import re
import subprocess
import sys
import warnings

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd import _native
from _hvd.tensorflow import completion, mpi_ops
from checks import check, check_if, expect_error, in_threads, main

# would fail if importing us had started TensorFlow's devices
tf.config.threading.set_inter_op_parallelism_threads(1)
hvd.init()
R, N = hvd.rank(), hvd.size()
for _ in range(3 * R):  # what TensorFlow numbers for itself must not matter
    tf.function(lambda x: x + 1)(tf.constant(1.0))
v1 = tf.compat.v1
ASYNC = os.environ["WANT_MODE"] == "asynchronous"


@contextlib.contextmanager
def one_thread():
    """A session of a graph of its own."""
    config = v1.ConfigProto(inter_op_parallelism_threads=1)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        yield session


def nodes(function, *args):
    graph = tf.function(function).get_concrete_function(*args).graph
    return [op.name for op in graph.get_operations() if op.type.startswith("Hvd")]


@check
def completion_is_as_the_test_wants_it():
    assert hvd.completion_mode() == os.environ["WANT_MODE"], hvd.completion_mode()


@check
def names_are_horovods():
    def f(x):
        mpi_ops._allreduce(x, name="mine")
        with tf.name_scope("scope"):
            mpi_ops._allreduce(x, name="mine")
        mpi_ops._allreduce(x, name="mine")  # TensorFlow makes it unique
        mpi_ops._allreduce(x, name="all mine, at last")
        mpi_ops._allreduce(x, name="_mine")
        mpi_ops._grouped_allreduce([x + 1, x + 2])
        return mpi_ops.allgather(x * 2)

    expected = [
        "mine",
        "scope/mine",
        "mine_1",
        "all_mine__at_last",
        "hvd_mine",
        "HorovodGroupedAllreduce_add_0_add_1_0",
        "HorovodAllgather_mul_0",
    ]
    assert nodes(f, tf.ones([2])) == expected, nodes(f, tf.ones([2]))


@check
def scopes_that_differ_meet_when_they_are_ignored():
    @tf.function
    def f(x):
        with tf.name_scope(f"scope_of_{R}"):
            return mpi_ops._allreduce(x, name="inner", ignore_name_scope=True)

    assert float(f(tf.constant(1.0))) == N


@check
def tensors_that_a_graph_captures_have_a_name():
    outside = [tf.constant(1.0), tf.constant(2.0)]
    f = tf.function(lambda: [mpi_ops._allreduce(x) for x in outside] + mpi_ops._grouped_allreduce(outside))
    assert [float(y) for y in f()] == [N, 2 * N] * 2


@check
def names_longer_than_the_runtimes_work():
    long = "long_" * 150

    @tf.function
    def f(x):
        return mpi_ops._allreduce(x, name=long + "a") + 10 * mpi_ops._allreduce(x, name=long + "b")

    assert float(f(tf.constant(1.0))) == 11 * N
    assert float(mpi_ops._allreduce(tf.constant(1.0), name=long)) == N


@check
def unused_operations_run_on_every_rank():
    @tf.function
    def f(x):
        y = mpi_ops._allreduce(x, name="unused_on_others")
        return y if R == 0 else x

    for _ in range(3):
        assert float(f(tf.constant(1.0))) == (N if R == 0 else 1)


@check
def equal_operations_are_not_merged_and_constants_not_folded():
    @tf.function
    def f():
        x = tf.constant(float(R))
        return mpi_ops._allreduce(x, name="same_a"), mpi_ops._allreduce(x, name="same_b")

    for _ in range(3):
        assert [float(y) for y in f()] == [sum(range(N))] * 2


@check
def every_kind_at_once_needs_one_thread():
    @tf.function
    def f(x):
        results = []
        for i in range(10):
            y = x + float(i)
            results += [
                mpi_ops._allreduce(y)[0],
                mpi_ops.allgather(y)[0],
                mpi_ops.broadcast(y, i % N)[0],
                mpi_ops.alltoall(y)[0],
                mpi_ops._reducescatter(y, op=hvd.Average)[0],
                *(one[0] for one in mpi_ops._grouped_allreduce([y, y], op=hvd.Average)),
            ]
        return tf.stack(results)

    for _ in range(3):
        got = f(tf.ones([N])).numpy().reshape(10, 7)
        for i in range(10):
            assert np.allclose(got[i], [(1 + i) * N] + [1 + i] * 6), got[i]


@check
def loops_whose_iterations_run_side_by_side():
    @tf.function
    def f(n):
        total = tf.TensorArray(tf.float32, size=n)
        for i in tf.range(n):
            tf.autograph.experimental.set_loop_options(parallel_iterations=8)
            total = total.write(i, mpi_ops._allreduce(tf.cast(i, tf.float32), name="in_loop"))
        return total.stack()

    for _ in range(2):
        assert np.allclose(f(tf.constant(100)), np.arange(100) * N)

    @tf.function
    def nested(n):
        total = tf.TensorArray(tf.float32, size=n * n)
        for i in tf.range(n):
            tf.autograph.experimental.set_loop_options(parallel_iterations=100)
            for j in tf.range(n):
                tf.autograph.experimental.set_loop_options(parallel_iterations=100)
                k = i * n + j
                total = total.write(k, mpi_ops._allreduce(tf.cast(k, tf.float32), name="in_loops"))
        return total.stack()

    assert np.allclose(nested(tf.constant(9)), np.arange(81) * N)
    got = tf.map_fn(mpi_ops._allreduce, tf.range(8.0), parallel_iterations=4)
    assert np.allclose(got, np.arange(8) * N)
    mapped = tf.function(lambda x: tf.map_fn(mpi_ops._allreduce, x, parallel_iterations=4))
    assert np.allclose(mapped(tf.range(20.0)), np.arange(20) * N)


@check
def loops_of_tensorflow_1():
    """Their iterations do run side by side."""
    control_flow_v2 = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    in_function = tf.function(lambda x: mpi_ops._allreduce(x, name="in_function"))

    def loop(n, parallel, body):
        """The sum over n iterations of body(float)."""

        def step(i, total):
            return i + 1, total + body(tf.cast(i, tf.float32))

        return v1.while_loop(lambda i, _: i < n, step, [0, 0.0], parallel_iterations=parallel)[1]

    def one(x):
        return mpi_ops._allreduce(x, name="in_loop_1")

    try:
        with tf.Graph().as_default(), v1.Session() as session:
            good = [
                loop(100, 64, one),
                loop(4, 1, lambda x: loop(4, 10, lambda y: one(4 * x + y))),
                loop(4, 1, in_function),
            ]
            words = ["hvd.allreduce()", "loops of TensorFlow 1", "parallel_iterations"]
            more = [*words, "the loop", "=64", "100"]
            expect_error(ValueError, more, loop, 200, 100, one)
            more = [*words, "around the innermost", "=1", "10"]
            expect_error(ValueError, more, loop, 4, 10, lambda x: loop(4, 1, one))
            fresh = tf.function(lambda x: mpi_ops._allreduce(x, name="in_function"))
            expect_error(ValueError, more, loop, 4, 10, fresh)
            if ASYNC:
                assert session.run(good) == [sum(range(100)) * N, sum(range(16)) * N, sum(range(4)) * N]
    finally:
        if control_flow_v2:
            v1.enable_control_flow_v2()


@check
def branches_and_functions_beside_operations_need_one_thread():
    """What is in them must not wait for an operation beside them that other ranks run later."""

    @tf.function
    def inner(x):
        return mpi_ops._allreduce(x, name="inside")

    @tf.function
    def f(x, flag, busy):
        # another amount of other work on each rank, and so another order in which things become ready
        late = tf.reduce_sum(tf.linalg.matmul(busy, busy)) * 0.0
        first = mpi_ops._allreduce(x + (late if R == 0 else 0.0), name="beside")
        branch = tf.cond(
            flag, lambda: mpi_ops._allreduce(x + 1 + (late if R else 0.0), name="branch"), lambda: x
        )
        loop = tf.while_loop(
            lambda i, _: i < 2, lambda i, y: (i + 1, y + mpi_ops._allreduce(x, name="loop")), [0, x]
        )[1]
        return (
            first
            + branch
            + loop
            + inner(x + (late if R == 0 else 0.0))
            + mpi_ops._allreduce(x, name="last")
        )

    flag, busy = tf.constant(True), tf.ones([200, 200])
    for i in range(40):
        x = float(i)
        assert float(f(tf.constant(x), flag, busy)) == x * N + (x + 1) * N + x + 2 * x * N + 2 * x * N


@check
def functions_called_twice_in_a_branch_have_names_of_their_own():
    """TensorFlow numbers what it inlines, and we leave these numbers off."""

    @tf.function
    def inner(x):
        if x > 0:
            x = mpi_ops._allreduce(x, name="deep")
        return x

    @tf.function
    def twice(x):
        return inner(x) + 10.0 * inner(x * 2.0)

    @tf.function
    def f(x, flag):
        y = x
        if flag:
            y = twice(x) + 100.0 * twice(x * 3.0)
        for _ in tf.range(2):
            if flag:
                y += 10000.0 * (inner(x) + 10.0 * inner(x * 2.0))
        return y

    for _ in range(3):
        assert float(f(tf.constant(1.0), tf.constant(True))) == N * (21 + 6300 + 2 * 210000)


@check
def a_session_runs_only_what_is_fetched():
    """Not what was built before: the training has no data when a rank joins or starts."""
    with one_thread() as session:
        w = v1.get_variable("alone", initializer=float(R + 1))
        x = v1.placeholder(tf.float32, [])
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2
        )
        train = optimizer.minimize(w * x, var_list=[w])
        start = hvd.broadcast_global_variables(0)
        loss = mpi_ops._allreduce(x, name="loss")
        join, barrier = mpi_ops.join(), mpi_ops.barrier()
        after = mpi_ops._allreduce(tf.constant(1.0), name="after_join")
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        session.run(start)
        assert session.run(w) == 1.0
        for i in range(4):
            session.run(train, {x: 1.0})
            assert session.run(w) == 1.0 - (i + 1) // 2 * 2, (i, session.run(w))
        session.run(barrier)
        assert session.run(loss, {x: 2.0}) == 2 * N
        if R == 0 and N > 1:
            assert session.run(after) == 1.0  # alone, as the other ranks have joined
        assert 0 <= session.run(join) < N


@check
def gradients_of_a_session_need_one_thread():
    with one_thread() as session:
        ws = [v1.get_variable(f"w{i}", initializer=tf.zeros([i % 5 + 1])) for i in range(60)]
        rows = v1.get_variable("rows", initializer=tf.zeros([4, 2]))
        x = v1.placeholder(tf.float32, [])
        order = (
            ws if R == 0 else ws[::-1]
        )  # another order of the sum on each rank: another of what is ready
        loss = sum(tf.reduce_sum(w) * x for w in order) + tf.reduce_sum(tf.gather(rows, [R])) * x
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), op=hvd.Sum)
        train = optimizer.minimize(loss, var_list=[*ws, rows])
        start = hvd.broadcast_global_variables(N - 1)
        session.run(v1.global_variables_initializer())
        for i in range(3):
            session.run(start)
            session.run(train, {x: 1.0})
            assert all(np.all(w == -N * (i + 1)) for w in session.run(ws))


@check
def more_calls_than_threads_are_warned_about():
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        x = v1.placeholder(tf.float32, [])
        for i in range(2 * len(os.sched_getaffinity(0))):
            hvd.allreduce(tf.IndexedSlices(x[None], tf.constant([i])), name=f"call_{i}")
    texts = [str(w.message) for w in said if "inter_op_parallelism_threads" in str(w.message)]
    assert len(texts) == (0 if ASYNC else 1), texts


@check
def barrier_and_join_keep_their_place():
    seen = []

    @tf.function
    def f(x):
        y = mpi_ops._allreduce(x, name="before_barrier")
        tf.py_function(lambda: seen.append("before"), [], [])
        mpi_ops.barrier()
        tf.py_function(lambda: seen.append("after"), [], [])
        last = mpi_ops.join()
        return y, last, mpi_ops.allgather(tf.ones([1]), name="after_join")

    for _ in range(3):
        y, last, gathered = f(tf.constant(1.0))
        assert float(y) == N and 0 <= int(last) < N and gathered.shape == [N]
    assert seen == ["before", "after"] * 3, seen
    assert mpi_ops.barrier() is None


@check
def threads_each_have_their_operations():
    def work(number):
        for _ in range(20):
            got = mpi_ops._allreduce(tf.constant(float(number)), name=f"thread_{number}")
            assert float(got) == number * N and hvd.size() == N, got

    in_threads(4, work)


@check
def eager_operations_without_a_name_use_the_same_again():
    def known():
        return float(re.search(r"^hvd_\S*cache\S*hit\S* (\S+)", _native.stats_text(), re.M)[1])

    mpi_ops._allreduce(tf.ones([3]))
    before = known()
    for _ in range(5):
        mpi_ops._allreduce(tf.ones([3]))
    assert known() >= before + 3, (before, known())  # a new name would never be known


@check_if(N > 1)
def a_mismatch_is_an_error_that_names_it_in_graphs_too():

    def one(x, name="wrong"):
        return mpi_ops._allreduce(x, name=name)

    def group(x):
        return mpi_ops._grouped_allreduce([tf.ones([1]), x], name="wrong")

    x = tf.ones([3 if R == 0 else 4])
    for words, function, given in (
        (["wrong", "3", "4"], one, x),
        (["wrong", "3", "4"], tf.function(one), x),
        (["wrong_2of2", "3", "4"], tf.function(group), x),
        (["wrong", "float32", "int32"], one, tf.ones([1], tf.float32 if R == 0 else tf.int32)),
    ):
        expect_error(tf.errors.FailedPreconditionError, words, function, given)
    assert float(mpi_ops._allreduce(tf.constant(1.0))) == N


@check
def xla_is_refused_with_a_sentence():
    for function in (mpi_ops._allreduce, mpi_ops.allgather, lambda x: mpi_ops.broadcast(x, 0)):
        f = tf.function(function, jit_compile=True)
        expect_error(NotImplementedError, ["XLA", "jit_compile=True"], f, tf.ones([2]))
    compiled = tf.function(lambda x: x * 2 + 1, jit_compile=True)
    outer = tf.function(lambda x: mpi_ops._allreduce(compiled(x)))
    assert np.array_equal(outer(tf.ones([2])), [3 * N] * 2)


@check
def tensorflow_may_have_no_list_of_free_operations():
    # then tf.function chains them: right where ranks call in one order
    from tensorflow.python.framework import auto_control_deps as deps

    if not ASYNC:
        return
    free = deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS
    assert free >= completion.COLLECTIVES
    deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = free - completion.COLLECTIVES
    try:
        f = tf.function(lambda x: [mpi_ops._allreduce(x * float(i), name=f"chain_{i}") for i in range(5)])
        assert [float(y) for y in f(tf.constant(1.0))] == [i * N for i in range(5)]
    finally:
        deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = free


@check
def tensorflow_without_eager_execution_works():
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
    if R == 0 and os.environ["WANT_MODE"] == "asynchronous":  # else there is no self-test
        out = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=240
        )
        assert f"MODE {os.environ['WANT_MODE']} [2.]" in out.stdout, out


@check
def a_pipeline_of_tf_data_feeds_collectives():
    def rows():
        for i in range(20):
            yield np.full(3, i, np.float32)

    data = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([3], tf.float32))
    total = 0.0
    for batch in data.map(lambda x: x + 1, num_parallel_calls=2).batch(4).prefetch(2):
        total += float(tf.reduce_sum(hvd.allreduce(batch, op=hvd.Sum)))
    assert total == 3 * 210 * N, total


# --- gradients that only TensorFlow has; the common ones: gradients.py ------------------------------

WEIGHTS = [r + 2.0 for r in range(N)]  # rank r's gradient of what it got


def gradients(function, *args):
    """The gradient of the weighted sum of what function(*args) gives, eagerly and in a graph."""

    def gradient(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            outputs = tf.nest.flatten(function(*args))
            y = tf.add_n([tf.reduce_sum(tf.cast(output, tf.float64)) for output in outputs]) * WEIGHTS[R]
        return tape.gradient(y, args)

    yield gradient(*args)
    yield tf.function(gradient, input_signature=[tf.TensorSpec(None, x.dtype) for x in args])(*args)


def equal(got, expected, dtype=None):
    assert dtype is None or got.dtype == dtype, got.dtype
    expected = np.asarray(expected, np.float64)
    assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}"
    assert np.allclose(tf.cast(got, tf.float64), expected, rtol=1e-6), f"{got} is not {expected}"


@check
def gradients_of_unused_outputs_of_a_group_are_zeros():
    args = tf.ones([2]), tf.ones([3], tf.float64), tf.ones([])
    for a, b, c in gradients(lambda *x: mpi_ops._grouped_allreduce(list(x))[1:], *args):
        equal(a, [0, 0], tf.float32)
        equal(b, [sum(WEIGHTS)] * 3, tf.float64)
        equal(c, sum(WEIGHTS))
    args = tf.ones([N]), tf.ones([N], tf.float64)
    for _, b in gradients(lambda *x: mpi_ops._grouped_reducescatter(list(x))[0], *args):
        equal(b, [0] * N, tf.float64)
    for _, b in gradients(lambda *x: mpi_ops.grouped_allgather(list(x))[0], *args):
        equal(b, [0] * N, tf.float64)


@check
def the_gradient_of_an_allgather_of_no_rows_is_empty():
    x = tf.ones([0 if R == 0 else 2, 2])
    for (g,) in gradients(mpi_ops.allgather, x):
        equal(g, np.full(x.shape, sum(WEIGHTS) / N))


@check
def gradients_of_a_broadcast_have_no_nans_beside_the_root():
    bad = tf.constant(float("nan"))
    for (g,) in gradients(lambda x: mpi_ops.broadcast(x, 0) * bad, tf.ones([2])):
        assert np.isnan(g).all() if R == 0 else np.array_equal(g, [0, 0]), g


@check
def rows_that_were_looked_up_have_gradients():
    """The gradients of tf.gather are IndexedSlices."""

    def looked_up(f):
        def both(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(tf.gather(f(x), [0])) * WEIGHTS[R]
            return tape.gradient(y, x)

        x = tf.ones([2 * N, 2])
        return [tf.convert_to_tensor(g).numpy().sum() for g in (both(x), tf.function(both)(x))]

    for f, want in (
        (lambda x: mpi_ops._allreduce(x), 2 * sum(WEIGHTS)),
        (lambda x: mpi_ops._reducescatter(x), 2 * sum(WEIGHTS) * N),
        (lambda x: mpi_ops._reducescatter(x, op=hvd.Average), 2 * sum(WEIGHTS)),
        (lambda x: mpi_ops._grouped_reducescatter([x])[0], 2 * sum(WEIGHTS) * N),
        (lambda x: mpi_ops.allgather(x), 2 * sum(WEIGHTS) / N * (R == 0)),
        (lambda x: mpi_ops.broadcast(x, 0), 2 * sum(WEIGHTS) / N * (R == 0)),
    ):
        assert np.allclose(looked_up(f), want), (looked_up(f), want)


@check
def complex_numbers_that_were_broadcast_have_gradients():
    x = tf.constant([1.0 + 2.0j, 3.0])
    root = N - 1

    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.math.imag(mpi_ops.broadcast(x, root))) * WEIGHTS[R]
        return tape.gradient(y, x)

    for g in (f(x), tf.function(f)(x)):
        assert g is not None and g.dtype == x.dtype
        want = sum(WEIGHTS) / N * 1j if root == R else 0
        assert np.allclose(g.numpy(), want), (g, want)


@check
def sizes_and_ranks_have_no_gradients():
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * tf.cast(mpi_ops.size_op() + mpi_ops.rank_op(), tf.float32)
    equal(tape.gradient(y, x), N + R)


main(R)
