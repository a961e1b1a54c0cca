#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures training on synthetic images: images per second, of one worker and of all.

The flags and the result are those of Horovod's tensorflow2_synthetic_benchmark.py, so figures can be
compared. Models are those of keras.applications (ResNet50 ...) and a small one for CPUs.

    horovodrun -np 2 python3 tensorflow_synthetic_benchmark.py --model small --image-size 32

Needs TensorFlow 2.12 or later.
"""

import argparse
import timeit

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from tensorflow import keras


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", default="ResNet50", help="small, or one of keras.applications")
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--image-size", type=int, default=224, help="pixels each way")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="not measured")
    parser.add_argument("--num-batches-per-iter", type=int, default=10, help="steps per measurement")
    parser.add_argument("--num-iters", type=int, default=10, help="measurements")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as 16 bits")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    return parser.parse_args()


def conv(x, outputs, size, stride=1):
    x = keras.layers.Conv2D(outputs, size, stride, padding="same", use_bias=False)(x)
    return keras.layers.BatchNormalization()(x)


def small(shape):
    """A small ResNet of 0.7 million parameters, for tests on a CPU."""
    relu, add = keras.activations.relu, keras.layers.Add()
    inputs = keras.Input(shape)
    x = relu(conv(inputs, 16, 3, 2))
    for width in (32, 64, 128):
        body = conv(relu(conv(x, width, 3, 2)), width, 3)
        x = relu(add([body, conv(x, width, 1, 2)]))
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dense(256, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1000)(x))


def make_model(name, size):
    shape = (size, size, 3)
    if name == "small":
        return small(shape)
    make = getattr(keras.applications, name, None)
    if not callable(make):
        raise SystemExit(
            f"tensorflow_synthetic_benchmark: no model '{name}': small, or keras.applications'"
        )
    return make(weights=None, input_shape=shape, classifier_activation=None)


def log(text):
    if hvd.rank() == 0:
        print(text, flush=True)


def same_weights(model):
    """Whether all workers hold the same parameters."""
    sums = tf.stack([tf.reduce_sum(tf.cast(v, tf.float64)) for v in model.trainable_variables])
    everywhere = hvd.allgather(sums[None], name="sums").numpy()
    return bool((everywhere == everywhere[0]).all())


def main():
    args = parse_arguments()
    hvd.init()
    gpus = [] if args.no_cuda else tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)] if gpus else [], "GPU")
    unit = "GPU" if gpus else "CPU"

    model = make_model(args.model, args.image_size)
    optimizer = keras.optimizers.SGD(0.01 * hvd.size())
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_variables(optimizer.variables, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    data = tf.random.uniform([args.batch_size, args.image_size, args.image_size, 3])
    target = tf.random.uniform([args.batch_size], maxval=999, dtype=tf.int64)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(target, model(data, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=compression)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    def steps(n):
        for _ in range(n):
            loss = step()
        float(loss)  # wait until the work is done before the clock is read

    log(f"Model: {args.model}")
    log(f"Batch size: {args.batch_size}")
    log(f"Number of {unit}s: {hvd.size()}")
    log("Running warmup...")
    steps(args.num_warmup_batches)
    log("Running benchmark...")
    rates = []
    for i in range(args.num_iters):
        seconds = timeit.timeit(lambda: steps(args.num_batches_per_iter), number=1)
        rates.append(args.batch_size * args.num_batches_per_iter / seconds)
        log(f"Iter #{i}: {rates[-1]:.1f} img/sec per {unit}")

    # of all workers, not of rank 0 alone
    rates = hvd.allreduce(tf.constant(rates, tf.float64), name="rates").numpy()
    mean, spread, n = np.mean(rates), 1.96 * np.std(rates), hvd.size()
    log(f"Img/sec per {unit}: {mean:.1f} +-{spread:.1f}")
    log(f"Total img/sec on {n} {unit}(s): {n * mean:.1f} +-{n * spread:.1f}")
    if not same_weights(model):
        raise SystemExit("tensorflow_synthetic_benchmark: the workers hold different weights")


if __name__ == "__main__":
    main()
