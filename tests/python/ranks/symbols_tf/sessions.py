# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 1's optimizers and sessions."""

from harness import R, hvd, symbol, tf, v1

MINE = R + 1.0
MEAN = 1.5


@symbol("DistributedOptimizer", "_DistributedOptimizer")
def optimizer(t):
    """What its options do: v1_optimizer.py."""
    with tf.Graph().as_default(), v1.Session() as session:
        v = v1.get_variable("v", initializer=tf.constant([10.0]))
        wrapped = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        grads = wrapped.compute_gradients(MINE * tf.reduce_sum(v), [v])
        step = wrapped.apply_gradients(grads, global_step=v1.train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        t.equal(session.run(grads[0][0]), [MEAN])
        session.run(step)
        t.equal(session.run(v), [10 - MEAN])


@symbol("DistributedOptimizer", "_DistributedAdasumOptimizer")
def optimizer_of_adasum(t):
    """Equal changes are averaged by Adasum: both ranks end where each alone would."""
    with tf.Graph().as_default(), v1.Session() as session:
        v = v1.get_variable("v", initializer=tf.constant([10.0]))
        wrapped = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum)
        step = wrapped.minimize(2.0 * tf.reduce_sum(v))
        session.run(v1.global_variables_initializer())
        session.run(step)
        t.equal(session.run(v), [8], tolerance=1e-5)


@symbol("BroadcastGlobalVariablesHook")
def hook(t):
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=tf.constant([float(R)]))
        hook = hvd.BroadcastGlobalVariablesHook(1)
        assert isinstance(hook, v1.train.SessionRunHook)
        v1.train.get_or_create_global_step()
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            t.equal(session.run(v), [1])


@symbol("MetricAverageHook", ours=True)
def metrics_of_all_ranks(t):
    with tf.Graph().as_default():
        loss = tf.constant(float(R), name="loss")
        v1.train.get_or_create_global_step()
        hook = hvd.MetricAverageHook({"loss": loss}, every_n=1)
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            t.equal(session.run(loss), R)


@symbol("barrier", "completion_mode", "HorovodInternalError", "HostsUpdatedInterrupt", ours=True)
def beyond_horovod(t):
    hvd.barrier()
    assert hvd.completion_mode() in ("asynchronous", "blocking")
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert isinstance(hvd.HostsUpdatedInterrupt(False), RuntimeError)
