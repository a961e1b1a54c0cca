# SPDX-License-Identifier: Apache-2.0
"""For checks of hvd.DistributedGradientTape: a model, its batches, and its gradients with and without hvd."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")
hvd.init()
R, N = hvd.rank(), hvd.size()
BATCH = 6


class Model:
    """An embedding, two dense layers and a variable that nothing depends on; float64."""

    def __init__(self, seed=3):
        g = np.random.default_rng(seed)
        self.table = tf.Variable(g.normal(size=(10, 4)), name="table")
        self.first = tf.Variable(g.normal(size=(4, 5)), name="first")
        self.second = tf.Variable(g.normal(size=(5, 2)), name="second")
        self.unused = tf.Variable(g.normal(size=(3,)), name="unused")
        self.variables = [self.table, self.first, self.second, self.unused]

    def loss(self, x):
        hidden = tf.tanh(tf.gather(self.table, x) @ self.first)
        return tf.reduce_mean((hidden @ self.second) ** 2)


def batch(rank, step=0):
    return tf.constant(np.random.default_rng(100 * step + rank).integers(0, 10, BATCH))


def joined(step=0, ranks=None):
    return tf.concat([batch(r, step) for r in (range(N) if ranks is None else ranks)], 0)


def alone(model, x):
    """What one process gets for x."""
    with tf.GradientTape() as tape:
        loss = model.loss(x)
    return tape.gradient(loss, model.variables)


def ours(model, x, method="gradient", call=None, **options):
    with tf.GradientTape() as tape:
        loss = model.loss(x)
    tape = hvd.DistributedGradientTape(tape, **options)
    return getattr(tape, method)(loss, model.variables, **(call or {}))


def close(got, want, tolerance=1e-12):
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
    return {"eager": function, "graph": tf.function(function)}
