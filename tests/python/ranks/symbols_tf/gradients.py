# SPDX-License-Identifier: Apache-2.0
"""Gradients of all ranks: the tapes, what they and the optimizers share, and aggregation between steps."""

from harness import N, R, hvd, symbol, tf, v1
from horovod.tensorflow import gradient_aggregation, gradient_aggregation_eager

MINE = R + 1.0
MEAN = 1.5  # of MINE over the ranks


def reduction(name):
    return hvd._make_allreduce_grads_fn(
        name, "", "", hvd.Compression.none, False, hvd.Average, 1.0, None, hvd.global_process_set
    )


@symbol("DistributedGradientTape", "_DistributedGradientTape")
def tape_with_sources_of_one_rank(t):
    """What its options do: tensorflow_tape.py."""
    a, b = tf.Variable(1.0), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = MINE * (a + 2 * b)
    wrapped = hvd.DistributedGradientTape(tape)
    wrapped.register_local_source(b)
    (local,), (shared,) = wrapped.get_local_and_global_gradients(loss, [a, b])
    assert local[0] is b and shared[0] is a
    t.equal(local[1], 2 * MINE / N)
    t.equal(shared[1], MEAN)


@symbol("PartialDistributedGradientTape")
def partial_tape(t):
    one, other = (tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(2))
    with tf.GradientTape() as tape:
        loss = MINE * tf.reduce_sum(other(one(tf.ones([1, 1]))))
    wrapped = hvd.PartialDistributedGradientTape(tape, local_layers=other, scale_local_gradients=False)
    got = wrapped.gradient(loss, one.trainable_weights + other.trainable_weights)
    t.equal(got[0], [[MEAN]])
    t.equal(got[1], [[MINE]])


@symbol("_make_allreduce_grads_fn")
def reduction_that_tapes_and_optimizers_share(t):
    a, b = tf.Variable(1.0), tf.Variable([1.0])
    got = reduction("shared")([tf.constant(MINE), None], [a, b])
    t.equal(got[0], MEAN)
    assert got[1] is None


@symbol("horovod.tensorflow.gradient_aggregation_eager.LocalGradientAggregationHelperEager")
def eager_aggregation(t):
    """What its options do: tensorflow_aggregation.py."""
    v = tf.Variable([1.0])
    make = gradient_aggregation_eager.LocalGradientAggregationHelperEager
    helper = make(2, reduction("helper"), sparse_as_dense=False, average_aggregated_gradients=True)
    t.equal(helper.compute_gradients([tf.constant([MINE])], [v])[0], [MINE])  # so far this rank's own
    t.equal(helper.compute_gradients([tf.constant([3 * MINE])], [v])[0], [2 * MEAN])


@symbol("horovod.tensorflow.gradient_aggregation.apply_op_to_not_none_tensors")
@symbol("horovod.tensorflow.gradient_aggregation.get_not_none_from_list")
def what_is_not_none(t):
    got = gradient_aggregation.apply_op_to_not_none_tensors(tf.add, [tf.constant(1), None], 2)
    t.equal(got[0], 3)
    assert got[1] is None
    assert gradient_aggregation.get_not_none_from_list([None, 0, None, 2]) == [0, 2]


@symbol("LocalGradientAggregationHelper")
def graph_aggregation(t):
    with tf.Graph().as_default(), v1.Session() as session:
        make = hvd.LocalGradientAggregationHelper
        kind = make._OPTIMIZER_TYPE_LEGACY
        helper = make(2, reduction("graph"), False, True, R, kind, name="graph")
        v = v1.get_variable("v", initializer=tf.constant([1.0]))
        fed = v1.placeholder(tf.float32, [1])
        got = helper.compute_gradients([fed, None], [v, v])
        assert got[1] is None
        applied = helper.apply_gradients(lambda: v.assign_sub(got[0]).op, None, [(got[0], v)])
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for n, want in ((1.0, 1.0), (3.0, 1 - 2 * MEAN), (5.0, 1 - 2 * MEAN), (5.0, 1 - 7 * MEAN)):
            session.run(applied, feed_dict={fed: [n * MINE]})
            t.equal(session.run(v), [want], tolerance=1e-5)
