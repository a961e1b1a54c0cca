# SPDX-License-Identifier: Apache-2.0
"""hvd.DistributedGradientTape: gradients of all ranks are those of the joined batch, whatever the options."""

import gc
import warnings
import weakref

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd.tensorflow import gradients as implementation
from checks import check, expect_error, main
from tape_steps import BATCH, Model, N, R, alone, batch, close, joined, ours, ways


def in_all_ways(tolerance=1e-12, factor=1.0, **options):
    """Ranks' gradients of their batches, against the joined batch's, in two steps each."""
    model = Model()
    for way, step in ways(lambda x: ours(model, x, **options)).items():
        for i in range(2):
            want = alone(model, joined(i))
            want = [None if g is None else tf.convert_to_tensor(g) * factor for g in want]
            try:
                close(step(batch(R, i)), want, tolerance)
            except AssertionError as e:
                raise AssertionError(f"{way}, step {i}: {e}") from None


@check
def gradients_are_those_of_the_joined_batch():
    in_all_ways()


@check
def sums_are_ranks_times_that():
    in_all_ways(op=hvd.Sum, factor=N)


@check
def sparse_gradients_stay_sparse_by_default():
    model = Model()
    for step in ways(lambda x: ours(model, x)).values():
        assert isinstance(step(batch(R))[0], tf.IndexedSlices)
    for step in ways(lambda x: ours(model, x, sparse_as_dense=True)).values():
        assert isinstance(step(batch(R))[0], tf.Tensor) or N == 1
    in_all_ways(sparse_as_dense=True)


@check
def groups_by_number():
    for groups in (1, 2, 50):
        in_all_ways(groups=groups)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        close(ours(Model(), batch(R), num_groups=2), alone(Model(), joined()))
    said = [w for w in caught if "Parameter `num_groups` has been replaced by `groups`" in str(w.message)]
    line = (DeprecationWarning, ours.__code__.co_filename)  # of who called
    assert said and all((w.category, w.filename) == line for w in said), [str(w) for w in said]


@check
def groups_by_variables():
    for as_a in (list, tuple):
        model = Model()
        groups = [as_a([model.second, model.table]), as_a([model.unused]), as_a([])]
        for step in ways(lambda x, m=model, g=groups: ours(m, x, groups=g)).values():
            for i in range(2):
                close(step(batch(R, i)), alone(model, joined(i)))


@check
def groups_of_other_dtypes():
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([3.0], dtype=tf.float64)

    def step():
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(a * float(R)) + tf.cast(tf.reduce_sum(b * float(R)), tf.float32)
        return hvd.DistributedGradientTape(tape, groups=1, op=hvd.Sum).gradient(y, [a, b])

    for function in ways(step).values():
        got = function()
        assert [g.dtype for g in got] == [tf.float32, tf.float64]
        assert all((g.numpy() == sum(range(N))).all() for g in got), got


@check
def compressed_ones_nearly():
    in_all_ways(2e-3, compression=hvd.Compression.fp16)
    in_all_ways(2e-2, compression=hvd.Compression.bf16, groups=2)
    if N == 1:
        return
    model = Model()
    got = ours(model, batch(R), compression=hvd.Compression.fp16)
    for g in got[1:3]:
        assert np.array_equal(g.numpy(), g.numpy().astype(np.float16)), "has not travelled as 16 bits"


class Unhashable:
    """A user's compressor that cannot be a key."""

    __hash__ = None

    def __eq__(self, other):
        return NotImplemented

    def compress(self, tensor):
        return tensor * 4, None

    def decompress(self, tensor, ctx):
        return tensor / 4


@check
def compressors_of_a_user():
    in_all_ways(compression=Unhashable())
    before = implementation._subgraph.cache_info().misses
    compressor, model = Unhashable(), Model()
    for _ in range(3):
        ours(model, batch(R), compression=compressor)
    assert implementation._subgraph.cache_info().misses - before == (N > 1)


@check
def divided_before_and_after():
    in_all_ways(gradient_predivide_factor=4.0)
    in_all_ways(gradient_predivide_factor=4.0, groups=2, sparse_as_dense=True)


@check
def generic_names_for_graphs_that_differ():
    model = Model()

    @tf.function
    def step(x):
        if R == 0:  # nodes that only this rank has: names that TensorFlow counts differ
            for _ in range(3):
                x = x + tf.cast(tf.reduce_sum(tf.gather(model.table, [0]) @ model.first) * 0, x.dtype)
        return ours(model, x, call={"use_generic_names": True})

    for i in range(2):
        close(step(batch(R, i)), alone(model, joined(i)))
    close(ours(model, batch(R), call={"use_generic_names": True}), alone(model, joined()))
    close(ours(model, batch(R), groups=2, call={"use_generic_names": True}), alone(model, joined()))


@check
def two_models_in_one_function_may_have_them():
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])

    @tf.function
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            y, z = tf.reduce_sum(a * x), tf.reduce_sum(b * x * 10.0)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
        return [tape.gradient(of, [v], use_generic_names=True)[0] for of, v in ((y, a), (z, b))]

    for _ in range(2):
        got = [g.numpy().tolist() for g in step(R + 1.0)]
        every = N * (N + 1) / 2
        assert got == [[every] * 2, [10 * every] * 2], got


@check
def what_a_codec_keeps_does_not_reach_another_variable():
    a, b = (tf.Variable(tf.ones([100]), name="kernel") for _ in range(2))
    uneven = tf.constant(np.linspace(1, 2, 100), tf.float32)

    def step(v, by):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(v * by)
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.topk(k=1))
        return tape.gradient(y, [v])[0].numpy()

    def in_function(v, by):
        @tf.function
        def traced(by):
            with tf.GradientTape() as tape:
                y = tf.reduce_sum(v * by)
            tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.topk(k=1))
            return tape.gradient(y, [v])[0]

        return traced(by).numpy()

    for once in (step, in_function):
        for _ in range(3):
            assert np.count_nonzero(once(a, uneven)) == (1 if N > 1 else 100)
            assert not once(b, tf.zeros([100])).any(), once
    if N > 1:
        sent = {step(a, uneven).argmax() for _ in range(3)}
        assert len(sent) > 1, "what was not sent must come in a later step"


@check
def many_shapes_of_sparse_ones_are_traced_a_few_times():
    table = tf.Variable(tf.ones([50, 2]))
    traced = []

    class Counting(hvd.Compression.none):
        @staticmethod
        def compress(tensor):
            traced.append(tensor)
            return tensor, None

    other = tf.Variable([1.0])
    for rows in range(1, 12):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.gather(table, list(range(rows)))) + other
        got = hvd.DistributedGradientTape(tape, compression=Counting, op=hvd.Sum).gradient(
            y, [table, other]
        )
        assert tf.convert_to_tensor(got[0]).numpy().sum() == 2 * rows * N and float(got[1][0]) == N
    assert len(traced) <= 3, f"{len(traced)} tracings"


@check
def unconnected_gradients_are_none_or_zero():
    model = Model()
    zero = tf.UnconnectedGradients.ZERO
    for step in ways(lambda x: ours(model, x)).values():
        assert step(batch(R))[3] is None
    for call in ({"unconnected_gradients": zero}, {"unconnected_gradients": "zero"}):
        for step in ways(lambda x, c=call: ours(model, x, call=c)).values():
            assert step(batch(R))[3].numpy().tolist() == [0, 0, 0]
    for fourth in (zero, "zero"):
        with tf.GradientTape() as tape:
            loss = model.loss(batch(R))
        tape = hvd.DistributedGradientTape(tape)
        got = tape.gradient(loss, model.variables, None, fourth)  # where TensorFlow has it
        assert got[3].numpy().tolist() == [0, 0, 0]


@check
def sources_may_be_nested_or_one():
    model = Model()
    want = alone(model, joined())
    with tf.GradientTape(persistent=True) as tape:
        loss = model.loss(batch(R))
    tape = hvd.DistributedGradientTape(tape)
    close([tape.gradient(loss, model.first)], want[1:2])
    got = tape.gradient(loss, {"b": [model.first, model.unused], "a": (model.second,)})
    assert set(got) == {"a", "b"} and isinstance(got["a"], tuple)
    close([got["a"][0], *got["b"]], [want[2], want[1], None])
    close(tape.gradient(loss, (model.first, model.first)), [want[1], want[1]])
    assert tape.gradient(loss, []) == []


@check
def weights_of_outputs_are_taken():
    model = Model()
    with tf.GradientTape() as tape:
        loss = model.loss(batch(R))
    got = hvd.DistributedGradientTape(tape).gradient(loss, [model.second], tf.constant(3.0, tf.float64))
    close([got[0] / 3], alone(model, joined())[2:3])


@check
def a_tape_is_wrapped_before_while_and_after_it_records():
    model = Model()
    want = alone(model, joined())
    plain = tf.GradientTape()
    with hvd.DistributedGradientTape(plain) as tape:
        loss = model.loss(batch(R))
    close(tape.gradient(loss, model.variables), want)
    with tf.GradientTape() as plain:
        hidden = model.loss(batch(R))
        tape = hvd.DistributedGradientTape(plain)
        loss = hidden * 1.0
    close(tape.gradient(loss, model.variables), want)
    with tf.GradientTape() as plain:
        tape = hvd.DistributedGradientTape(plain)
        loss = model.loss(batch(R))
        close(tape.gradient(loss, model.variables), want)  # ends the recording, as TensorFlow's does
    with tf.GradientTape() as plain:
        loss = model.loss(batch(R))
    twice = hvd.DistributedGradientTape(hvd.DistributedGradientTape(plain), op=hvd.Sum)
    close([g * 1.0 / N for g in twice.gradient(loss, [model.first])], want[1:2])


@check
def the_tape_is_one_of_tensorflows():
    plain = tf.GradientTape(persistent=True, watch_accessed_variables=False)
    tape = hvd.DistributedGradientTape(plain)
    assert isinstance(tape, tf.GradientTape) and type(tape).__name__ == "GradientTape"
    model = Model()
    with tape:
        tape.watch(model.first)
        loss = model.loss(batch(R))
    assert [v is model.first for v in tape.watched_variables()] == [True]
    want = alone(model, joined())[1]
    for _ in range(2):  # persistent
        got = tape.gradient(loss, model.variables)
        close(got, [None, want, None, None])
    close([plain.gradient(loss, model.first)], [alone(model, batch(R))[1]])  # that one stays as it was

    class Mine(tf.GradientTape):
        def __init__(self, word):
            super().__init__()
            self.word = word

    with Mine("here") as mine:
        loss = model.loss(batch(R))
    tape = hvd.DistributedGradientTape(mine)
    assert type(tape).__name__ == "Mine" and tape.word == "here"
    close(tape.gradient(loss, model.variables), alone(model, joined()))
    words = ["non-persistent"]
    expect_error(RuntimeError, words, tape.gradient, loss, model.variables)


@check
def tapes_leave_nothing_behind():
    model = Model()
    ours(model, batch(R))
    with tf.GradientTape() as tape:
        loss = model.loss(batch(R))
    tape = hvd.DistributedGradientTape(tape)
    kept = [weakref.ref(tape), weakref.ref(tape.gradient(loss, model.variables)[1])]
    classes = len(tf.GradientTape.__subclasses__())
    ours(model, batch(R))
    assert len(tf.GradientTape.__subclasses__()) == classes, "each tape makes a class"
    del tape, loss
    gc.collect()
    assert [k() for k in kept] == [None, None]


@check
def sources_may_be_local():
    model = Model()
    mine, want = alone(model, batch(R)), alone(model, joined())
    for scale in (True, False):

        def step(x, scale=scale):
            with tf.GradientTape() as tape:
                loss = model.loss(x)
            tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
            tape.register_local_source(model.table)
            tape.register_local_var(model.second)
            tape.register_local_source(model.unused)
            return tape.gradient(loss, model.variables)

        by = N if scale else 1
        local = tf.IndexedSlices(mine[0].values / by, mine[0].indices, mine[0].dense_shape)
        for function in ways(step).values():
            got = function(batch(R))
            assert isinstance(got[0], tf.IndexedSlices) and got[0].values.shape[0] == BATCH
            close(got, [local, want[1], mine[2] / by, None])
    with tf.GradientTape() as tape:
        loss = model.loss(batch(R))
    tape = hvd.DistributedGradientTape(tape)
    tape.register_local_source(model.second)
    local, others = tape.get_local_and_global_gradients(loss, model.variables)
    assert [v.name for v, _ in local] == ["second:0"] and len(others) == 3
    close([g for _, g in local] + [g for _, g in others], [mine[2] / N, want[0], want[1], None])


@check
def layers_may_be_local():
    keras = tf.keras
    keras.utils.set_random_seed(7)
    first, second = keras.layers.Dense(3, name="a"), keras.layers.Dense(2, name="b")
    x = tf.constant(np.random.default_rng(R).normal(size=(4, 5)), tf.float32)
    second_first = hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=second)
    with second_first as tape:  # its weights are made now
        loss = tf.reduce_sum(second(first(x)))
    with tf.GradientTape() as plain:
        own = tf.reduce_sum(second(first(x)))
    weights = first.trainable_weights + second.trainable_weights
    mine = plain.gradient(own, weights)
    got = tape.gradient(loss, weights)
    want = [hvd.allreduce(g) for g in mine[:2]] + [g / N for g in mine[2:]]
    close(got, want, 1e-6)
    for layers in ([first, second], (first, second)):
        with tf.GradientTape() as plain:
            loss = tf.reduce_sum(second(first(x)))
        tape = hvd.PartialDistributedGradientTape(plain, local_layers=layers, scale_local_gradients=False)
        close(tape.gradient(loss, weights), mine, 1e-6)
    with tf.GradientTape() as plain:
        loss = tf.reduce_sum(second(first(x)))
    close(
        hvd.PartialDistributedGradientTape(plain).gradient(loss, weights),
        [hvd.allreduce(g) for g in mine],
        1e-6,
    )
    words = ["All local layers must be of tf.keras.layers.Layer type."]
    for wrong in ([first, 1], [first.kernel]):
        expect_error(
            ValueError, words, hvd.PartialDistributedGradientTape, tf.GradientTape(), local_layers=wrong
        )


@check
def gradients_of_gradients():
    """d/dw of the squared norm of the averaged gradient; of x^3 w: 3 x^2 ..., by hand."""
    w = tf.Variable(2.0, dtype=tf.float64)
    x = tf.constant(R + 1.0, tf.float64)

    def step(x):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = x * w**3
            inner = hvd.DistributedGradientTape(inner, op=hvd.Sum)
            g = inner.gradient(y, [w])[0]  # sum of all x, times 3 w^2
            z = g * float(R + 1)
        return g, outer.gradient(z, [w])[0]

    for function in ways(step).values():
        g, second = function(x)
        every = sum(r + 1.0 for r in range(N))
        assert abs(float(g) - every * 12) < 1e-9, float(g)
        # the gradient of a sum is the sum of the gradients, of which each rank has its factor
        assert abs(float(second) - every * (R + 1) * 12) < 1e-9, float(second)


@check
def keras_variables_are_sources():
    layer = tf.keras.layers.Dense(2, use_bias=False)
    x = tf.fill([3, 4], R + 1.0)
    layer(x)

    def step(x, **options):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(layer(x))
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, **options)
        return tape.gradient(y, layer.trainable_variables)

    want = 3 * sum(r + 1 for r in range(N))
    for options in ({}, {"groups": [[layer.kernel]]}, {"compression": hvd.Compression.fp16}):
        for function in ways(lambda x, o=options: step(x, **o)).values():
            assert (function(x)[0].numpy() == want).all(), options

    def local(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(layer(x))
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=False)
        tape.register_local_source(layer.trainable_variables[0])
        return tape.gradient(y, [layer.kernel])

    for function in ways(local).values():
        assert (function(x)[0].numpy() == 3 * (R + 1)).all()


@check
def wrong_options_are_refused():
    def wrap(**options):
        return hvd.DistributedGradientTape(tf.GradientTape(), **options)

    words = ["gradient_predivide_factor not supported with op != Average"]
    expect_error(ValueError, words, wrap, gradient_predivide_factor=2.0, op=hvd.Sum)
    expect_error(ValueError, ["must be > 0"], wrap, gradient_predivide_factor=0.0)
    words = ["groups should be a non-negative integer or a list of list of tf.Variable."]
    for groups in (0, -1, "two", True, 1.5):
        expect_error(ValueError, words, wrap, groups=groups)
    expect_error(ValueError, ["op must be hvd.Average", "7"], wrap, op=7)
    expect_error(TypeError, ["process_set", "int"], wrap, process_set=0)
    expect_error(TypeError, ["tf.GradientTape", "Variable"], hvd.DistributedGradientTape, tf.Variable(1.0))
    for name in ("jacobian", "batch_jacobian"):
        expect_error(NotImplementedError, [name, "the wrapped tape"], getattr(wrap(), name), None, None)


@check
def ranks_that_disagree_get_an_error():
    if N == 1:
        return
    v = tf.Variable(tf.ones([2 + R]))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v)
    tape = hvd.DistributedGradientTape(tape)
    expect_error(
        tf.errors.OpError, ["tensor shapes", "/grad_0", "(dimension 0 differs)"], tape.gradient, y, [v]
    )
    in_all_ways()


@check
def sets_exchange_among_themselves():
    model = Model()
    late = hvd.ProcessSet([0])
    expect_error(ValueError, ["not been registered"], ours, model, batch(R), process_set=late)
    if N > 1:  # a set of one has nothing to exchange, and rank 1 is in none
        hvd.add_process_set(late)
        close(ours(model, batch(R), process_set=late), alone(model, batch(R)))
        local = implementation.LocalSources()
        local.add(model.first)
        args = (lambda grads, _: grads, [tf.ones(2)], [model.first], local, True)
        assert implementation.reduce_but_local(*args, late)[0].numpy().tolist() == [1, 1]
        hvd.remove_process_set(late)
    if N < 4:
        return
    evens = hvd.add_process_set([0, 2])
    want = alone(model, joined(ranks=(0, 2))) if R in (0, 2) else alone(model, batch(R))
    for options in ({}, {"groups": 2}, {"sparse_as_dense": True}):
        for step in ways(lambda x, o=options: ours(model, x, process_set=evens, **o)).values():
            close(step(batch(R)), want)

    def local(x):
        with tf.GradientTape() as tape:
            loss = model.loss(x)
        tape = hvd.DistributedGradientTape(tape, process_set=evens)
        tape.register_local_source(model.second)
        return tape.gradient(loss, [model.second])

    close(local(batch(R)), [alone(model, batch(R))[2] / (2 if evens.included() else 1)])
    assert hvd.remove_process_set(evens)


main(R)
