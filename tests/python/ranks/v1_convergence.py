# SPDX-License-Identifier: Apache-2.0
"""n ranks learn real digits in TensorFlow 1's way as one rank does: graph, session, broadcast, optimizer.

Each rank draws weights of its own and takes rank 0's; each has its share of a global batch that is the
same for every n. Rank 0 also trains alone, with TensorFlow only, on the joined batches. Rounding is
amplified by the steps that follow, so accuracies are compared, within 4 of 360 held-out images; between
the ranks of one job weights are equal bit by bit.
"""

import functools
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf
from _hvd import objects
from checks import check, main
from sklearn.datasets import load_digits

tf.disable_v2_behavior()
hvd.init()
R, N = hvd.rank(), hvd.size()
BATCH, EPOCHS = 48, 6
DIGITS = load_digits()
IMAGES = DIGITS.images.reshape(-1, 64).astype(np.float32) / 16
HELD_OUT = np.arange(len(IMAGES)) % 5 == 0
OPTIMIZERS = {
    "momentum": lambda: tf.train.MomentumOptimizer(0.05, 0.9),
    "adam": lambda: tf.train.AdamOptimizer(0.002),
}


def batches():
    """The joined batches, as indices: equal on all ranks."""
    draw = np.random.RandomState(5)
    learnt = np.flatnonzero(~HELD_OUT)
    for _ in range(EPOCHS):
        order = draw.permutation(learnt)
        yield from order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)


def layer(x, outputs, name):
    with tf.variable_scope(name):
        w = tf.get_variable("w", [int(x.shape[-1]), outputs], initializer=tf.glorot_uniform_initializer())
        return tf.matmul(x, w) + tf.get_variable("b", [outputs], initializer=tf.zeros_initializer())


def train(name, together, start=None, **options):
    """(images right of those held out, weights), by all ranks together or by this one alone from `start`."""
    with tf.Graph().as_default():
        tf.set_random_seed(R + 1)
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        logits = layer(tf.nn.relu(layer(x, 64, "hidden")), 10, "out")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        right = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.int32))
        weights = tf.trainable_variables()
        optimizer = OPTIMIZERS[name]()
        if together:
            optimizer = hvd.DistributedOptimizer(optimizer, **options)
        step = optimizer.minimize(loss)
        into = [tf.placeholder(tf.float32, w.shape) for w in weights]
        put = [w.assign(value) for w, value in zip(weights, into)]
        everybody = hvd.broadcast_global_variables(0)
        one_thread = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
        with tf.Session(config=one_thread) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            if together:
                session.run(everybody)
            elif start:
                session.run(put, dict(zip(into, start)))
            first = session.run(weights)
            for batch in batches():
                mine = batch[R::N] if together else batch
                for part in np.split(mine, options.get("backward_passes_per_step", 1)):
                    session.run(step, {x: IMAGES[part], y: DIGITS.target[part]})
            score = session.run(right, {x: IMAGES[HELD_OUT], y: DIGITS.target[HELD_OUT]})
            return int(score), session.run(weights), first


@functools.lru_cache(maxsize=None)
def trained(name):
    return train(name, together=True)


def same_weights(weights):
    hashes = objects.allgather_object(b"".join(w.tobytes() for w in weights))
    return all(h == hashes[0] for h in hashes)


@check
def n_ranks_reach_the_accuracy_of_one():
    for name in OPTIMIZERS:
        together, _, start = trained(name)
        assert same_weights(start), f"{name}: ranks started differently"
        alone = objects.broadcast_object(train(name, False, start)[0] if R == 0 else None)
        assert together >= 0.9 * HELD_OUT.sum(), f"{name}: {together} of {HELD_OUT.sum()} right"
        assert abs(together - alone) <= 4, f"{name}: {together} right, one rank alone: {alone}"


@check
def weights_are_equal_bit_by_bit():
    for name in OPTIMIZERS:
        assert same_weights(trained(name)[1]), f"{name}: ranks hold different weights"


@check
def two_passes_for_one_exchange_learn_as_much():
    right, weights, _ = train(
        "momentum", True, backward_passes_per_step=2, average_aggregated_gradients=True
    )
    assert same_weights(weights) and abs(right - trained("momentum")[0]) <= 4, right


@check
def adasum_learns_too():
    right, weights, _ = train("momentum", True, op=hvd.Adasum)
    assert same_weights(weights), "ranks hold different weights"
    assert right >= 0.88 * HELD_OUT.sum(), f"{right} of {HELD_OUT.sum()} right"


@check
def without_exchange_weights_would_differ():
    _, weights, _ = train("momentum", together=False)
    assert same_weights(weights) == (N == 1)


main(R)
