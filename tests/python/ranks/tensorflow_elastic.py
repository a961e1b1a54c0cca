# SPDX-License-Identifier: Apache-2.0
"""hvd.elastic with TensorFlow and Keras: what is kept, and training that goes on after a failure.

The loop itself is tested with torch (elastic.py). The reference is the same training without a failure.
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, expect_error, main
from horovod.tensorflow.elastic import TensorFlowKerasState, TensorFlowState, run

hvd.init()
R, N = hvd.rank(), hvd.size()
LAST = N - 1
v1 = tf.compat.v1


def batch(step):
    rng = np.random.default_rng(100 * step + R)
    return rng.normal(size=(6, 4)).astype("float32"), rng.normal(size=(6, 1)).astype("float32")


def model(seed=0):
    tf.keras.utils.set_random_seed(seed)
    m = tf.keras.Sequential(
        [
            tf.keras.layers.Input((4,)),
            tf.keras.layers.Dense(5, activation="tanh"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dense(1),
        ]
    )
    m.compile(optimizer=tf.keras.optimizers.Adam(0.05), loss="mse", jit_compile=False)
    return m


def numbers(m):
    o = m.optimizer.variables
    variables = [*m.variables, *(o() if callable(o) else o)]
    return [np.array(v.numpy()).tolist() for v in variables]


def same_everywhere(value):
    assert all(v == value for v in hvd.allgather_object(value)), "ranks differ"
    return value


def one_step(m, step, as_function=None):
    x, y = batch(step)

    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((m(x, training=False) - y) ** 2)
        grads = tape.gradient(loss, m.trainable_variables)
        return [hvd.allreduce(g, name=f"gradient.{i}") for i, g in enumerate(grads)]

    grads = (as_function or gradients)(x, y)
    m.optimizer.apply_gradients(zip(grads, m.trainable_variables))


def trained(steps):
    m = model()
    for step in range(steps):
        one_step(m, step)
    return numbers(m)


def injected(step):
    if R == LAST:
        raise hvd.HorovodInternalError("injected")


def mismatch(step):
    hvd.allreduce(tf.ones([3 + R]), name="shapes that differ")


@tf.function
def mismatch_in_graph(step):
    return hvd.allreduce(tf.ones([3 + R]), name="graph_shapes_that_differ")


def training(fail):
    """Eight steps from one rank's start, a commit each second; fails once at step 5."""
    m = model(seed=0 if R == 0 else 7)
    state = TensorFlowKerasState(m, step=0, seen=[])
    begun, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    @run
    def train(state):
        while state.step < 8:
            begun.append(state.step)
            if state.step == 5 and begun.count(5) == 1:
                fail(state.step)
            one_step(m, state.step)
            state.seen.append(state.step)
            state.step += 1
            if state.step % 2 == 0:
                state.commit()
        return "result"

    assert train(state) == "result" and train.__name__ == "train"
    assert begun == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7], begun
    assert state.seen == list(range(8)) and resets == [N]
    same_everywhere(numbers(m))
    for ours, reference in zip(numbers(m), trained(8)):
        np.testing.assert_allclose(ours, reference, rtol=1e-5, atol=1e-6)


@check
def training_continues_from_the_last_commit():
    training(injected)


if N > 1:

    @check
    def training_continues_when_ranks_disagree_eagerly():
        training(mismatch)

    @check
    def training_continues_when_ranks_disagree_in_a_function():
        training(mismatch_in_graph)


@check
def a_wrong_argument_is_no_failure_to_survive():
    calls = []

    @run
    def train(state):
        calls.append(1)
        tf.linalg.cholesky(tf.zeros([2, 3]))

    expect_error(tf.errors.InvalidArgumentError, [], train, TensorFlowState([]))
    assert len(calls) == 1
    hvd.barrier() if hasattr(hvd, "barrier") else hvd.allreduce(tf.ones(1))


@check
def eagerly_variables_are_required():
    expect_error(ValueError, ["give variables=", "no global ones"], TensorFlowState, step=0)
    assert TensorFlowState([], step=0).variables == []


@check
def variables_are_kept_and_synchronised():
    half = tf.Variable(tf.cast([1.5 + R, 2.0], tf.bfloat16))
    count = tf.Variable(R, dtype=tf.int64)
    flag = tf.Variable(R == 0)
    words = tf.Variable(tf.constant([f"rank {R}", "x"]))
    state = TensorFlowState([half, count, flag, words], epoch=R)
    state.sync()

    def now():
        return half.numpy().tolist(), int(count.numpy()), bool(flag.numpy()), words.numpy().tolist()

    first = ([1.5, 2.0], 0, True, [b"rank 0", b"x"])
    assert now() == first and state.epoch == 0, now()
    count.assign(9)
    half.assign(tf.zeros_like(half))
    words.assign(["a", "b"])
    state.epoch = 4
    state.restore()
    assert now() == first and state.epoch == 0, now()
    count.assign(3)
    state.commit()
    count.assign(4)
    state.restore()
    assert int(count.numpy()) == 3


@check
def much_is_sent_in_parts():
    from _hvd import elastic

    before, elastic._BYTES_AT_ONCE = elastic._BYTES_AT_ONCE, 20
    try:
        variables = [tf.Variable(tf.fill([n], float(R + n))) for n in (1, 9, 2, 2, 0, 3)]
        state = TensorFlowState(variables)
        state.sync()
        for v in variables:
            assert v.numpy().tolist() == [float(v.shape[0])] * v.shape[0]
    finally:
        elastic._BYTES_AT_ONCE = before


@check
def the_optimizer_belongs_to_the_first_commit():
    m = model(seed=R)
    state = TensorFlowKerasState(m)
    state.sync()
    before = same_everywhere(numbers(m))
    m.fit(*batch(0), epochs=2, verbose=0)
    assert numbers(m) != before
    state.restore()
    assert numbers(m) == before


@check
def an_optimizer_of_ones_own_is_kept():
    m = model(seed=R)
    other = tf.keras.optimizers.SGD(0.1 * (R + 1), momentum=0.9)
    state = TensorFlowKerasState(m, other)
    state.sync()
    assert state.optimizer is other and state.model is m
    rate = float(np.array(other.learning_rate.numpy()))
    assert abs(rate - 0.1) < 1e-6, rate
    legacy = getattr(tf.keras.optimizers, "legacy", None)
    if legacy is not None and hasattr(legacy, "Adam") and not tf.__version__.startswith("2.2"):
        state = TensorFlowKerasState(m, legacy.Adam(0.1))
        state.sync()
        state.restore()
        assert len(state.optimizer.variables()) > 2


@check
def a_missing_argument_is_named():
    unbuilt = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    expect_error(ValueError, ["Model must be built first"], TensorFlowKerasState, unbuilt)
    plain = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    expect_error(ValueError, ["no optimizer", "compile"], TensorFlowKerasState, plain)
    with tf.Graph().as_default():
        expect_error(ValueError, ["needs session="], TensorFlowState, None)


@check
def sessions_are_kept_and_synchronised():
    with tf.Graph().as_default():
        same = tf.constant([1.0, 2.0])  # one start for two: values must not be mixed up
        a = v1.get_variable("a", initializer=same, use_resource=True)
        b = v1.get_variable("b", initializer=same, use_resource=False)
        add = tf.group(a.assign_add([1.0, 1.0]), b.assign_add([10.0, 10.0]))
        everything = v1.global_variables_initializer()
        tf.compat.v1.get_default_graph().finalize()
        with v1.Session() as session:
            session.run(everything)
            for _ in range(R + 1):
                session.run(add)
            state = TensorFlowState(session=session, step=R)
            state.sync()
            assert session.run(a).tolist() == [2.0, 3.0] and session.run(b).tolist() == [11.0, 12.0]
            session.run(add)
            state.restore()
            assert session.run(b).tolist() == [11.0, 12.0] and state.step == 0
            session.run(add)
            state.commit()
            session.run(add)
            state.restore()
            assert session.run(a).tolist() == [3.0, 4.0] and session.run(b).tolist() == [21.0, 22.0]


@check
def hooks_of_a_monitored_session_do_not_count_it():
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        more = v1.assign_add(step, 1)
        with v1.train.MonitoredTrainingSession(hooks=[v1.train.StopAtStepHook(last_step=3)]) as session:
            state = TensorFlowState([step], session=session)
            for _ in range(5):
                state.sync()
                state.save()
            session.run(more)
            state.save()
            session.run(more)
            state.restore()
            assert not session.should_stop()
            assert int(session.run(more)) == 2


if N > 1:

    @check
    def training_in_a_session_continues():
        with tf.Graph().as_default():
            weight = v1.get_variable("w", initializer=float(R + 1))
            give = v1.placeholder(tf.float32, [None])
            add = weight.assign_add(tf.reduce_sum(hvd.allreduce(give, name="given", op=hvd.Sum)))
            everything = v1.global_variables_initializer()
            with v1.Session() as session:
                session.run(everything)
                state = TensorFlowState(session=session, step=0)
                failed = []

                @run
                def train(state):
                    while state.step < 4:
                        wrong = state.step == 2 and not failed
                        failed.extend([1] * wrong)
                        session.run(add, {give: np.ones(1 + wrong * R, np.float32)})
                        state.step += 1
                        state.commit()

                train(state)
                assert failed and float(session.run(weight)) == 1.0 + 4 * N


@check
def models_that_differ_are_an_error():
    if N == 1:
        return
    state = TensorFlowState([tf.Variable(tf.zeros([2 + R]), name="narrow")])
    words = ["narrow", "float32[2] on rank 0", f"float32[{2 + R}] on rank {R}"]
    if R == 0:
        expect_error(hvd.HorovodInternalError, ["rank"], state.sync)
    else:
        expect_error(ValueError, words, state.sync)
        hvd.shutdown()


main(R)
