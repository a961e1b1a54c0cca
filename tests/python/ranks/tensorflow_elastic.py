# SPDX-License-Identifier: Apache-2.0
"""hvd.elastic with TensorFlow and Keras: what is kept, and training that continues after a failure.

The loop itself is tested with torch (elastic.py).
"""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, check_if, expect_error, main
from horovod.tensorflow.elastic import TensorFlowKerasState, TensorFlowState, run

hvd.init()
R, N = hvd.rank(), hvd.size()
v1 = tf.compat.v1


def batch():
    rng = np.random.default_rng(R)
    return rng.normal(size=(6, 4)).astype("float32"), rng.normal(size=(6, 1)).astype("float32")


def model():
    """Each rank's own, with an optimizer that has variables."""
    tf.keras.utils.set_random_seed(R)
    layers = tf.keras.layers
    m = tf.keras.Sequential([layers.Input((4,)), layers.BatchNormalization(), layers.Dense(1)])
    m.compile(optimizer=tf.keras.optimizers.Adam(0.05), loss="mse", jit_compile=False)
    return m


def numbers(m):
    o = m.optimizer.variables
    variables = [*m.variables, *(o() if callable(o) else o)]
    return [np.array(v.numpy()).tolist() for v in variables]


def same_everywhere(value):
    assert all(v == value for v in hvd.allgather_object(value)), "ranks differ"
    return value


def training(state, step, value):
    """Four steps with a commit after each second one; in step 3 the ranks disagree once. step(rows) adds a row of
    ones for each of all ranks' rows to what value() gives."""
    begun, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    @run
    def train(state):
        while state.step < 4:
            begun.append(state.step)
            step(1 + R * (state.step == 3 and begun.count(3) == 1))
            state.step += 1
            if state.step % 2 == 0:
                state.commit()
        return "result"

    assert train(state) == "result" and train.__name__ == "train"
    if N > 1:  # a single rank cannot disagree
        assert begun == [0, 1, 2, 3, 2, 3] and resets == [N], (begun, resets)
    assert value() == 1.0 + 4 * N, value()


@check
def training_continues_from_the_last_commit():
    def step(rows):
        w.assign_add(tf.reduce_sum(hvd.allreduce(tf.ones([rows]), name="given", op=hvd.Sum)))

    for way in (step, tf.function(step)):
        w = tf.Variable(R + 1.0)
        training(TensorFlowState([w], step=0), way, lambda w=w: float(w.numpy()))
    with tf.Graph().as_default():
        weight = v1.get_variable("w", initializer=float(R + 1))
        give = v1.placeholder(tf.float32, [None])
        add = weight.assign_add(tf.reduce_sum(hvd.allreduce(give, name="given", op=hvd.Sum)))
        everything = v1.global_variables_initializer()
        with v1.Session() as session:
            session.run(everything)
            state = TensorFlowState(session=session, step=0)
            training(
                state,
                lambda rows: session.run(add, {give: np.ones(rows, np.float32)}),
                lambda: float(session.run(weight)),
            )


@check
def a_wrong_argument_is_no_failure_to_survive():
    calls = []

    @run
    def train(state):
        calls.append(1)
        tf.linalg.cholesky(tf.zeros([2, 3]))

    expect_error(tf.errors.InvalidArgumentError, [], train, TensorFlowState([]))
    assert len(calls) == 1
    hvd.barrier()


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
    m = model()
    state = TensorFlowKerasState(m)
    state.sync()
    before = same_everywhere(numbers(m))
    m.fit(*batch(), epochs=2, verbose=0)
    assert numbers(m) != before
    state.restore()
    assert numbers(m) == before


@check
def an_optimizer_of_ones_own_is_kept():
    m = model()
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


@check_if(N > 1)
def models_that_differ_are_an_error():
    state = TensorFlowState([tf.Variable(tf.zeros([2 + R]), name="narrow")])
    words = ["narrow", "float32[2] on rank 0", f"float32[{2 + R}] on rank {R}"]
    if R == 0:
        expect_error(hvd.HorovodInternalError, ["rank"], state.sync)
    else:
        expect_error(ValueError, words, state.sync)
        hvd.shutdown()


main(R)
