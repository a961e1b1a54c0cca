# SPDX-License-Identifier: Apache-2.0
"""convergence.py torch|tape|v1|keras: n ranks learn real digits as one rank does, whatever n is.

The model has one hidden layer and no dropout, so that the ranks' shares of a batch compute what the joined batch
does. Each rank draws weights of its own and takes those of rank 0. Rank 0 also trains alone, on the joined
batches and without hvd, from the same weights; the job's accuracy is compared with that.

Tolerances: rounding is amplified by the steps that follow, so accuracies are compared and not weights, within 4 of
the 360 held-out images. Between the ranks of one job there is no tolerance. One step's gradients are compared by
optimizer.py, tensorflow_tape.py, v1_optimizer.py and keras_train.py.
"""

import sys

import numpy as np
from _hvd import objects
from checks import check, main
from sklearn.datasets import load_digits

FRAMEWORK = sys.argv[1]
BATCH, EPOCHS = 48, 6  # of all ranks together: 1, 2, 3 and 4 divide it
RATE, MOMENTUM = 0.05, 0.9
DIGITS = load_digits()
IMAGES = DIGITS.images.reshape(-1, 64).astype(np.float32) / 16
LABELS = DIGITS.target.astype(np.int64)
HELD_OUT = np.arange(len(IMAGES)) % 5 == 0
SHAPES = [(64, 64), (64,), (64, 10), (10,)]


# Each framework: train(together, batches, start). together: by hvd. start: the weights to start with; None: this
# rank's own, or together rank 0's. Returns the logits of the held-out images, the weights it started with and
# those it ended with.

if FRAMEWORK == "torch":
    import horovod.torch as hvd
    import torch

    torch.set_num_threads(1)

    def train(together, batches, start):
        torch.manual_seed(R + 1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        for p, value in zip(model.parameters(), start or []):
            p.data = torch.from_numpy(value.copy())
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        if together:
            hvd.broadcast_parameters(model.state_dict(), 0)
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        first = [p.detach().numpy().copy() for p in model.parameters()]
        for batch in batches:
            optimizer.zero_grad()
            logits = model(torch.from_numpy(IMAGES[batch]))
            torch.nn.functional.cross_entropy(logits, torch.from_numpy(LABELS[batch])).backward()
            optimizer.step()
        logits = model(torch.from_numpy(IMAGES[HELD_OUT])).detach().numpy()
        return logits, first, [p.detach().numpy() for p in model.parameters()]

elif FRAMEWORK == "tape":
    import horovod.tensorflow as hvd
    import tensorflow as tf

    def train(together, batches, start):
        draw = np.random.default_rng(R + 1)
        start = start or [draw.normal(0, 0.1, shape) for shape in SHAPES]
        weights = [tf.Variable(value, dtype=tf.float32) for value in start]
        momenta = [tf.Variable(tf.zeros_like(w)) for w in weights]
        if together:
            hvd.broadcast_variables(weights, root_rank=0)
        first = [w.numpy() for w in weights]

        def logits_of(x):
            return tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3]

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits_of(x)))
            if together:
                tape = hvd.DistributedGradientTape(tape)
            for w, m, g in zip(weights, momenta, tape.gradient(loss, weights)):
                m.assign(MOMENTUM * m + g)
                w.assign_sub(RATE * m)

        for batch in batches:
            step(tf.constant(IMAGES[batch]), tf.constant(LABELS[batch]))
        return logits_of(IMAGES[HELD_OUT]).numpy(), first, [w.numpy() for w in weights]

elif FRAMEWORK == "v1":
    import horovod.tensorflow as hvd
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()

    def layer(x, outputs, name):
        with tf.variable_scope(name):
            w = tf.get_variable(
                "w", [int(x.shape[-1]), outputs], initializer=tf.glorot_uniform_initializer()
            )
            return tf.matmul(x, w) + tf.get_variable("b", [outputs], initializer=tf.zeros_initializer())

    def train(together, batches, start):
        one_thread = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
        with tf.Graph().as_default():
            tf.set_random_seed(R + 1)
            x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
            logits = layer(tf.nn.relu(layer(x, 64, "hidden")), 10, "out")
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            weights = tf.trainable_variables()
            optimizer = tf.train.MomentumOptimizer(RATE, MOMENTUM)
            if together:
                optimizer = hvd.DistributedOptimizer(optimizer)
            step = optimizer.minimize(loss)
            into = [tf.placeholder(tf.float32, w.shape) for w in weights]
            put = [w.assign(value) for w, value in zip(weights, into)]
            everybody = hvd.broadcast_global_variables(0)
            with tf.Session(config=one_thread) as session:
                session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
                if together:
                    session.run(everybody)
                elif start:
                    session.run(put, dict(zip(into, start)))
                first = session.run(weights)
                for batch in batches:
                    session.run(step, {x: IMAGES[batch], y: LABELS[batch]})
                return session.run(logits, {x: IMAGES[HELD_OUT]}), first, session.run(weights)

else:
    import horovod.keras as hvd
    import keras

    def train(together, batches, start):
        keras.utils.set_random_seed(R + 1)
        layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
        model = keras.Sequential([keras.Input((64,)), *layers])
        optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
        if together:
            optimizer = hvd.DistributedOptimizer(optimizer)
            start = objects.broadcast_object(model.get_weights())
        if start:
            model.set_weights(start)
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        first, order = model.get_weights(), np.concatenate(batches)
        of_keras = {"batch_size": len(batches[0]), "shuffle": False, "verbose": 0}
        model.fit(IMAGES[order], LABELS[order], **of_keras)
        return model.predict(IMAGES[HELD_OUT], verbose=0), first, model.get_weights()


hvd.init()
R, N = hvd.rank(), hvd.size()


def joined(epochs=EPOCHS):
    """The joined batches as indices: equal on all ranks."""
    draw, learnt = np.random.RandomState(5), np.flatnonzero(~HELD_OUT)
    used = len(learnt) // BATCH * BATCH
    return [b for _ in range(epochs) for b in draw.permutation(learnt)[:used].reshape(-1, BATCH)]


def right(logits):
    return int((logits.argmax(1) == LABELS[HELD_OUT]).sum())


def same_weights(weights):
    every = objects.allgather_object(b"".join(w.tobytes() for w in weights))
    return all(one == every[0] for one in every)


@check
def n_ranks_reach_the_accuracy_of_one():
    logits, start, weights = train(True, [batch[R::N] for batch in joined()], None)
    assert same_weights(start), "ranks started with different weights"
    assert same_weights(weights), "ranks hold different weights"
    alone = objects.broadcast_object(right(train(False, joined(), start)[0]) if R == 0 else None)
    together = right(logits)
    assert together >= 0.9 * HELD_OUT.sum(), f"{together} of {HELD_OUT.sum()} right"
    assert abs(together - alone) <= 4, f"{together} of {HELD_OUT.sum()} right, one rank alone: {alone}"
    # and without exchange the ranks' weights would differ
    _, _, apart = train(False, [batch[R::N] for batch in joined(1)], start)
    assert same_weights(apart) == (N == 1)


main(R)
