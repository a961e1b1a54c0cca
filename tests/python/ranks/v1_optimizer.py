# SPDX-License-Identifier: Apache-2.0
"""v1_optimizer.py [session|v1]: hvd.DistributedOptimizer around the optimizers of tf.compat.v1.train.

session: graphs and sessions in TensorFlow 2 as it is; v1: after disable_v2_behavior(), as scripts for
TensorFlow 1 run, with reference variables and the old control flow.

The model is linear, its data are small integers and float64, so that sums of gradients are exact: what
ranks learn together must be what one learns from the joined batch, to the last bit for plain descent.
"""

import functools
import os
import sys
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, expect_error, main

v1 = tf.compat.v1
MODE = sys.argv[1]
if MODE == "v1":
    v1.disable_v2_behavior()
hvd.init()
R, N = hvd.rank(), hvd.size()
WIDTH, BATCH, STEPS = 3, 4, 4
RATE = 2.0**-5
OPTIMIZERS = {
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(RATE),
    "Momentum": lambda: v1.train.MomentumOptimizer(RATE, 0.5, use_nesterov=True),
    "Adagrad": lambda: v1.train.AdagradOptimizer(RATE),
    "Adam": lambda: v1.train.AdamOptimizer(RATE),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(RATE, momentum=0.5),
}


def sgd():
    return OPTIMIZERS["GradientDescent"]()


def batch(step, rank):
    """(x, y) of one rank in a step."""
    draw = np.random.RandomState(100 * step + rank)
    return draw.randint(-3, 4, (BATCH, WIDTH)).astype(float), draw.randint(-3, 4, (BATCH,)).astype(float)


def joined(step, ranks=N):
    parts = [batch(step, rank) for rank in range(ranks)]
    return tuple(np.concatenate([part[i] for part in parts]) for i in (0, 1))


class Model:
    """y = x w + b on placeholders, in a scope of its own; session() runs it."""

    def __init__(self, name):
        with v1.variable_scope(name):
            self.x = v1.placeholder(tf.float64, [None, WIDTH])
            self.y = v1.placeholder(tf.float64, [None])
            self.w = v1.get_variable(
                "w", [WIDTH, 1], tf.float64, initializer=v1.constant_initializer([1.0, -2.0, 3.0])
            )
            self.b = v1.get_variable("b", [], tf.float64, initializer=v1.zeros_initializer())
        error = tf.squeeze(self.x @ self.w, 1) + self.b - self.y
        self.loss = tf.reduce_mean(error * error)
        self.variables = [self.w, self.b]

    def feed(self, data):
        return {self.x: data[0], self.y: data[1]}


def start(**config):
    """A session whose variables are initialised, local ones too."""
    session = v1.Session(config=v1.ConfigProto(**config))
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    return session


def train(build_ours, build_alone, steps=STEPS, feeds=None, compare=np.array_equal):
    """Runs (model) -> train operation of ours on shares, and that of alone on joined batches, side by side;
    the variables must be equal after each step. feeds(step) -> (ours, alone)."""
    feeds = feeds or (lambda step: (batch(step, R), joined(step)))
    with tf.Graph().as_default():
        ours, alone = Model("ours"), Model("alone")
        operations = build_ours(ours), build_alone(alone)
        with start() as session:
            for step in range(steps):
                data = feeds(step)
                session.run(operations, {**ours.feed(data[0]), **alone.feed(data[1])})
                a, b = session.run([ours.variables, alone.variables])
                for got, want in zip(a, b):
                    assert compare(got, want), f"step {step}: {got.ravel()}, alone {want.ravel()}"
            assert not np.array_equal(session.run(ours.w).ravel(), [1, -2, 3]), "nothing was learnt"


def close(got, want):
    return np.allclose(got, want, rtol=1e-12, atol=1e-12)


def wrapped(make=sgd, **options):
    return lambda model: hvd.DistributedOptimizer(make(), **options).minimize(
        model.loss, var_list=model.variables
    )


def plain(make=sgd):
    return lambda model: make().minimize(model.loss, var_list=model.variables)


@check
def every_optimizer_learns_what_one_learns_from_the_joined_batch():
    for name, make in OPTIMIZERS.items():
        exact = name in ("GradientDescent", "Momentum")
        train(wrapped(make), plain(make), compare=np.array_equal if exact else close)


@check
def gradients_are_clipped_after_they_are_averaged():
    def clipped(optimizer, model):
        grads, variables = zip(*optimizer.compute_gradients(model.loss, var_list=model.variables))
        grads, _ = tf.clip_by_global_norm(grads, 0.5)
        return optimizer.apply_gradients(zip(grads, variables))

    train(lambda m: clipped(hvd.DistributedOptimizer(sgd()), m), lambda m: clipped(sgd(), m), compare=close)


@check
def gradients_computed_elsewhere_are_averaged_once_too():
    def by_hand(optimizer):
        def build(model):
            grads = tf.gradients(model.loss, model.variables)
            return optimizer.apply_gradients(zip(grads, model.variables))

        return build

    train(by_hand(hvd.DistributedOptimizer(sgd())), plain())
    for op, factor in ((hvd.Average, 1), (hvd.Sum, N)):
        optimizer = hvd.DistributedOptimizer(sgd(), op=op)
        with tf.Graph().as_default():
            model = Model("m")
            update = optimizer.apply_gradients([(tf.ones([WIDTH, 1], tf.float64), model.w)])
            with start() as session:
                session.run(update)
                assert np.array_equal(session.run(model.w).ravel(), np.array([1, -2, 3]) - factor * RATE)


@check
def slots_names_and_variables_are_the_wrapped_ones():
    with tf.Graph().as_default():
        model, adam = Model("m"), OPTIMIZERS["Adam"]()
        optimizer = hvd.DistributedOptimizer(adam)
        step = v1.train.get_or_create_global_step()
        operation = optimizer.minimize(model.loss, global_step=step, var_list=model.variables, name="go")
        assert (
            isinstance(optimizer, v1.train.Optimizer) and optimizer.get_name() == "DistributedAdamOptimizer"
        )
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
def gradients_by_hand_are_reduced_whatever_was_computed_before():
    def by_hand(model):
        optimizer = hvd.DistributedOptimizer(sgd())
        regular = tf.reduce_sum(model.w * model.w)
        optimizer.compute_gradients(regular, [model.w])  # only looked at
        optimizer.compute_gradients(model.loss, model.variables)
        return optimizer.apply_gradients(zip(tf.gradients(model.loss, model.variables), model.variables))

    train(by_hand, plain())


@check
def computed_and_changed_gradients_are_not_reduced_again():
    def changed(model):
        optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
        grads, variables = zip(*optimizer.compute_gradients(model.loss, model.variables))
        norm = tf.linalg.global_norm(grads)
        grads, _ = tf.clip_by_global_norm([tf.cast(g, tf.float32) for g in grads], 1e9)
        grads = [tf.where(tf.math.is_nan(g), tf.zeros_like(g), g) for g in grads]
        pairs = [(tf.cast(g, tf.float64) / N, v) for g, v in zip(grads, variables)]
        if MODE == "v1":  # whose optimizers cannot be used in a branch
            return optimizer.apply_gradients(pairs)
        return tf.cond(norm > 0, lambda: tf.group(optimizer.apply_gradients(pairs)), tf.no_op)

    train(changed, plain(), compare=lambda a, b: np.allclose(a, b, 1e-5))


@check
def sums_that_may_be_summed_twice_are_refused():
    with tf.Graph().as_default():
        model = Model("m")
        optimizer = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
        pairs = optimizer.compute_gradients(model.loss, model.variables)
        kept = [v1.get_variable(f"kept{i}", v.shape, v.dtype) for i, v in enumerate(model.variables)]
        [k.assign_add(g) for k, (g, _) in zip(kept, pairs)]
        give = functools.partial(
            optimizer.apply_gradients, [(k + 0.0, v) for k, (_, v) in zip(kept, pairs)]
        )
        if N == 1:
            give()
        else:
            words = ["compute_gradients() has summed gradients of m/w", "op=hvd.Average"]
            expect_error(ValueError, words, give)
        optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2)
        pairs = optimizer.compute_gradients(model.loss, model.variables)
        pairs[1] = (tf.gradients(model.loss, model.b)[0], model.b)
        if N > 1:
            words = ["that of m/b", "all come from compute_gradients(), or none"]
            expect_error(ValueError, words, optimizer.apply_gradients, pairs)


@check
def sparse_gradients_are_gathered_or_made_dense():
    rows = {rank: [rank % 5, 2, 2] for rank in range(N)}
    for options in ({}, {"sparse_as_dense": True}):
        for make in (sgd, OPTIMIZERS["Adagrad"]):
            with tf.Graph().as_default():
                table, loss = embedding("ours", rows[R])
                other, total = embedding("alone", sum(rows.values(), []))
                optimizer = hvd.DistributedOptimizer(make(), **options)
                grads = optimizer.compute_gradients(loss, var_list=[table])
                if N > 1:  # alone, gradients stay as they are
                    assert isinstance(grads[0][0], tf.IndexedSlices) != bool(options)
                updates = [
                    optimizer.apply_gradients(grads),
                    make().minimize(total / N, var_list=[other]),
                ]
                with start() as session:
                    for _ in range(2):
                        session.run(updates)
                    got, want = session.run([table, other])
                    assert np.allclose(got, want, rtol=1e-12), (options, got, want)
                    assert np.all(got[2] < 1) and not np.array_equal(got, np.ones([5, 2]))


@check
def passes_add_up_before_one_exchange():
    for average in (False, True):
        with tf.Graph().as_default():
            model, alone = Model("ours"), Model("alone")
            step = v1.train.get_or_create_global_step()
            optimizer = hvd.DistributedOptimizer(
                OPTIMIZERS["Momentum"](),
                backward_passes_per_step=2,
                average_aggregated_gradients=average,
            )
            update = optimizer.minimize(model.loss, global_step=step, var_list=model.variables)
            weight = 1.0 if average else 2.0
            other = OPTIMIZERS["Momentum"]().minimize(weight * alone.loss, var_list=alone.variables)
            with start() as session:
                for i in range(6):
                    before = session.run(model.w)
                    session.run(update, model.feed(batch(i, R)))
                    moved = not np.array_equal(before, session.run(model.w))
                    assert moved == (i % 2 == 1), f"run {i}: moved is {moved}"
                    if i % 2:
                        data = [np.concatenate(both) for both in zip(joined(i - 1), joined(i))]
                        session.run(other, alone.feed(data))
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
                assert not np.array_equal(session.run(model.w).ravel(), [1, -2, 3])


@check
def groups_predivision_and_16_bits():
    train(wrapped(groups=1), plain())
    train(wrapped(groups=2), plain())
    train(lambda m: wrapped(groups=[[m.w, m.b]])(m), plain())
    train(lambda m: wrapped(groups=[[m.b]])(m), plain())
    train(wrapped(gradient_predivide_factor=2.0), plain())
    train(
        wrapped(compression=hvd.Compression.fp16), plain(), 1, compare=lambda a, b: np.allclose(a, b, 1e-2)
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(wrapped(num_groups=2), plain())
    assert any("num_groups" in str(w.message) for w in seen), seen


@check
def sums_are_as_many_times_the_average():
    scaled = lambda m: sgd().minimize(N * m.loss, var_list=m.variables)  # noqa: E731
    train(wrapped(op=hvd.Sum), scaled)


@check
def ranks_outside_a_process_set_keep_their_own():
    if N == 1:
        return  # no rank is outside
    first = hvd.add_process_set([0])
    train(wrapped(process_set=first), plain(), feeds=lambda step: (batch(step, R), batch(step, R)))
    hvd.remove_process_set(first)
    if N > 2:
        pair = hvd.add_process_set([0, N - 1])

        def feeds(step):
            parts = batch(step, 0), batch(step, N - 1)
            both = tuple(np.concatenate(xy) for xy in zip(*parts))
            return batch(step, R), both if pair.included() else batch(step, R)

        train(wrapped(process_set=pair), plain(), feeds=feeds)
        hvd.remove_process_set(pair)


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
                    everywhere = hvd_objects(session.run(model.w).tolist())
                    assert all(w == everywhere[0] for w in everywhere)


def hvd_objects(value):
    """Every rank's value."""
    from _hvd import objects

    return objects.allgather_object(value)


def adasum(a, b):
    dot, aa, bb = np.sum(a * b), np.sum(a * a), np.sum(b * b)
    return (1 - dot / (2 * aa)) * a + (1 - dot / (2 * bb)) * b


def adasum_of(values):
    while len(values) > 1:
        values = [adasum(a, b) for a, b in zip(values[::2], values[1::2])]
    return values[0]


@check
def adasum_combines_what_steps_have_changed():
    for make in (sgd, OPTIMIZERS["Momentum"]):
        for passes in (1, 2):
            with tf.Graph().as_default():
                model, alone = Model("m"), [Model(f"alone{r}") for r in range(N)]
                step = v1.train.get_or_create_global_step()
                optimizer = hvd.DistributedOptimizer(make(), op=hvd.Adasum, backward_passes_per_step=passes)
                update = optimizer.minimize(model.loss, global_step=step, var_list=model.variables)
                assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [update]
                others = [make().minimize(m.loss, var_list=m.variables) for m in alone]
                feed = v1.placeholder(tf.float64)
                puts = [m.w.assign(tf.reshape(feed, [WIDTH, 1])) for m in alone]
                puts_b = [m.b.assign(tf.reshape(feed, [])) for m in alone]
                with start() as session:
                    w = session.run(model.variables)
                    for i in range(4):
                        session.run(update, model.feed(batch(i, R)))
                        for m, other, r in zip(alone, others, range(N)):
                            session.run(other, m.feed(batch(i, r)))
                        if i % passes == passes - 1:
                            now = [session.run(m.variables) for m in alone]
                            w = [
                                base + adasum_of([variables[k] - base for variables in now])
                                for k, base in enumerate(w)
                            ]
                            for put, put_b in zip(puts, puts_b):
                                session.run(put, {feed: w[0]})
                                session.run(put_b, {feed: w[1]})
                        mine = session.run([model.variables, alone[R].variables])
                        for got, want in zip(*mine):
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
            tables = hvd_objects(session.run(table).tolist())
            assert all(t == tables[0] for t in tables) and tables[0] != np.ones([5, 2]).tolist()


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
                values = hvd_objects([v.tolist() for v in session.run([m.w for m in models])])
                assert all(v == values[0] for v in values) and values[0][0] != values[0][1]


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
                elif R == 0:
                    saver.restore(session, path)
                if resume:  # the file is rank 0's alone
                    if R > 0:
                        assert not np.array_equal(session.run(model.w), kept[0])
                    session.run(synchronize)
                    for got, want in zip(session.run(model.variables + optimizer.variables()), kept):
                        assert np.array_equal(got, want)


@check
def arguments_that_cannot_be_are_refused():
    make = hvd.DistributedOptimizer
    words = ["gradient_predivide_factor not supported with op != Average"]
    expect_error(ValueError, words, make, sgd(), gradient_predivide_factor=2.0, op=hvd.Sum)
    words = ["Adasum does not support average_aggregated_gradients == True"]
    expect_error(ValueError, words, make, sgd(), op=hvd.Adasum, average_aggregated_gradients=True)
    words = ["groups should be a non-negative integer or a list of list of tf.Variable"]
    for groups in (-1, 0, "w"):
        expect_error((ValueError, TypeError), words, make, sgd(), groups=groups)
    expect_error(ValueError, ["wrap it once"], make, make(sgd()))
    expect_error(ValueError, ["wrap it once"], make, make(sgd(), op=hvd.Adasum))
    if N > 1:
        one = hvd.add_process_set([0])
        words = ["Adasum does not support process sets yet"]
        expect_error(NotImplementedError, words, make, sgd(), op=hvd.Adasum, process_set=one)
        hvd.remove_process_set(one)
    with tf.Graph().as_default():
        expect_error(ValueError, ["No variables provided"], make(sgd()).apply_gradients, [])
        model = Model("m")
        words = ["No gradients provided for any variable"]
        for op in (hvd.Average, hvd.Adasum):
            expect_error(ValueError, words, make(sgd(), op=op).apply_gradients, [(None, model.w)])


main(R)
