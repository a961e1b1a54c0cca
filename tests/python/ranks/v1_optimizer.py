# SPDX-License-Identifier: Apache-2.0
"""v1_optimizer.py [session|v1]: hvd.DistributedOptimizer around the optimizers of tf.compat.v1.train.

session: graphs and sessions in TensorFlow 2 as it is; v1: after disable_v2_behavior(), as scripts for
TensorFlow 1 run, with reference variables and the old control flow.

The model is linear, its data are small integers and float64, so that sums of gradients are exact: what
ranks learn together must be what one learns from the joined batch, to the last bit for plain descent.
"""

import os
import sys
import warnings

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd import objects
from checks import check, expect_error, main

v1 = tf.compat.v1
MODE = sys.argv[1]
if MODE == "v1":
    v1.disable_v2_behavior()
hvd.init()
R, N = hvd.rank(), hvd.size()
WIDTH, BATCH, STEPS = 3, 4, 4
START = [1.0, -2.0, 3.0]
RATE = 2.0**-5
OPTIMIZERS = {
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(RATE),
    "Momentum": lambda: v1.train.MomentumOptimizer(RATE, 0.5, use_nesterov=True),
    "Adagrad": lambda: v1.train.AdagradOptimizer(RATE),
    "Adam": lambda: v1.train.AdamOptimizer(RATE),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(RATE, momentum=0.5),
}
sgd = OPTIMIZERS["GradientDescent"]


def batch(step, rank):
    """(x, y) of one rank in a step."""
    draw = np.random.RandomState(100 * step + rank)
    return draw.randint(-3, 4, (BATCH, WIDTH)).astype(float), draw.randint(-3, 4, (BATCH,)).astype(float)


def joined(*parts):
    return tuple(np.concatenate(each) for each in zip(*parts))


def of_all_ranks(step):
    return joined(*[batch(step, rank) for rank in range(N)])


class Model:
    """y = x w + b on placeholders, in a scope of its own; session() runs it."""

    def __init__(self, name):
        with v1.variable_scope(name):
            self.x = v1.placeholder(tf.float64, [None, WIDTH])
            self.y = v1.placeholder(tf.float64, [None])
            start = v1.constant_initializer(START)
            self.w = v1.get_variable("w", [WIDTH, 1], tf.float64, initializer=start)
            self.b = v1.get_variable("b", [], tf.float64, initializer=v1.zeros_initializer())
        error = tf.squeeze(self.x @ self.w, 1) + self.b - self.y
        self.loss = tf.reduce_mean(error * error)
        self.variables = [self.w, self.b]

    def feed(self, data):
        return {self.x: data[0], self.y: data[1]}


def start():
    """A session whose variables are initialised, local ones too."""
    session = v1.Session()
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    return session


def same_on_all_ranks(values):
    everywhere = objects.allgather_object([np.asarray(v).tolist() for v in values])
    assert all(one == everywhere[0] for one in everywhere), everywhere


def close(got, want):
    return np.allclose(got, want, rtol=1e-12, atol=1e-12)


def wrapped(make=sgd, **options):
    return lambda model: hvd.DistributedOptimizer(make(), **options).minimize(
        model.loss, var_list=model.variables
    )


def plain(make=sgd, factor=1):
    return lambda model: make().minimize(factor * model.loss, var_list=model.variables)


plain_sgd = plain()


def train(what, ours, alone=plain_sgd, compare=np.array_equal, steps=STEPS, feeds=None):
    """Runs (model) -> train operation of ours on shares, and that of alone on joined batches, side by side;
    the variables must be equal after each step. feeds(step) -> (ours, alone)."""
    feeds = feeds or (lambda step: (batch(step, R), of_all_ranks(step)))
    with tf.Graph().as_default():
        models = Model("ours"), Model("alone")
        operations = ours(models[0]), alone(models[1])
        with start() as session:
            for step in range(steps):
                data = feeds(step)
                session.run(operations, {**models[0].feed(data[0]), **models[1].feed(data[1])})
                for got, want in zip(*session.run([model.variables for model in models])):
                    assert compare(got, want), f"{what}, step {step}: {got.ravel()}, alone {want.ravel()}"
            assert not np.array_equal(session.run(models[0].w).ravel(), START), (
                f"{what}: nothing was learnt"
            )


@check
def every_optimizer_learns_what_one_learns_from_the_joined_batch():
    for name, make in OPTIMIZERS.items():
        exact = name in ("GradientDescent", "Momentum")
        train(name, wrapped(make), plain(make), np.array_equal if exact else close)


@check
def every_option_learns_so_too():
    for options in ({"groups": 1}, {"groups": 2}, {"gradient_predivide_factor": 2.0}):
        train(options, wrapped(**options))
    train("all variables in a group", lambda m: wrapped(groups=[[m.w, m.b]])(m))
    train("one variable in a group", lambda m: wrapped(groups=[[m.b]])(m))
    train("sum", wrapped(op=hvd.Sum), plain(factor=N))
    in_16_bits = wrapped(compression=hvd.Compression.fp16)
    train("fp16", in_16_bits, compare=lambda a, b: np.allclose(a, b, 1e-2), steps=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train("num_groups", wrapped(num_groups=2))
    assert any("num_groups" in str(w.message) for w in seen), seen


def clipped(make):
    def build(model):
        optimizer = make()
        grads, variables = zip(*optimizer.compute_gradients(model.loss, var_list=model.variables))
        grads, _ = tf.clip_by_global_norm(grads, 0.5)
        return optimizer.apply_gradients(zip(grads, variables))

    return build


def by_hand(computes_before=False, **options):
    """Gradients that the optimizer has not computed."""

    def build(model):
        optimizer = hvd.DistributedOptimizer(sgd(), **options)
        if computes_before:  # only looked at
            optimizer.compute_gradients(tf.reduce_sum(model.w * model.w), [model.w])
            optimizer.compute_gradients(model.loss, model.variables)
        return optimizer.apply_gradients(zip(tf.gradients(model.loss, model.variables), model.variables))

    return build


def changed(model):
    """Sums that are made averages by way of another type, in a branch."""
    optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
    grads, variables = zip(*optimizer.compute_gradients(model.loss, model.variables))
    norm = tf.linalg.global_norm(grads)
    grads, _ = tf.clip_by_global_norm([tf.cast(g, tf.float32) for g in grads], 1e9)
    grads = [tf.where(tf.math.is_nan(g), tf.zeros_like(g), g) for g in grads]
    pairs = [(tf.cast(g, tf.float64) / N, v) for g, v in zip(grads, variables)]
    if MODE == "v1":  # whose optimizers cannot be used in a branch
        return optimizer.apply_gradients(pairs)
    return tf.cond(norm > 0, lambda: tf.group(optimizer.apply_gradients(pairs)), tf.no_op)


@check
def gradients_are_reduced_once_however_they_are_computed_and_changed():
    train("clipped", clipped(lambda: hvd.DistributedOptimizer(sgd())), clipped(sgd), close)
    train("by hand", by_hand())
    train("by hand, summed", by_hand(op=hvd.Sum), plain(factor=N))
    train("by hand, after others were computed", by_hand(computes_before=True))
    train("changed", changed, compare=lambda a, b: np.allclose(a, b, 1e-5))


@check
def slots_names_and_variables_are_the_wrapped_ones():
    with tf.Graph().as_default():
        model, adam = Model("m"), OPTIMIZERS["Adam"]()
        optimizer = hvd.DistributedOptimizer(adam)
        step = v1.train.get_or_create_global_step()
        operation = optimizer.minimize(model.loss, global_step=step, var_list=model.variables, name="go")
        assert isinstance(optimizer, v1.train.Optimizer)
        assert optimizer.get_name() == "DistributedAdamOptimizer"
        assert hvd.DistributedOptimizer(adam, name="mine").get_name() == "mine"
        assert optimizer.get_slot_names() == ["m", "v"]
        slot = optimizer.get_slot(model.w, "m")
        assert slot is adam.get_slot(model.w, "m") and slot.op.name == "m/w/Adam", slot
        assert optimizer.get_slot(model.w, "none") is None
        names = [v.op.name for v in optimizer.variables()]
        assert names == [v.op.name for v in adam.variables()] and len(names) == 6, names
        assert operation.name == "go" and v1.get_collection(v1.GraphKeys.TRAIN_OP) == [operation]
        with start() as session:
            for i in range(2):
                session.run(operation, model.feed(batch(i, R)))
            assert session.run(step) == 2


def embedding(name, rows):
    """A loss whose gradient is tf.IndexedSlices, of a table's rows."""
    with v1.variable_scope(name):
        table = v1.get_variable("table", [5, 2], tf.float64, initializer=v1.ones_initializer())
    looked_up = tf.gather(table, rows)
    return table, tf.reduce_sum(looked_up * looked_up)


@check
def sums_that_may_be_summed_twice_are_refused():
    with tf.Graph().as_default():
        model = Model("m")
        optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
        pairs = optimizer.compute_gradients(model.loss, model.variables)
        kept = [v1.get_variable(f"kept{i}", v.shape, v.dtype) for i, v in enumerate(model.variables)]
        [k.assign_add(g) for k, (g, _) in zip(kept, pairs)]
        pairs = [(k + 0.0, v) for k, (_, v) in zip(kept, pairs)]
        if N == 1:
            optimizer.apply_gradients(pairs)
            return
        words = ["compute_gradients() has summed gradients of m/w", "op=hvd.Average"]
        expect_error(ValueError, words, optimizer.apply_gradients, pairs)
        optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2)
        pairs = optimizer.compute_gradients(model.loss, model.variables)
        pairs[1] = (tf.gradients(model.loss, model.b)[0], model.b)
        words = ["that of m/b", "all come from compute_gradients(), or none"]
        expect_error(ValueError, words, optimizer.apply_gradients, pairs)


@check
def sparse_gradients_are_gathered_or_made_dense():
    rows = [[rank % 5, 2, 2] for rank in range(N)]
    for options in ({}, {"sparse_as_dense": True}):
        with tf.Graph().as_default():
            table, loss = embedding("ours", rows[R])
            other, total = embedding("alone", sum(rows, []))
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["Adagrad"](), **options)
            grads = optimizer.compute_gradients(loss, var_list=[table])
            if N > 1:  # alone, gradients stay as they are
                assert isinstance(grads[0][0], tf.IndexedSlices) != bool(options)
            alone = OPTIMIZERS["Adagrad"]().minimize(total / N, var_list=[other])
            updates = [optimizer.apply_gradients(grads), alone]
            with start() as session:
                for _ in range(2):
                    session.run(updates)
                got, want = session.run([table, other])
                assert np.allclose(got, want, rtol=1e-12), (options, got, want)
                assert np.all(got[2] < 1), got


@check
def passes_add_up_before_one_exchange():
    momentum = OPTIMIZERS["Momentum"]
    for average in (False, True):
        with tf.Graph().as_default():
            model, alone = Model("ours"), Model("alone")
            step = v1.train.get_or_create_global_step()
            options = {"backward_passes_per_step": 2, "average_aggregated_gradients": average}
            optimizer = hvd.DistributedOptimizer(momentum(), **options)
            update = optimizer.minimize(model.loss, global_step=step, var_list=model.variables)
            other = plain(momentum, 1.0 if average else 2.0)(alone)
            with start() as session:
                for i in range(6):
                    before = session.run(model.w)
                    session.run(update, model.feed(batch(i, R)))
                    moved = not np.array_equal(before, session.run(model.w))
                    assert moved == (i % 2 == 1), f"run {i}: moved is {moved}"
                    if i % 2:
                        session.run(other, alone.feed(joined(of_all_ranks(i - 1), of_all_ranks(i))))
                        got, want = session.run([model.w, alone.w])
                        assert close(got, want), (i, got.ravel(), want.ravel())
                assert session.run(step) == 6


@check
def a_variable_without_gradient_stays_as_it_is():
    for options in ({}, {"backward_passes_per_step": 2}, {"groups": 2}, {"op": hvd.Adasum}):
        with tf.Graph().as_default():
            model = Model("m")
            unused = v1.get_variable("unused", [2], tf.float64, initializer=v1.ones_initializer())
            order = [unused, model.w, model.b]
            optimizer = hvd.DistributedOptimizer(sgd(), **options)
            grads = optimizer.compute_gradients(model.loss, var_list=order)
            assert grads[0][0] is None and [v is w for (_, v), w in zip(grads, order)] == [True] * 3
            update = optimizer.apply_gradients(grads)
            with start() as session:
                for i in range(2):
                    session.run(update, model.feed(batch(i, R)))
                assert np.array_equal(session.run(unused), [1, 1])
                assert not np.array_equal(session.run(model.w).ravel(), START)


@check
def ranks_outside_a_process_set_keep_their_own():
    for ranks in ([0], [0, N - 1])[: N - 1]:
        some = hvd.add_process_set(ranks)
        whose = ranks if some.included() else [R]

        def feeds(step, whose=whose):
            return batch(step, R), joined(*[batch(step, rank) for rank in whose])

        train(ranks, wrapped(process_set=some), feeds=feeds)
        hvd.remove_process_set(some)


@check
def local_variables_gradients_stay_local():
    for scale in (True, False):
        for passes in (1, 2):
            with tf.Graph().as_default():
                model = Model("m")
                optimizer = hvd.DistributedOptimizer(
                    sgd(), scale_local_gradients=scale, backward_passes_per_step=passes
                )
                optimizer.register_local_var(model.b)
                own = tf.gradients(model.loss, model.variables)
                update = optimizer.minimize(model.loss, var_list=model.variables)
                with start() as session:
                    total = 0.0
                    for i in range(passes):
                        total += session.run(own[1], model.feed(batch(i, R)))
                        session.run(update, model.feed(batch(i, R)))
                    want = -RATE * total / (N if scale else 1)
                    assert close(session.run(model.b), want), (scale, passes, session.run(model.b), want)
                    same_on_all_ranks([session.run(model.w)])


def adasum_of(values):
    """Of neighbours, then of what they give."""
    while len(values) > 1:
        pairs, values = list(zip(values[::2], values[1::2])), []
        for a, b in pairs:
            dot = np.sum(a * b)
            parts = [1 - dot / (2 * np.sum(v * v)) if np.any(v) else 1 for v in (a, b)]
            values.append(parts[0] * a + parts[1] * b)
    return values[0]


def gradients_of(weights, data):
    """Those of a Model's loss, by numpy."""
    x, y = data
    error = 2 / len(y) * (x @ weights[0].ravel() + weights[1] - y)
    return [(x.T @ error)[:, None], error.sum()]


@check
def adasum_combines_what_steps_have_changed():
    for make, momentum in ((sgd, 0.0), (OPTIMIZERS["Momentum"], 0.5)):
        for passes in (1, 2):
            with tf.Graph().as_default():
                model, step = Model("m"), v1.train.get_or_create_global_step()
                optimizer = hvd.DistributedOptimizer(make(), op=hvd.Adasum, backward_passes_per_step=passes)
                update = optimizer.minimize(model.loss, global_step=step, var_list=model.variables)
                assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [update]
                with start() as session:
                    base = session.run(model.variables)
                    alone, velocities = [list(base) for _ in range(N)], [[0.0, 0.0] for _ in range(N)]
                    for i in range(4):
                        session.run(update, model.feed(batch(i, R)))
                        for r, weights in enumerate(alone):
                            for k, g in enumerate(gradients_of(weights, batch(i, r))):
                                velocities[r][k] = momentum * velocities[r][k] + g
                                weights[k] = weights[k] - RATE * (g + momentum * velocities[r][k])
                        if i % passes == passes - 1:
                            base = [b + adasum_of([w[k] - b for w in alone]) for k, b in enumerate(base)]
                            alone = [list(base) for _ in range(N)]
                        for got, want in zip(session.run(model.variables), alone[R]):
                            assert np.allclose(got, want, rtol=1e-9), (passes, i, got, want)
                    assert session.run(step) == 4
                    slots = optimizer.get_slot_names()
                    assert "delta_start" in slots and set(make().get_slot_names()) <= set(slots)
                    start_of = session.run(optimizer.get_slot(model.w, "delta_start"))
                    assert start_of.shape == (WIDTH, 1)
                    assert any("step_count" in v.name for v in optimizer.variables())


@check
def adasum_takes_sparse_gradients():
    with tf.Graph().as_default():
        table, loss = embedding("m", [R % 5, 2])
        update = hvd.DistributedOptimizer(sgd(), op=hvd.Adasum).minimize(loss, var_list=[table])
        with start() as session:
            session.run(update)
            got = session.run(table)
            same_on_all_ranks([got])
            assert not np.array_equal(got, np.ones([5, 2]))


@check
def two_optimizers_train_in_one_run():
    for options in ({}, {"backward_passes_per_step": 2}, {"op": hvd.Adasum}):
        with tf.Graph().as_default():
            models = [Model("generator"), Model("discriminator")]
            updates = [wrapped(**options)(m) for m in models]
            with start() as session:
                for i in range(4):
                    data = batch(i, R), batch(i + 10, R)
                    session.run(updates, {**models[0].feed(data[0]), **models[1].feed(data[1])})
                values = session.run([m.w for m in models])
                same_on_all_ranks(values)
                assert not np.array_equal(*values)


@check
def what_a_saver_writes_is_what_the_wrapped_optimizer_would():
    path = os.path.join(os.environ["CHECKS_DIR"], f"{MODE}-{tf.__version__}", "model")
    for resume in (False, True):
        with tf.Graph().as_default():
            model = Model("m")
            optimizer = OPTIMIZERS["Adam"]()
            if not resume:
                optimizer = hvd.DistributedOptimizer(optimizer)
            update = optimizer.minimize(model.loss, var_list=model.variables)
            saver = v1.train.Saver()
            synchronize = hvd.broadcast_global_variables(0)
            with start() as session:
                if not resume:
                    for i in range(2):
                        session.run(update, model.feed(batch(i, R)))
                    kept = session.run(model.variables + optimizer.variables())
                    if R == 0:
                        saver.save(session, path)
                    continue
                if R == 0:  # the file is rank 0's alone
                    saver.restore(session, path)
                else:
                    assert not np.array_equal(session.run(model.w), kept[0])
                session.run(synchronize)
                for got, want in zip(session.run(model.variables + optimizer.variables()), kept):
                    assert np.array_equal(got, want)


@check
def arguments_that_cannot_be_are_refused():
    def wrong(words, optimizer=None, kind=ValueError, **options):
        expect_error(kind, [words], hvd.DistributedOptimizer, optimizer or sgd(), **options)

    words = "gradient_predivide_factor not supported with op != Average"
    wrong(words, gradient_predivide_factor=2.0, op=hvd.Sum)
    words = "Adasum does not support average_aggregated_gradients == True"
    wrong(words, op=hvd.Adasum, average_aggregated_gradients=True)
    words = "groups should be a non-negative integer or a list of list of tf.Variable"
    for groups in (-1, 0, "w"):
        wrong(words, kind=(ValueError, TypeError), groups=groups)
    for op in (hvd.Average, hvd.Adasum):
        wrong("wrap it once", hvd.DistributedOptimizer(sgd(), op=op))
    if N > 1:
        one = hvd.add_process_set([0])
        words = "Adasum does not support process sets yet"
        wrong(words, kind=NotImplementedError, op=hvd.Adasum, process_set=one)
        hvd.remove_process_set(one)
    with tf.Graph().as_default():
        words = ["No variables provided"]
        expect_error(ValueError, words, hvd.DistributedOptimizer(sgd()).apply_gradients, [])
        words, pairs = ["No gradients provided for any variable"], [(None, Model("m").w)]
        for op in (hvd.Average, hvd.Adasum):
            expect_error(ValueError, words, hvd.DistributedOptimizer(sgd(), op=op).apply_gradients, pairs)


main(R)
