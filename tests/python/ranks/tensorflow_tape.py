# SPDX-License-Identifier: Apache-2.0
"""hvd.DistributedGradientTape: gradients of all ranks are those of the joined batch, whatever the options; and what
a tape has reduced already is not reduced again by an optimizer."""

import functools
import gc
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd.tensorflow import gradients as implementation
from checks import check, check_if, expect_error, main

tf.get_logger().setLevel("ERROR")
hvd.init()
R, N = hvd.rank(), hvd.size()
BATCH = 6
EXACT = 1e-12
ALL = sum(r + 1.0 for r in range(N))  # of rank + 1


class Model:
    """An embedding, two dense layers and a variable that nothing depends on; float64."""

    def __init__(self):
        g = np.random.default_rng(3)
        self.table = tf.Variable(g.normal(size=(10, 4)), name="table")
        self.first = tf.Variable(g.normal(size=(4, 5)), name="first")
        self.second = tf.Variable(g.normal(size=(5, 2)), name="second")
        self.unused = tf.Variable(g.normal(size=(3,)), name="unused")
        self.variables = [self.table, self.first, self.second, self.unused]

    def loss(self, x):
        hidden = tf.tanh(tf.gather(self.table, x) @ self.first)
        return tf.reduce_mean((hidden @ self.second) ** 2)

    def recorded(self, x):
        """(tape, loss)"""
        with tf.GradientTape() as tape:
            loss = self.loss(x)
        return tape, loss


def batch(rank, step=0):
    return tf.constant(np.random.default_rng(100 * step + rank).integers(0, 10, BATCH))


def joined(step=0, ranks=None):
    return tf.concat([batch(r, step) for r in (range(N) if ranks is None else ranks)], 0)


def alone(model, x):
    """What one process gets for x."""
    tape, loss = model.recorded(x)
    return tape.gradient(loss, model.variables)


def ours(model, x, call=None, local=(), **options):
    """call: options of gradient(); local: variables whose gradients stay local."""
    tape, loss = model.recorded(x)
    tape = hvd.DistributedGradientTape(tape, **options)
    for source in local:
        tape.register_local_source(source)
    return tape.gradient(loss, model.variables, **(call or {}))


def close(got, want, tolerance=EXACT):
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, want)):
        if b is None:
            assert a is None, f"gradient {i} is {a}"
            continue
        a, b = tf.convert_to_tensor(a).numpy(), tf.convert_to_tensor(b).numpy()
        gap = np.abs(a - b).max() / np.abs(b).max()
        assert gap <= tolerance, f"gradient {i} is {gap:.2e} of its largest element off"


def ways(function):
    """function eagerly, and as a tf.function."""
    return [function, tf.function(function)]


class Unhashable:
    """A user's compressor that cannot be a key."""

    __hash__ = None

    def __eq__(self, other):
        return NotImplemented

    def compress(self, tensor):
        return tensor * 4, None

    def decompress(self, tensor, ctx):
        return tensor / 4


OPTIONS = (  # options, tolerance, times the average
    ({}, EXACT, 1),
    ({"op": hvd.Sum}, EXACT, N),
    ({"sparse_as_dense": True}, EXACT, 1),
    *(({"groups": groups}, EXACT, 1) for groups in (1, 2, 50)),
    ({"compression": hvd.Compression.fp16}, 2e-3, 1),
    ({"compression": hvd.Compression.bf16, "groups": 2}, 2e-2, 1),
    ({"compression": Unhashable()}, EXACT, 1),
    ({"gradient_predivide_factor": 4.0}, EXACT, 1),
    ({"gradient_predivide_factor": 4.0, "groups": 2, "sparse_as_dense": True}, EXACT, 1),
)


def compare(options, tolerance, factor):
    model = Model()
    for step in ways(lambda x: ours(model, x, **options)):
        for i in range(2):
            want = alone(model, joined(i))
            want = [None if g is None else tf.convert_to_tensor(g) * factor for g in want]
            try:
                close(step(batch(R, i)), want, tolerance)
            except AssertionError as e:
                raise AssertionError(f"{options}, step {i}: {e}") from None


@check
def every_option_gives_the_gradients_of_the_joined_batch():
    for options, tolerance, factor in OPTIONS:
        compare(options, tolerance, factor)


@check
def groups_by_variables():
    for as_a in (list, tuple):
        model = Model()
        groups = [as_a([model.second, model.table]), as_a([model.unused]), as_a([])]
        for step in ways(lambda x, m=model, g=groups: ours(m, x, groups=g)):
            for i in range(2):
                close(step(batch(R, i)), alone(model, joined(i)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        close(ours(Model(), batch(R), num_groups=2), alone(Model(), joined()))
    said = [w for w in caught if "Parameter `num_groups` has been replaced by `groups`" in str(w.message)]
    line = (DeprecationWarning, ours.__code__.co_filename)  # of who called
    assert said and all((w.category, w.filename) == line for w in said), [str(w) for w in said]


@check
def the_error_about_an_unknown_keyword_names_the_nearest():
    words = [
        "DistributedOptimizer() got",
        "'averaged_gradients'; did you mean 'average_aggregated_gradients'?",
    ]
    expect_error(TypeError, words, hvd.DistributedOptimizer, None, averaged_gradients=True)
    for wrap in (hvd.DistributedGradientTape, hvd.PartialDistributedGradientTape):
        words = [f"{wrap.__name__}() got", "'process_sets'; did you mean 'process_set'?"]
        expect_error(TypeError, words, wrap, tf.GradientTape(), process_sets=None)


@check
def gradients_stay_sparse_by_default_and_travel_as_16_bits():
    model = Model()
    for step in ways(lambda x: ours(model, x)):
        assert isinstance(step(batch(R))[0], tf.IndexedSlices)
    if N == 1:
        return  # nothing travels
    for step in ways(lambda x: ours(model, x, sparse_as_dense=True)):
        assert isinstance(step(batch(R))[0], tf.Tensor)
    for g in ours(model, batch(R), compression=hvd.Compression.fp16)[1:3]:
        assert np.array_equal(g.numpy(), g.numpy().astype(np.float16))
    before = implementation._subgraph.cache_info().misses
    compressor = Unhashable()
    for _ in range(3):
        ours(model, batch(R), compression=compressor)
    assert implementation._subgraph.cache_info().misses - before == 1


@check
def groups_of_other_dtypes():
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([3.0], dtype=tf.float64)

    def step():
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(a * (R + 1.0)) + tf.cast(tf.reduce_sum(b * (R + 1.0)), tf.float32)
        return hvd.DistributedGradientTape(tape, groups=1, op=hvd.Sum).gradient(y, [a, b])

    for function in ways(step):
        got = function()
        assert [g.dtype for g in got] == [tf.float32, tf.float64]
        assert all((g.numpy() == ALL).all() for g in got), got


@check
def generic_names_for_graphs_that_differ():
    model, call = Model(), {"use_generic_names": True}

    @tf.function
    def step(x):
        if R == 0:  # nodes that only this rank has: names that TensorFlow counts differ
            for _ in range(3):
                x = x + tf.cast(tf.reduce_sum(tf.gather(model.table, [0]) @ model.first) * 0, x.dtype)
        return ours(model, x, call)

    for i in range(2):
        close(step(batch(R, i)), alone(model, joined(i)))
    for options in ({}, {"groups": 2}):
        close(ours(model, batch(R), call, **options), alone(model, joined()))


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
        assert got == [[ALL] * 2, [10 * ALL] * 2], got


@check
def gradients_that_not_all_ranks_have():
    """Each rank begins with another of two heads; they must not take one for the other. Keras 3 calls both kernels
    "kernel", Keras 2 by numbers that count the layers of a process."""
    if R == 0:
        tf.keras.layers.Dense(1).build((None, 2))
    heads = [tf.keras.layers.Dense(1, use_bias=False) for _ in range(2)]
    for head in heads:
        head.build((None, 2))
    kernels = [head.kernel for head in heads]

    def step(head, x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(heads[head](x))
        return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(y, kernels)[head]

    steps = [tf.function(functools.partial(step, head)) for head in range(2)]
    values = [tf.fill([1, 2], 1.0 + head + 10 * R) for head in range(2)]
    for one, x in zip(steps, values):
        one.get_concrete_function(x)
    with ThreadPoolExecutor(2) as pool:
        got = {i: pool.submit(steps[i], values[i]) for i in ((0, 1) if R % 2 == 0 else (1, 0))}
        for head in range(2):
            want = np.full((2, 1), sum(1.0 + head + 10 * rank for rank in range(N)))
            assert np.array_equal(got[head].result(), want), (head, got[head].result())
    if R != 0:  # checks after this one broadcast variables by names that count layers
        tf.keras.layers.Dense(1).build((None, 2))


@check
def what_a_codec_keeps_does_not_reach_another_variable():
    a, b = (tf.Variable(tf.ones([100]), name="kernel") for _ in range(2))
    uneven = tf.constant(np.linspace(1, 2, 100), tf.float32)

    def step(v, by):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(v * by)
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.topk(k=1))
        return tape.gradient(y, [v])[0]

    def in_function(v, by):
        return tf.function(lambda by: step(v, by))(by)

    for once in (step, in_function):
        for _ in range(3):
            assert np.count_nonzero(once(a, uneven)) == (1 if N > 1 else 100)
            assert not np.any(once(b, tf.zeros([100]))), once
    if N > 1:
        sent = {int(np.argmax(step(a, uneven))) for _ in range(3)}
        assert len(sent) > 1, "what was not sent must come in a later step"


@check
def many_shapes_of_sparse_ones_are_traced_a_few_times():
    table, other, traced = tf.Variable(tf.ones([50, 2])), tf.Variable([1.0]), []

    class Counting(hvd.Compression.none):
        @staticmethod
        def compress(tensor):
            traced.append(tensor)
            return tensor, None

    for rows in range(1, 12):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.gather(table, list(range(rows)))) + other
        tape = hvd.DistributedGradientTape(tape, compression=Counting, op=hvd.Sum)
        got = tape.gradient(y, [table, other])
        assert tf.convert_to_tensor(got[0]).numpy().sum() == 2 * rows * N and float(got[1][0]) == N
    assert len(traced) <= 3, f"{len(traced)} tracings"


@check
def unconnected_gradients_are_none_or_zero():
    model = Model()
    for zero in (tf.UnconnectedGradients.ZERO, "zero"):
        for step in ways(lambda x, z=zero: ours(model, x, {"unconnected_gradients": z})):
            assert step(batch(R))[3].numpy().tolist() == [0, 0, 0]
        tape, loss = model.recorded(batch(R))
        tape = hvd.DistributedGradientTape(tape)
        got = tape.gradient(loss, model.variables, None, zero)  # where TensorFlow has it
        assert got[3].numpy().tolist() == [0, 0, 0]


@check
def sources_may_be_nested_or_one_and_outputs_weighted():
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
    got = tape.gradient(loss, [model.second], tf.constant(3.0, tf.float64))
    close([got[0] / 3], want[2:3])


@check
def a_tape_is_wrapped_before_while_and_after_it_records():
    model = Model()
    want = alone(model, joined())
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = model.loss(batch(R))
    close(tape.gradient(loss, model.variables), want)
    with tf.GradientTape() as plain:
        hidden = model.loss(batch(R))
        tape = hvd.DistributedGradientTape(plain)
        loss = hidden * 1.0
        close(tape.gradient(loss, model.variables), want)  # ends the recording, as TensorFlow's does
    plain, loss = model.recorded(batch(R))
    twice = hvd.DistributedGradientTape(hvd.DistributedGradientTape(plain), op=hvd.Sum)
    close([g * 1.0 / N for g in twice.gradient(loss, [model.first])], want[1:2])


class Mine(tf.GradientTape):
    def __init__(self, word):
        super().__init__()
        self.word = word


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
    want = alone(model, joined())
    for _ in range(2):  # persistent
        close(tape.gradient(loss, model.variables), [None, want[1], None, None])
    close([plain.gradient(loss, model.first)], [alone(model, batch(R))[1]])  # that one stays as it was
    with Mine("here") as mine:
        loss = model.loss(batch(R))
    tape = hvd.DistributedGradientTape(mine)
    assert type(tape).__name__ == "Mine" and tape.word == "here"
    close(tape.gradient(loss, model.variables), want)
    expect_error(RuntimeError, ["non-persistent"], tape.gradient, loss, model.variables)


@check
def tapes_leave_nothing_behind():
    model = Model()
    ours(model, batch(R))
    tape, loss = model.recorded(batch(R))
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
    sources = [model.table, model.second, model.unused]
    for scale in (True, False):
        by = N if scale else 1
        local = tf.IndexedSlices(mine[0].values / by, mine[0].indices, mine[0].dense_shape)
        for step in ways(lambda x, s=scale: ours(model, x, local=sources, scale_local_gradients=s)):
            got = step(batch(R))
            assert isinstance(got[0], tf.IndexedSlices) and got[0].values.shape[0] == BATCH
            close(got, [local, want[1], mine[2] / by, None])
    tape, loss = model.recorded(batch(R))
    tape = hvd.DistributedGradientTape(tape)
    tape.register_local_var(model.second)
    local, others = tape.get_local_and_global_gradients(loss, model.variables)
    assert [v.name for v, _ in local] == ["second:0"] and len(others) == 3
    close([g for _, g in local + others], [mine[2] / N, want[0], want[1], None])


@check
def layers_may_be_local():
    keras, partial = tf.keras, hvd.PartialDistributedGradientTape
    keras.utils.set_random_seed(7)
    first, second = keras.layers.Dense(3, name="a"), keras.layers.Dense(2, name="b")
    x = tf.constant(np.random.default_rng(R).normal(size=(4, 5)), tf.float32)

    def gradients(tape):
        with tape:  # the first time, weights are made now
            loss = tf.reduce_sum(second(first(x)))
        return tape.gradient(loss, first.trainable_weights + second.trainable_weights)

    got, mine = gradients(partial(tf.GradientTape(), local_layers=second)), gradients(tf.GradientTape())
    means = [hvd.allreduce(g) for g in mine]
    close(got, means[:2] + [g / N for g in mine[2:]], 1e-6)
    for layers in ([first, second], (first, second)):
        options = {"local_layers": layers, "scale_local_gradients": False}
        close(gradients(partial(tf.GradientTape(), **options)), mine, 1e-6)
    close(gradients(partial(tf.GradientTape())), means, 1e-6)
    tape = hvd.DistributedGradientTape(tf.GradientTape(), groups=[[first.kernel, second.bias]])
    close(gradients(tape), means, 1e-6)
    words = ["All local layers must be of tf.keras.layers.Layer type."]
    for wrong in ([first, 1], [first.kernel]):
        expect_error(ValueError, words, partial, tf.GradientTape(), local_layers=wrong)


@check
def gradients_of_gradients():
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

    for function in ways(step):
        g, second = function(x)
        assert abs(float(g) - ALL * 12) < 1e-9, float(g)
        # the gradient of a sum is the sum of the gradients, of which each rank has its factor
        assert abs(float(second) - ALL * (R + 1) * 12) < 1e-9, float(second)


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


@check_if(N > 1)
def ranks_that_disagree_get_an_error():
    v = tf.Variable(tf.ones([2 + R]))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v)
    tape = hvd.DistributedGradientTape(tape)
    words = ["tensor shapes", "/grad_0", "(dimension 0 differs)"]
    expect_error(tf.errors.OpError, words, tape.gradient, y, [v])


@check
def sets_exchange_among_themselves():
    model = Model()
    late, mine = hvd.ProcessSet([0]), alone(model, batch(R))
    expect_error(ValueError, ["not been registered"], ours, model, batch(R), process_set=late)
    if N > 1:  # a set of one has nothing to exchange, and rank 1 is in none
        hvd.add_process_set(late)
        close(ours(model, batch(R), process_set=late), mine)
        local = implementation.LocalSources()
        local.add(model.first)
        args = (lambda grads, _: grads, [tf.ones(2)], [model.first], local, True)
        assert implementation.reduce_but_local(*args, late)[0].numpy().tolist() == [1, 1]
        hvd.remove_process_set(late)
    if N < 4:
        return
    evens = hvd.add_process_set([0, 2])
    want = alone(model, joined(ranks=(0, 2))) if R in (0, 2) else mine
    for options in ({}, {"groups": 2}, {"sparse_as_dense": True}):
        for step in ways(lambda x, o=options: ours(model, x, process_set=evens, **o)):
            close(step(batch(R)), want)
    got = ours(model, batch(R), local=[model.second], process_set=evens)
    close(got[2:3], [mine[2] / (2 if evens.included() else 1)])
    assert hvd.remove_process_set(evens)


# --- what a tape has reduced, and an optimizer would reduce again -------------------------------------

again = implementation._make_allreduce_grads_fn(
    "Optimizer", "", "", hvd.Compression.none, False, hvd.Sum, 1.0, None, hvd.global_process_set
)


def warned(function, *args):
    """(result, texts of warnings that say what of reductions)."""
    for say in (implementation._warn_reduced_before, implementation._warn_perhaps_reduced_before):
        say.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args)
    return result, [str(w.message) for w in caught if "not both" in str(w.message)]


def close_to_averages(got, model):
    want = alone(model, joined())[: len(got)]
    close([None if g is None else tf.convert_to_tensor(g) / N for g in got], want)


@check
def what_is_reduced_already_is_left():
    model = Model()
    for step in ways(lambda x: again(ours(model, x, op=hvd.Sum), model.variables)):
        got, said = warned(step, batch(R))
        close_to_averages(got, model)
        assert len(said) == (N > 1), said


@check
def what_was_made_of_reduced_ones_is_left_in_a_graph():
    model = Model()

    def clipped(x):
        grads = ours(model, x, op=hvd.Sum)[:3]
        return tf.clip_by_global_norm([tf.cast(tf.convert_to_tensor(g), tf.float64) for g in grads], 1e9)[0]

    @tf.function
    def straight(x):
        return again(clipped(x), model.variables[:3])

    @tf.function
    def in_a_branch(x):
        grads = clipped(x)
        return tf.cond(tf.size(x) > 0, lambda: again(grads, model.variables[:3]), lambda: grads)

    for step in (straight, in_a_branch):
        got, said = warned(step, batch(R))
        close_to_averages(got, model)
        assert len(said) == (N > 1) and all("used as they are" in s for s in said), said


@check
def doubtful_gradients_warn_once():
    model = Model()
    for is_named in (False, True):
        grads = [tf.convert_to_tensor(g) * 1.0 for g in ours(model, batch(R))[:3]]
        got, said = warned(again, grads, model.variables[:3] if is_named else None)
        close_to_averages(got, model)
        assert len(said) == (is_named and N > 1) and all("DistributedGradientTape has" in s for s in said)
    _, said = warned(again, alone(model, batch(R))[:3], model.variables[:3])
    assert not said, "the tape was before the last step"


@check
def what_a_loss_makes_of_reduced_ones_is_reduced():
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], dtype=tf.float64)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(x @ w)
        fast = w - hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(y, w)
        with tf.GradientTape() as tape:
            tape.watch(fast)
            z = tf.reduce_sum((x @ fast) ** 2)
        return again([tape.gradient(z, fast)], [w])[0]

    fast = w.numpy() - 3 * ALL
    want = sum(2 * np.full([2, 3], r + 1.0) @ (np.full([3, 2], r + 1.0) @ fast) for r in range(N))
    got = step(tf.fill([3, 2], tf.cast(R + 1, tf.float64))).numpy()
    assert np.allclose(got, want), (got, want)


main(R)
