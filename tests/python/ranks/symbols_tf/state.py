# SPDX-License-Identifier: Apache-2.0
"""Elastic states of variables, and batch normalization over all ranks."""

from harness import N, R, hvd, np, symbol, tf, v1
from horovod.tensorflow import elastic, sync_batch_norm


@symbol("horovod.tensorflow.elastic.TensorFlowState")
def state_of_variables(t):
    v = tf.Variable([1.0 + R])
    state = elastic.TensorFlowState([v], step=R)
    state.sync()
    t.equal(v.read_value(), [1])
    assert state.step == 0
    state.step = 3
    v.assign([5.0])
    state.commit()
    v.assign([6.0])
    state.step = 4
    state.restore()
    t.equal(v.read_value(), [5])
    assert state.step == 3


@symbol("horovod.tensorflow.elastic.TensorFlowState")
def state_of_a_session(t):
    with tf.Graph().as_default(), v1.Session() as session:
        v = v1.get_variable("v", initializer=tf.constant([1.0 + R]))
        session.run(v1.global_variables_initializer())
        state = elastic.TensorFlowState(session=session, step=R)
        state.sync()
        t.equal(session.run(v), [1])
        assert state.step == 0
        v.load([5.0], session)
        state.commit()
        v.load([6.0], session)
        state.restore()
        t.equal(session.run(v), [5])


@symbol("horovod.tensorflow.elastic.run", "horovod.tensorflow.elastic.TensorFlowState")
def run_goes_on_from_the_commit(t):
    v = tf.Variable([0.0])
    state = elastic.TensorFlowState([v], step=0)
    resets, tries = [], []
    state.register_reset_callbacks([lambda: resets.append(1)])

    @hvd.elastic.run
    def train(state, more):
        tries.append(state.step)
        while state.step < 3:
            v.assign_add(hvd.allreduce(tf.constant([1.0 + more]), op=hvd.Sum))
            state.step += 1
            if len(tries) == 1 and state.step == 2:
                raise hvd.HorovodInternalError("as when a rank was lost")
            state.commit()
        return "done"

    assert train(state, more=1) == "done"
    assert tries == [0, 1] and resets == [1], (tries, resets)
    t.equal(v.read_value(), [3 * 2 * N])


@symbol("SyncBatchNormalization", "horovod.tensorflow.sync_batch_norm.SyncBatchNormalization")
def sync_batch_normalization(t):
    """Statistics are those of both ranks' rows together."""
    every = np.random.default_rng(3).normal(2.0, 3.0, size=(8, 2)).astype("f")
    layer = hvd.SyncBatchNormalization(momentum=0.0, epsilon=1e-5)
    assert isinstance(layer, tf.keras.layers.BatchNormalization)
    assert layer.name.startswith("sync_batch_normalization")
    got = layer(tf.constant(every[4 * R : 4 * R + 4]), training=True)
    mean, variance = every.mean(0), every.var(0)
    want = (every - mean) / np.sqrt(variance + 1e-5)
    t.equal(got, want[4 * R : 4 * R + 4], tolerance=1e-4)
    t.equal(tf.convert_to_tensor(layer.moving_mean), mean, tolerance=1e-5)
    still = layer(tf.constant(every), training=False)  # no statistics of other ranks
    t.equal(still, (every - mean) / np.sqrt(np.asarray(layer.moving_variance) + 1e-5), tolerance=1e-3)
    t.fails(ValueError, ["fused=True"], sync_batch_norm.SyncBatchNormalization, fused=True)
    named = hvd.SyncBatchNormalization(name="mine")
    assert named.name == "mine"


@symbol("SyncBatchNormalization")
def gradient_of_sync_batch_normalization(t):
    """As that of one process that has all rows, where the loss is the sum of both."""
    every = np.random.default_rng(4).normal(size=(8, 2)).astype("f")
    weights = np.arange(16, dtype="f").reshape(8, 2)

    def gradient(layer, rows):
        x = tf.constant(every[rows])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(layer(x, training=True) ** 2 * tf.constant(weights[rows]))
        return tape.gradient(y, x)

    alone = gradient(tf.keras.layers.BatchNormalization(), slice(0, 8))
    mine = slice(4 * R, 4 * R + 4)
    t.equal(gradient(hvd.SyncBatchNormalization(), mine), np.asarray(alone)[mine], tolerance=2e-3)
