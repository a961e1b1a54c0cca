# SPDX-License-Identifier: Apache-2.0
"""backward_passes_per_step: gradients are added up on each rank and exchanged once for n passes."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _hvd.tensorflow.gradients import _make_allreduce_grads_fn
from checks import check, expect_error, main
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

tf.get_logger().setLevel("ERROR")
hvd.init()
R, N = hvd.rank(), hvd.size()
V1 = tf.compat.v1
PASSES = 3


def reduction(name, op=hvd.Average, process_set=hvd.global_process_set):
    reduce = _make_allreduce_grads_fn(name, "", "", hvd.Compression.none, False, op, 1.0, None, process_set)
    calls = []

    def counted(grads, variables):
        calls.append([g is not None for g in grads])
        return reduce(grads, variables)

    return counted, calls


def gradient(shape, rank, step):
    return (np.arange(np.prod(shape)) + rank + 100.0 * step).reshape(shape)


def mean(shape, steps):
    return sum(gradient(shape, r, s) for r in range(N) for s in steps) / N


def eager(average=False, sparse_as_dense=False, **options):
    reduce, calls = reduction("Eager", **options)
    return LocalGradientAggregationHelperEager(PASSES, reduce, sparse_as_dense, average), calls


@check
def eager_passes_are_added_up_and_exchanged_once():
    shapes = (2, 2), (3,)
    for average in (False, True):
        for wrap in (lambda f: f, tf.function):
            helper, calls = eager(average)
            variables = [tf.Variable(tf.zeros([2, 2])), tf.Variable(0.0), tf.Variable(tf.zeros([3]))]
            applied = tf.Variable(0)

            @wrap
            def one_pass(a, c, helper=helper, variables=variables, applied=applied):
                got = helper.compute_gradients([a, None, c], variables)
                helper.apply_gradients(lambda: applied.assign_add(1), None, list(zip(got, variables)))
                return got[0], got[2], got[1] is None

            for step in range(2 * PASSES):
                *got, none = one_pass(*[tf.constant(gradient(s, R, step), tf.float32) for s in shapes])
                assert none and int(applied) == (step + 1) // PASSES, (step, int(applied))
                assert int(helper.counter) == (step + 1) % PASSES
                so_far = range(step - step % PASSES, step + 1)
                for one, shape in zip(got, shapes):
                    if len(so_far) == PASSES:
                        want = mean(shape, so_far) / (PASSES if average else 1)
                    else:
                        want = sum(gradient(shape, R, s) for s in so_far)
                    assert np.allclose(one.numpy(), want, rtol=1e-6), (step, one, want)
            # places are names: all ranks have them
            assert all(given == [True, False, True] for given in calls)


@check
def eager_gradients_may_come_late():
    helper, _ = eager()
    v, w = tf.Variable([1.0, 2.0]), tf.Variable([3.0])
    for step in range(PASSES):
        late = tf.constant([7.0]) if step == 2 else None
        got = helper.compute_gradients([tf.ones([2]), late], [v, w])
    assert got[0].numpy().tolist() == [3, 3] and got[1].numpy().tolist() == [7]
    for _ in range(PASSES):
        got = helper.compute_gradients([tf.ones([2]), tf.ones([1])], [v, w])
    assert got[1].numpy().tolist() == [3], "the sum was not cleared"


@check
def what_was_added_up_is_not_lost():
    helper, _ = eager()
    v, w = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    one, two = tf.constant([1.0, 1.0]), tf.constant([2.0, 2.0])

    def values(grads, variables):
        return [g.numpy().tolist() for g in helper.compute_gradients(grads, variables)]

    for second in (two, two, None):  # w had some before
        got = values([one, second], [v, w])
    assert got == [[3, 3], [4, 4]], got
    for variables in ([v, w], [w, v], [v, w]):  # by variable, not by place
        got = values([one if x is v else two for x in variables], variables)
    assert got == [[3, 3], [6, 6]], got
    helper.compute_gradients([one], [v])
    words = [f"backward_passes_per_step={PASSES}: pass 2", "of other variables (1)", "use two optimizers"]
    expect_error(ValueError, words, helper.compute_gradients, [one], [w])


@check
def eager_local_variables_keep_theirs():
    for scale in (True, False):
        reduce, calls = reduction("Local")
        helper = LocalGradientAggregationHelperEager(
            PASSES, reduce, False, False, scale_local_gradients=scale
        )
        v, w = tf.Variable([0.0]), tf.Variable([0.0])
        helper.register_local_var(w)
        for _ in range(PASSES):
            got = helper.compute_gradients([tf.constant([R + 1.0])] * 2, [v, w])
        assert np.allclose(got[0].numpy(), PASSES * (N + 1) / 2)
        assert np.allclose(got[1].numpy(), PASSES * (R + 1) / (N if scale else 1))
        assert calls == [[True]]


@check
def skipped_passes_are_iterations_too():
    class Optimizer:
        iterations = tf.Variable(0, dtype=tf.int64)

    helper, _ = eager()
    v = tf.Variable([0.0])
    for _ in range(PASSES):
        got = helper.compute_gradients([tf.ones([1])], [v])
        helper.apply_gradients(lambda: tf.no_op(), Optimizer(), [(got[0], v)])
    assert int(Optimizer.iterations) == PASSES - 1  # the last one counts in its own apply_gradients()


def slices():
    return tf.IndexedSlices(tf.constant([[R + 1.0, 1.0]]), tf.constant([R % 3]), tf.constant([3, 2]))


def summed_slices():
    want = np.zeros((3, 2))
    for r in range(N):
        want[r % 3] += PASSES * np.array([r + 1, 1])
    return want


REFUSED = ["IndexedSlices", "`backward_passes_per_step` > 1", "`sparse_as_dense` is False"]


@check
def slices_are_refused_or_made_dense():
    helper, _ = eager()
    v = tf.Variable(tf.zeros([3, 2]))
    expect_error(ValueError, REFUSED, helper.compute_gradients, [slices()], [v])
    helper, _ = eager(sparse_as_dense=True, op=hvd.Sum)
    for _ in range(PASSES):
        (got,) = helper.compute_gradients([slices()], [v])
    assert np.allclose(got.numpy(), summed_slices())


def graph_helper(passes=PASSES, sparse_as_dense=False, name="", **options):
    reduce, calls = reduction("Graph", **options)
    kind = LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY
    made = LocalGradientAggregationHelper(passes, reduce, sparse_as_dense, False, R, kind, name=name)
    return made, calls


@check
def passes_must_be_a_positive_number():
    words = ["backward_passes_per_step must be > 0"]
    for n in (0, -1):
        expect_error(ValueError, words, LocalGradientAggregationHelperEager, n, None, False, False)
        expect_error(ValueError, words, graph_helper, n)


@check
def graph_slices_and_local_variables():
    with tf.Graph().as_default(), V1.Session() as session:
        v = V1.get_variable("v", (3, 2))
        helper, _ = graph_helper()
        expect_error(ValueError, REFUSED, helper.compute_gradients, [slices()], [v])
        helper, calls = graph_helper(sparse_as_dense=True, op=hvd.Sum, name="other")
        local = V1.get_variable("local", (1,))
        helper.register_local_var(local)
        grads = helper.compute_gradients([slices(), tf.constant([R + 1.0])], [v, local])
        session.run([V1.global_variables_initializer(), V1.local_variables_initializer()])
        for _ in range(PASSES):
            got = session.run(grads)
        assert np.allclose(got[0], summed_slices()) and calls == [[True]]
        assert np.allclose(got[1], PASSES * (R + 1) / N)


main(R)
