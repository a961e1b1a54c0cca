# SPDX-License-Identifier: Apache-2.0
"""Gradients of all ranks: the tapes, what they and the optimizers share, and aggregation between steps."""

from harness import N, R, hvd, symbol, tf, v1
from horovod.tensorflow import gradient_aggregation, gradient_aggregation_eager

MINE = R + 1.0
MEAN = 1.5  # of MINE over the ranks


def loss_of(*variables):
    """A loss whose gradient is MINE for the first variable, twice that for the second and so on."""
    return sum((i + 1) * MINE * tf.reduce_sum(v) for i, v in enumerate(variables))


@symbol("DistributedGradientTape", "_DistributedGradientTape")
def tape_with_sources_of_one_rank(t):
    a, b = tf.Variable(1.0), tf.Variable(1.0)
    for scale in (True, False):
        with tf.GradientTape() as tape:
            loss = loss_of(a, b)
        wrapped = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        wrapped.register_local_source(b)
        local, shared = wrapped.get_local_and_global_gradients(loss, [a, b])
        assert [v is b for v, _ in local] == [True] and [v is a for v, _ in shared] == [True]
        t.equal(local[0][1], 2 * MINE / (N if scale else 1))
        t.equal(shared[0][1], MEAN)


@symbol("PartialDistributedGradientTape")
def partial_tape(t):
    one, other = (tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(2))
    x = tf.ones([1, 1])
    variables = [v for layer in (one, other) if layer(x) is not None for v in layer.trainable_weights]
    for layers, local in ((None, False), (other, True), ([other], True)):
        with tf.GradientTape() as tape:
            loss = MINE * tf.reduce_sum(other(one(x)))
        wrapped = hvd.PartialDistributedGradientTape(tape, local_layers=layers, scale_local_gradients=False)
        got = wrapped.gradient(loss, variables)
        t.equal(got[0], [[MEAN]])
        t.equal(got[1], [[MINE if local else MEAN]])
    partial = hvd.PartialDistributedGradientTape
    t.fails(ValueError, ["local layers"], partial, tf.GradientTape(), local_layers=[tf.Variable(1.0)])


@symbol("_make_allreduce_grads_fn")
def reduction_that_tapes_and_optimizers_share(t):
    reduce = hvd._make_allreduce_grads_fn(
        "shared", "", "", hvd.Compression.none, False, hvd.Average, 1.0, None, hvd.global_process_set
    )
    a, b = tf.Variable(1.0), tf.Variable([1.0])
    got = reduce([tf.constant(MINE), None], [a, b])
    t.equal(got[0], MEAN)
    assert got[1] is None


def eager_helper(k, **options):
    reduce = hvd._make_allreduce_grads_fn(
        "helper", "", "", hvd.Compression.none, False, hvd.Average, 1.0, None, hvd.global_process_set
    )
    options = {"sparse_as_dense": False, "average_aggregated_gradients": False, **options}
    return gradient_aggregation_eager.LocalGradientAggregationHelperEager(k, reduce, **options)


@symbol("horovod.tensorflow.gradient_aggregation_eager.LocalGradientAggregationHelperEager")
def eager_aggregation(t):
    v = tf.Variable([1.0])
    for average in (False, True):
        helper = eager_helper(2, average_aggregated_gradients=average)
        for _ in range(2):  # two rounds of two passes
            got = helper.compute_gradients([tf.constant([MINE])], [v])
            t.equal(got[0], [MINE])  # so far this rank's own
            got = helper.compute_gradients([tf.constant([3 * MINE])], [v])
            t.equal(got[0], [4 * MEAN / (2 if average else 1)])
    t.fails(ValueError, ["backward_passes_per_step"], eager_helper, 0)


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
        reduce = hvd._make_allreduce_grads_fn(
            "graph", "", "", hvd.Compression.none, False, hvd.Average, 1.0, None, hvd.global_process_set
        )
        helper = hvd.LocalGradientAggregationHelper(
            2,
            reduce,
            False,
            True,
            R,
            hvd.LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
            name="graph",
        )
        v = v1.get_variable("v", initializer=tf.constant([1.0]))
        fed = v1.placeholder(tf.float32, [1])
        got = helper.compute_gradients([fed, None], [v, v])
        assert got[1] is None
        applied = helper.apply_gradients(lambda: v.assign_sub(got[0]).op, None, [(got[0], v)])
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for n, want in ((1.0, 1.0), (3.0, 1 - 2 * MEAN), (5.0, 1 - 2 * MEAN), (5.0, 1 - 7 * MEAN)):
            session.run(applied, feed_dict={fed: [n * MINE]})
            t.equal(session.run(v), [want], tolerance=1e-5)
