# SPDX-License-Identifier: Apache-2.0
"""train_torch.py's training in TensorFlow: train_tensorflow.py KIND NAME HIDDEN.

KIND: hvd (the first `horovod.tensorflow` on the path) or apart (all processes, without any exchange: the upper
bound of data-parallel training). The same CNN and numbers of parameters; a step is DistributedGradientTape
and apply_gradients in a tf.function, with one inter-op and one intra-op thread. Prints the row of
allreduce_torch.py, with the batch of all ranks in place of the bytes; its times are those of the slowest rank.
"""

import os
import sys
import time

import tensorflow as tf
from rows import print_row

BATCH, WARM_UP, STEPS, IMAGES = 64, 5, 60, 512


def make(hidden):
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(hidden, activation="relu"),
            layers.Dense(10),
        ]
    )


def main(kind, name, hidden):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd = None
    if kind == "hvd":
        import horovod.tensorflow as hvd

        hvd.init()
    rank, size = (
        (hvd.rank(), hvd.size()) if hvd else (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    )
    model, optimizer = make(int(hidden)), tf.keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)
    if hvd:
        hvd.broadcast_variables(model.variables, root_rank=0)
    x = tf.random.stateless_normal([IMAGES, 28, 28, 1], seed=[100, rank])
    y = tf.clip_by_value(tf.cast(tf.reduce_mean(x, [1, 2, 3]) * 280, tf.int64), -5, 4) + 5
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(at):
        with tf.GradientTape() as tape:
            loss = loss_of(y[at : at + BATCH], model(x[at : at + BATCH], training=True))
        if hvd:
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    times = []
    for i in range(WARM_UP + STEPS):
        begin = time.perf_counter()
        float(step(tf.constant(i * BATCH % IMAGES)))
        times.append((time.perf_counter() - begin) * 1e6)
    times = tf.constant([times[WARM_UP:]], tf.float64)
    mean = float(tf.reduce_mean(times))
    if hvd:
        times = tf.reduce_max(hvd.allgather(times, name="times"), axis=0, keepdims=True)
    if rank == 0:
        print_row(name, size, BATCH * size, times[0], mean)
    if hvd:
        hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
