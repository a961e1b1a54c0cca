# SPDX-License-Identifier: Apache-2.0
"""v1_sessions.py [session|v1]: MonitoredTrainingSession with hvd's hooks.

As v1_optimizer.py, whose two ways these are.
"""

import logging
import os
import sys

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
HERE = os.path.join(os.environ["CHECKS_DIR"], f"sessions-{MODE}")


everywhere = objects.allgather_object


def linear():
    """(train operation, w, loss, global step): each rank its own data, from a tf.data iterator."""
    draw = np.random.RandomState(R)
    x = draw.normal(size=(64, 3)).astype(np.float32)
    y = (x @ [1.0, 2.0, 3.0]).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8)
    x, y = v1.data.make_one_shot_iterator(dataset).get_next()
    w = v1.get_variable("w", [3], initializer=v1.random_normal_initializer(seed=R + 1))
    loss = tf.reduce_mean((tf.linalg.matvec(x, w) - y) ** 2)
    step = v1.train.get_or_create_global_step()
    optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.05))
    return optimizer.minimize(loss, global_step=step, var_list=[w]), w, loss, step


def without_hooks(session, fetches):
    """What a monitored session holds; hooks do not count it as a run."""
    return session.run_step_fn(lambda step_context: step_context.session.run(fetches))


def logged(function):
    """What function said through TensorFlow's logger."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger = tf.get_logger()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        function()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return said


@check
def the_hook_gives_all_ranks_the_roots_variables():
    for root, device in ((0, ""), (N - 1, "/cpu:0")):
        hook = hvd.BroadcastGlobalVariablesHook(root, device)
        assert isinstance(hook, v1.train.SessionRunHook)
        assert (hook.root_rank, hook.bcast_op, hook.device) == (root, None, device)
        assert hvd.BroadcastGlobalVariablesHook(root).device == ""
        with tf.Graph().as_default():
            w = v1.get_variable("w", [3], initializer=v1.random_normal_initializer(seed=R + 7))
            other = v1.get_variable("n", [], tf.int64, initializer=v1.constant_initializer(R))
            hook.begin()
            made = hook.bcast_op
            hook.begin()
            assert hook.bcast_op is made, "one broadcast for a graph is enough"
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                before = everywhere(session.run(w).tolist())
                hook.after_create_session(session, None)
                assert session.run(w).tolist() == before[root] and session.run(other) == root
                assert N == 1 or before[0] != before[1]
        with tf.Graph().as_default():
            v1.get_variable("v", [1])
            hook.begin()
            assert hook.bcast_op is not made and hook.bcast_op.graph is v1.get_default_graph()


@check
def a_monitored_session_trains_and_rank_0_alone_writes_checkpoints():
    kept = None
    for last in (40, 160):
        with tf.Graph().as_default():
            train, w, loss, step = linear()
            averages = hvd.MetricAverageHook({"loss": loss}, every_n=10)
            stop = v1.train.StopAtStepHook(last_step=last)
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=HERE if R == 0 else None,
                hooks=[hvd.BroadcastGlobalVariablesHook(0), stop, averages],
                save_checkpoint_steps=40,
                log_step_count_steps=1000,
            ) as session:
                first, at = without_hooks(session, [w, step])
                assert int(at) == (40 if last == 160 else 0), at
                if kept is not None:
                    assert np.array_equal(first, kept), "it did not continue from rank 0's checkpoint"
                same = everywhere(first.tolist())
                assert all(s == same[0] for s in same), "ranks started with different weights"
                runs = 0
                while not session.should_stop():
                    session.run(train)
                    runs += 1
                assert runs == last - int(at)
            kept = everywhere(v1.train.load_variable(HERE, "w") if R == 0 else None)[0]
            same = everywhere(averages.averages)
            assert set(same[0]) == {"loss"} and all(s == same[0] for s in same), same
    assert np.allclose(kept, [1, 2, 3], atol=0.5), kept
    if R == 0:
        files = sorted(os.listdir(HERE))
        assert "checkpoint" in files and "model.ckpt-160.index" in files, files


@check
def rank_0_may_run_more_than_the_other_ranks():
    """Summaries with conditions of their own, which TensorFlow numbers together with ours."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        if R == 0:
            odd = tf.equal(step % 2, 1)
            for i in range(3):
                v1.summary.scalar(f"odd{i}", tf.cond(odd, lambda: 2.0 * w, lambda: -1.0 * w))
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2
        )
        train = optimizer.minimize((R + 1.0) * w, global_step=step, var_list=[w])
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=os.path.join(HERE, "more") if R == 0 else None,
            hooks=[hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=8)],
            save_summaries_steps=3,
            log_step_count_steps=1000,
        ) as session:
            while not session.should_stop():
                session.run(train)
                last = without_hooks(session, w) if not session.should_stop() else None
                assert last is None or last == int(last)
        if R == 0:
            assert v1.train.load_variable(os.path.join(HERE, "more"), "w") == -4 * (N + 1)


@check
def means_of_metrics_are_those_of_all_ranks():
    mean = (N - 1) / 2
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [], name="x")
        own = v1.get_variable("own", [], initializer=v1.constant_initializer(R))
        table = {"x": x, "twice": 2 * x, "whole": tf.constant(R + 1), "own": own}
        hook = hvd.MetricAverageHook(table, every_n=3)
        by_list = hvd.MetricAverageHook([x, 3 * x], every_n=1)
        by_name = hvd.MetricAverageHook(["x"], every_n=2)

        def run():
            with v1.train.MonitoredSession(hooks=[hook, by_list, by_name]) as session:
                for i in range(7):
                    session.run([], {x: R + 10.0 * i})
                    at = 10 * ((i + 1) // 3 * 3 - 1) + mean
                    want = {"x": at, "twice": 2 * at, "whole": mean + 1, "own": mean}
                    assert hook.averages == (want if i >= 2 else {}), (i, hook.averages, want)
                    want = {"x": 10 * i + mean, "mul_1": 3 * (10 * i + mean)}
                    assert by_list.averages == want, (i, by_list.averages)
                    want = {"x": 10 * ((i + 1) // 2 * 2 - 1) + mean}
                    assert by_name.averages == (want if i >= 1 else {}), (i, by_name.averages)
            want = {"x": 60 + mean, "twice": 120 + 2 * mean, "whole": mean + 1, "own": mean}
            assert hook.averages == want, f"at the end {hook.averages}"
            assert by_name.averages == {"x": 60 + mean}, f"at the end {by_name.averages}"

        said = [text for text in logged(run) if text.startswith("means over") and "twice" in text]
        want = [
            f"means over {N} ranks after {runs} runs: "
            f"x = {x + mean:g}, twice = {2 * (x + mean):g}, whole = {mean + 1:g}, own = {mean:g}"
            for runs, x in ((3, 20), (6, 50), (7, 60))
        ]
        assert said == (want if R == 0 else []), (said, want)


@check
def a_hook_takes_no_batch_for_itself():
    with tf.Graph().as_default():
        batch = v1.data.make_one_shot_iterator(tf.data.Dataset.range(6)).get_next()
        step = v1.train.get_or_create_global_step()
        train = tf.group(v1.assign_add(step, 1), batch)
        hook = hvd.MetricAverageHook({"batch": batch}, every_n=100)
        seen = []
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            while len(seen) < 5:
                session.run(step)
                seen.append(int(session.run([train, batch])[1]))
                session.run({"step": step})
        assert seen == [0, 1, 2, 3, 4], seen
        assert hook.averages == {"batch": 4.0}, hook.averages


@check
def a_hook_may_go_from_one_graph_to_the_next_and_have_a_process_set():
    last = hvd.add_process_set([N - 1]) if N > 1 else hvd.global_process_set
    hook, of_set = hvd.MetricAverageHook(["metric"], 2), hvd.MetricAverageHook(["metric"], 1, last)
    for value in (1.0, 5.0):
        with tf.Graph().as_default():
            tf.constant(value + R, name="metric")
            with v1.train.MonitoredSession(hooks=[hook, of_set]) as session:
                for _ in range(3):
                    session.run([])
        assert hook.averages == {"metric": value + (N - 1) / 2}
        assert of_set.averages == ({"metric": value + R} if R == N - 1 else {})
    if N > 1:
        hvd.remove_process_set(last)


@check
def metrics_that_cannot_be_are_refused():
    hook = hvd.MetricAverageHook
    for metrics in (None, {}, [], 3.0, "loss"):
        expect_error(ValueError, ["metrics is", "a dict or a list of scalar tensors"], hook, metrics)
    for every_n in (0, -1, 2.0, True, None):
        expect_error(ValueError, ["every_n", "positive number of runs"], hook, ["loss"], every_n=every_n)
    with tf.Graph().as_default():
        x = tf.constant(1.0, name="x")
        for metrics, kind, words in (
            ({"vector": tf.zeros([3])}, ValueError, ["metric vector has shape (3,)", "must be a scalar"]),
            ({"text": tf.constant("a")}, ValueError, ["metric text is of string", "must be a number"]),
            ([x, "x"], ValueError, ["metrics has x twice"]),
            (["nowhere"], KeyError, ["nowhere"]),
        ):
            expect_error(kind, words, hook(metrics).begin)


@check
def a_hook_needs_a_graph():
    if tf.executing_eagerly():
        words = ["does not support eager execution"]
        expect_error(RuntimeError, words, hvd.BroadcastGlobalVariablesHook(0).begin)


main(R)
