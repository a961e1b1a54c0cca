# SPDX-License-Identifier: Apache-2.0
"""Gradients of all ranks: the tapes, what they and the optimizers share, and aggregation between steps."""

from harness import N, R, hvd, np, symbol, tf, v1
from horovod.tensorflow import gradient_aggregation, gradient_aggregation_eager

MINE = R + 1.0
MEAN = 1.5  # of MINE over the ranks


def loss_of(*variables):
    """A loss whose gradient is MINE for the first variable, twice that for the second and so on."""
    return sum((i + 1) * MINE * tf.reduce_sum(v) for i, v in enumerate(variables))


def tape_of(build, *variables):
    """The gradients that a tape made by build(tape) gives."""
    with tf.GradientTape(persistent=True) as tape:
        loss = loss_of(*variables)
    return build(tape).gradient(loss, list(variables))


@symbol("DistributedGradientTape", "_DistributedGradientTape")
def tape(t):
    a, b = tf.Variable([1.0, 1.0]), tf.Variable(1.0)
    da, db = tape_of(hvd.DistributedGradientTape, a, b)
    t.equal(da, [MEAN, MEAN])
    t.equal(db, 2 * MEAN)
    for options, want in (
        ({"op": hvd.Sum}, N * MEAN),
        ({"gradient_predivide_factor": 2.0}, MEAN),
        ({"compression": hvd.Compression.fp16}, MEAN),
        ({"groups": 1}, MEAN),
        ({"groups": [[b, a]]}, MEAN),
    ):
        da, db = tape_of(lambda x, o=options: hvd.DistributedGradientTape(x, **o), a, b)
        t.equal(da, [want, want])
        t.equal(db, 2 * want)


@symbol("DistributedGradientTape")
def tape_as_a_context(t):
    """Named as the documentation does it: the tape is wrapped after it was recorded, and is a GradientTape."""
    v = tf.Variable([2.0])
    unused = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = v * v * MINE
    wrapped = hvd.DistributedGradientTape(tape)
    assert isinstance(wrapped, tf.GradientTape)
    got = wrapped.gradient(loss, [v, unused])
    t.equal(got[0], [4 * MEAN])
    assert got[1] is None

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v) * MINE
        return hvd.DistributedGradientTape(tape).gradient(loss, [v], use_generic_names=True)[0]

    for _ in range(2):
        t.equal(step(), [MEAN])


@symbol("DistributedGradientTape")
def tape_of_sparse_gradients(t):
    table = tf.Variable(tf.zeros([4, 1]))
    for as_dense in (False, True):
        with tf.GradientTape() as tape:
            loss = MINE * tf.reduce_sum(tf.nn.embedding_lookup(table, [R, 3]))
        got = hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense).gradient(loss, [table])[0]
        assert isinstance(got, tf.IndexedSlices) is not as_dense
        t.equal(tf.convert_to_tensor(got), [[0.5], [1], [0], [1.5]])


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


@symbol("DistributedGradientTape")
def tape_refuses(t):
    tape = tf.GradientTape()
    wrap = hvd.DistributedGradientTape
    t.fails(
        ValueError,
        ["gradient_predivide_factor", "Average"],
        wrap,
        tape,
        op=hvd.Sum,
        gradient_predivide_factor=2.0,
    )
    t.fails(ValueError, ["groups"], wrap, tape, groups=-1)


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


@symbol("horovod.tensorflow.gradient_aggregation_eager.LocalGradientAggregationHelperEager")
def eager_aggregation_with_a_local_variable(t):
    a, b = tf.Variable(1.0), tf.Variable(1.0)
    helper = eager_helper(1)
    helper.register_local_var(b)
    got = helper.compute_gradients([tf.constant(MINE), tf.constant(4 * MINE)], [a, b])
    t.equal(got[0], MEAN)
    t.equal(got[1], 4 * MINE / N)


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


@symbol("DistributedGradientTape")
def training_is_as_on_one_rank(t):
    """Each rank takes half of the batch: the weights are those of all of it on one."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(8, 3)).astype("f"), rng.normal(size=(8, 1)).astype("f")

    def train(x, y, wrap):
        w = tf.Variable(tf.ones([3, 1]))
        for _ in range(5):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.constant(x) @ w - tf.constant(y)) ** 2)
            w.assign_sub(0.1 * wrap(tape).gradient(loss, [w])[0])
        return w.numpy()

    mine = slice(4 * R, 4 * R + 4)
    alone = train(x, y, lambda tape: tape)
    t.equal(train(x[mine], y[mine], hvd.DistributedGradientTape), alone, tolerance=1e-5)
