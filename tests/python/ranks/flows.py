# SPDX-License-Identifier: Apache-2.0
"""flows.py LAUNCHER: each way in which TensorFlow's scripts train, in one process after another.

Each flow must end at the weights of numpy's SGD on the joined batches, which a sum or a second average would
miss, on every rank, with a loss that has fallen. Rank 0 writes a checkpoint; each rank works in a folder of its
own, and those of the other ranks stay empty. Under perseusrun the modules are those of perseus.
"""

import importlib
import os
import sys

import numpy as np
import tensorflow as tf
from checks import check, check_if, main

PACKAGE = "perseus.tensorflow.horovod" if sys.argv[1] == "perseusrun" else "horovod.tensorflow"
hvd = importlib.import_module(PACKAGE)
of_keras = importlib.import_module(PACKAGE + ".keras")

hvd.init()
R, N = hvd.rank(), hvd.size()
v1, keras = tf.compat.v1, tf.keras
IS_3 = hasattr(keras, "ops")
tf.get_logger().setLevel("ERROR")
ROWS, STEPS, RATE = 8, 16, 0.1
FOLDER = os.path.join(os.environ["CHECKS_DIR"], f"flows{R}")
WRITES = R == 0


def data(rank):
    x = np.random.default_rng(rank).normal(size=(ROWS * STEPS, 3)).astype(np.float32)
    return x, (x @ [[1.0], [2.0], [3.0]] + 0.1 * rank).astype(np.float32)


X, Y = data(R)
START = np.full((3, 1), 0.5 + R, np.float32)  # of each rank its own; rank 0's count


def batches():
    return zip(np.split(X, STEPS), np.split(Y, STEPS))


def alone(starts=(0.5,) * N):
    """The weights of one process that trains on the joined batches, from rank 0's start.

    starts: of each rank, where it computes its first gradient.
    """
    each = [[np.split(part, STEPS) for part in data(rank)] for rank in range(N)]
    w = np.full((3, 1), starts[0])
    for step in range(STEPS):
        x, y = (np.concatenate([parts[step] for parts in of]) for of in zip(*each))
        predicted = x @ w if step else x.sum(axis=1, keepdims=True) * np.repeat(starts, ROWS)[:, None]
        w = w - RATE * 2 / len(x) * x.T @ (predicted - y)
    return w


def expect_trained(losses, weights, want=None):
    want = np.ravel(alone() if want is None else want)
    every = np.asarray(hvd.allgather_object(np.ravel(weights).tolist()))
    assert all(np.array_equal(one, every[0]) for one in every), f"ranks differ: {every}"
    assert np.allclose(every[0], want, rtol=1e-4, atol=1e-5), (every[0], want)
    assert len(losses) == STEPS and losses[-1] < 0.2 * losses[0], losses
    files = sorted(name for _, _, names in os.walk(FOLDER) for name in names)
    assert bool(files) == WRITES, f"rank {R} wrote {files}"


def flow(function):
    """A check of a function that trains in an empty folder and returns the arguments of expect_trained()."""

    def run():
        folder = os.path.join(FOLDER, function.__name__)
        os.makedirs(folder)
        before = os.getcwd()
        os.chdir(folder)
        try:
            result = function()
        finally:
            os.chdir(before)
        expect_trained(*result)

    run.__name__ = function.__name__
    return run


def graph_of(x, y):
    """(training operation, loss, weights) of TensorFlow 1's graphs."""
    w = v1.get_variable("w", initializer=START)
    loss = tf.reduce_mean((tf.matmul(x, w) - y) ** 2)
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE))
    return optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step()), loss, w


def fed():
    x, y = (v1.placeholder(tf.float32, [ROWS, n]) for n in (3, 1))
    train, loss, w = graph_of(x, y)

    def run(session):
        return [session.run([loss, train], {x: a, y: b})[0] for a, b in batches()], session.run(w)

    return run, w, (x, y), (train, loss)


@check
@flow
def a_session():
    with tf.Graph().as_default():
        run, *_ = fed()
        begin = hvd.broadcast_global_variables(0)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(begin)
            result = run(session)
            if WRITES:
                v1.train.Saver().save(session, "./model")
    return result


@check
@flow
def a_monitored_session():
    losses = []
    with tf.Graph().as_default():
        _, w, (x, y), (train, loss) = fed()
        with tf.control_dependencies([train]):
            after = w.read_value()
        hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=STEPS)]
        folder = "." if WRITES else None
        with v1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            for a, b in batches():
                value, _, weights = session.run([loss, train, after], {x: a, y: b})
                losses.append(value)
    if WRITES:
        assert np.array_equal(v1.train.load_variable(".", "w"), weights), "not in the checkpoint"
    return losses, weights


@check_if(hasattr(tf, "estimator"))
@flow
def an_estimator():
    losses = []

    class Losses(v1.train.SessionRunHook):
        def before_run(self, context):
            return v1.train.SessionRunArgs(v1.losses.get_losses()[0])

        def after_run(self, context, values):
            losses.append(values.results)

    def model(features, labels, mode):
        train, loss, _ = graph_of(features, labels)
        v1.losses.add_loss(loss)
        return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=train)

    def rows():
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(ROWS, drop_remainder=True)

    made = tf.estimator.Estimator(model, model_dir="." if WRITES else None)
    made.train(rows, hooks=[hvd.BroadcastGlobalVariablesHook(0), Losses()])
    return losses, made.get_variable_value("w")


@check
@flow
def a_tape():
    w = tf.Variable(START)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w - y) ** 2)
        w.assign_sub(RATE * hvd.DistributedGradientTape(tape).gradient(loss, [w])[0])
        return loss

    hvd.broadcast_variables([w], 0)
    losses = [float(step(x, y)) for x, y in batches()]
    if WRITES:
        tf.train.Checkpoint(w=w).save("./model")
    return losses, w.numpy()


def fitted(optimizers):
    model = keras.Sequential([keras.layers.InputLayer((3,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([START])
    model.compile(of_keras.DistributedOptimizer(optimizers.SGD(RATE)), "mse")
    losses = []

    class Losses(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.reset_metrics()  # else the loss is a mean since the epoch's begin

        def on_train_batch_end(self, batch, logs=None):
            losses.append(logs["loss"])

    callbacks = [of_keras.callbacks.BroadcastGlobalVariablesCallback(0), Losses()]
    if WRITES:
        callbacks.append(keras.callbacks.ModelCheckpoint("model.keras" if IS_3 else "model.h5"))
    model.fit(X, Y, batch_size=ROWS, shuffle=False, verbose=0, callbacks=callbacks)
    # the callback broadcasts after the first step, as Horovod's does
    return losses, model.get_weights()[0], alone([0.5 + rank for rank in range(N)])


@check
@flow
def keras_fit():
    return fitted(keras.optimizers)


@check_if(not IS_3)  # Keras 3 has no sessions
@flow
def keras_in_a_session_of_the_scripts():
    with tf.Graph().as_default(), v1.Session() as session:
        v1.keras.backend.set_session(session)
        return fitted(keras.optimizers.legacy)


main(R)
