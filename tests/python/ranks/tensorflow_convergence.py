# SPDX-License-Identifier: Apache-2.0
"""n ranks learn what one learns, with the tape: a small CNN on real digits, the same global batch for every n.

Rank 0 also trains alone, on joined batches in the same order, with TensorFlow only; that is what the
others are compared with. What is compared, and how closely: as in convergence.py.
"""

import functools
import itertools

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from checks import check, main
from sklearn.datasets import load_digits

tf.get_logger().setLevel("ERROR")
hvd.init()
R, N = hvd.rank(), hvd.size()
BATCH, RATE, MOMENTUM = 48, 0.05, 0.9
WAYS = {
    "plain": {},
    "groups": {"groups": 2},
    "fp16": {"compression": hvd.Compression.fp16},
    "predivide": {"gradient_predivide_factor": 2.0},
}


def load():
    """(images, labels) to learn, and those held out."""
    digits = load_digits()
    images = (np.asarray(digits.images, np.float32) / 16)[..., None]
    labels = np.asarray(digits.target, np.int64)
    held_out = np.arange(len(labels)) % 5 == 0
    parts = (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])
    return [tuple(tf.constant(x) for x in part) for part in parts]


(IMAGES, LABELS), (HELD_OUT, HELD_OUT_LABELS) = load()


class Net:
    """Two convolutions and two dense layers, with their momenta: the same start everywhere."""

    def __init__(self, start=None):
        shapes = ((3, 3, 1, 16), (16,), (3, 3, 16, 32), (32,), (512, 64), (64,), (64, 10), (10,))
        made = np.random.default_rng(3)
        scales = [np.sqrt(2 / max(np.prod(shape[:-1]), 1)) * (len(shape) > 1) for shape in shapes]
        values = [made.normal(size=shape) * scale for shape, scale in zip(shapes, scales)]
        if start is not None:
            values = [v.numpy() for v in start.weights]
        self.weights = [tf.Variable(v, dtype=tf.float32) for v in values]
        self.momenta = [tf.Variable(tf.zeros_like(w)) for w in self.weights]

    def logits(self, x):
        c1, b1, c2, b2, d1, b3, d2, b4 = self.weights
        x = tf.nn.relu(tf.nn.conv2d(x, c1, 1, "SAME") + b1)
        x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, c2, 1, "SAME") + b2), 2, 2, "VALID")
        return tf.nn.relu(tf.reshape(x, [-1, 512]) @ d1 + b3) @ d2 + b4

    def gradients(self, batch, way=None):
        """Of this rank's tape, or of all ranks' in one of WAYS."""
        with tf.GradientTape() as tape:
            images, labels = tf.gather(IMAGES, batch), tf.gather(LABELS, batch)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.logits(images))
            loss = tf.reduce_mean(losses)
        if way is not None:
            tape = hvd.DistributedGradientTape(tape, **WAYS[way])
        return tape.gradient(loss, self.weights)

    def step(self, batch, way):
        for w, m, g in zip(self.weights, self.momenta, self.gradients(batch, way)):
            m.assign(MOMENTUM * m + g)
            w.assign_sub(RATE * m)

    def right(self):
        return int(tf.reduce_sum(tf.cast(tf.argmax(self.logits(HELD_OUT), 1) == HELD_OUT_LABELS, tf.int32)))


def batches(epochs):
    """The joined batches of every epoch, as indices: equal on all ranks."""
    order = np.random.default_rng(5)
    for _ in range(epochs):
        yield from order.permutation(len(IMAGES))[: len(IMAGES) // BATCH * BATCH].reshape(-1, BATCH)


def train(way, epochs, wrap=tf.function, steps=None):
    """The model after training (steps: at most so many), by all ranks in one of WAYS or (None) by this one alone."""
    net = Net()
    step = wrap(lambda batch: net.step(batch, way))
    for batch in itertools.islice(batches(epochs), steps):
        step(tf.constant(batch[R::N] if way else batch))
    return net


def same_weights(net):
    every = hvd.allgather_object([w.numpy().tobytes() for w in net.weights])
    return all(one == every[0] for one in every)


@functools.lru_cache(maxsize=None)
def trained():
    return train("plain", epochs=6)


def gradients_agree(way, tolerance):
    """Ranks' gradients of their shares are those of the joined batch, at the start and when trained."""
    batch = next(iter(batches(1)))
    for start in (None, trained()):
        for wrap in (lambda f: f, tf.function):
            net = Net(start)
            ours = wrap(lambda b, net=net: net.gradients(b, way))(tf.constant(batch[R::N]))
            for i, (g, q) in enumerate(zip(ours, net.gradients(tf.constant(batch)))):
                largest = np.abs(q.numpy()).max()
                assert largest > 1e-6, f"gradient {i} is zero, which proves nothing"
                gap = np.abs(g.numpy() - q.numpy()).max() / largest
                assert gap <= tolerance, f"gradient {i}: {gap:.2e} of the largest element apart"
                if way == "fp16" and N > 1:
                    rounded = g.numpy().astype(np.float16).astype(np.float32)
                    assert np.array_equal(g.numpy(), rounded), f"gradient {i} has not travelled as 16 bits"


@check
def n_ranks_reach_the_accuracy_of_one():
    alone = hvd.broadcast_object(train(None, epochs=6).right() if R == 0 else None, root_rank=0)
    together = trained().right()
    assert together >= 0.97 * len(HELD_OUT), f"{together} of {len(HELD_OUT)} right"
    assert abs(together - alone) <= 4, f"{together} of {len(HELD_OUT)} right, one rank alone: {alone}"
    assert same_weights(trained()), "ranks hold different weights"


@check
def gradients_are_those_of_the_joined_batch():
    gradients_agree("plain", 1e-5)


@check
def gradients_in_groups_are_too():
    gradients_agree("groups", 1e-5)


@check
def gradients_of_16_bits_nearly():
    gradients_agree("fp16", 2e-3)


@check
def gradients_divided_before_and_after():
    gradients_agree("predivide", 1e-5)


@check
def weights_are_equal_bit_by_bit_in_every_way():
    for way in WAYS:
        assert same_weights(train(way, 1, steps=10)), f"{way}: ranks hold different weights"
    assert same_weights(train("plain", 1, lambda f: f, 5)), "eagerly ranks hold different weights"


@check
def without_exchange_they_would_not_be():
    net = Net()
    step = tf.function(lambda batch: net.step(batch, None))
    for batch in batches(1):
        step(tf.constant(batch[R::N]))
    assert same_weights(net) == (N == 1)


main(R)
