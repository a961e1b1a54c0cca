# SPDX-License-Identifier: Apache-2.0
"""The replica guard with Keras on each back end, under HVD_REPLICA_CHECK=3, and with variables of TensorFlow."""

import numpy as np
from checks import check, check_if, expect_error, main
from keras_flavour import BACKEND, IS_3, N, R, hvd, keras

LAST = N - 1
# Each back end has its own class for an error in a Python function that it calls.
ANY = Exception
X = np.linspace(-1, 1, 40, dtype="float32").reshape(8, 5) * (R + 1)
Y = np.ones((8, 2), "float32")


def compiled(optimizer=None, **options):
    keras.utils.set_random_seed(3)
    made = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(4, name="first"), keras.layers.BatchNormalization()]
    )
    made.add(keras.layers.Dense(2, name="second"))
    optimizer = optimizer or keras.optimizers.SGD(0.001)
    made.compile(hvd.DistributedOptimizer(optimizer), "mse", **options)
    return made


def train(made, steps):
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    start.broadcast_done = True  # for JAX, where the callback makes the check
    made.fit(X, Y, batch_size=8, epochs=steps, verbose=0, callbacks=[start])


def flip(variable, row, column):
    value = np.array(variable.numpy() if hasattr(variable, "numpy") else variable)
    value = np.array(keras.ops.convert_to_numpy(variable)) if IS_3 else value
    value.view(np.int32)[row, column] ^= 1
    variable.assign(value)


def words(name, element, n, step):
    return [
        f"replica check at step {step}",
        name,
        f"element {element}: ",
        f"on rank {LAST}",
        f"of {n} elements",
    ]


@check
def equal_replicas_pass():
    for options in ({}, {"run_eagerly": True}) if BACKEND == "tensorflow" else ({},):
        train(compiled(**options), 12)


@check_if(N > 1)
def one_bit_of_one_rank_is_named():
    for options in ({}, {"run_eagerly": True}) if BACKEND == "tensorflow" else ({},):
        made = compiled(keras.optimizers.SGD(0.0), **options)
        train(made, 4)
        if R == LAST:
            flip(made.get_layer("second").kernel, 3, 1)
        text = expect_error(ANY, ["1 of 8", *words("second", 7, 8, 6)], train, made, 2)
        assert ("differs from ranks 0" in text) == (N > 2), text


@check_if(N > 1)
def a_pass_of_an_accumulation_is_a_step():
    made = compiled()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), backward_passes_per_step=2)
    made.compile(optimizer, "mse")
    train(made, 4)
    if R == LAST:
        flip(made.get_layer("first").kernel, 0, 0)
    expect_error(ANY, words("first", 0, 20, 6), train, made, 2)


@check_if(BACKEND == "tensorflow" and N > 1)
def local_variables_are_left_out():
    import horovod.tensorflow as hvd_tf
    import tensorflow as tf

    mine = tf.Variable(tf.fill([2, 2], float(R)), name="mine")
    shared = tf.Variable(tf.ones([2, 2]), name="shared")
    if IS_3:
        mine = keras.Variable(np.full((2, 2), R, "float32"), name="mine")
        shared = keras.Variable(np.ones((2, 2), "float32"), name="shared")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0))
    optimizer.register_local_var(mine)
    zeros = tf.zeros([2, 2])

    @tf.function
    def step():
        optimizer.apply_gradients([(zeros, mine), (zeros, shared)])

    optimizer.apply_gradients([(zeros, mine), (zeros, shared)])
    for _ in range(7):
        step()
    if R == LAST:
        flip(shared, 1, 1)
    expect_error(ANY, words("shared", 3, 4, 9), step)
    expect_error(hvd_tf.HorovodInternalError, ['"shared', "element 3"], hvd_tf.check_replicas, [shared])


@check_if(N > 1 and BACKEND != "jax")
def loss_scaling_is_checked_too():
    if not IS_3:
        return
    made = compiled(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0)))
    train(made, 2)
    if R == LAST:
        flip(made.get_layer("first").kernel, 4, 3)
    expect_error(ANY, words("first", 19, 20, 3), train, made, 1)


if __name__ == "__main__":
    main(R)
