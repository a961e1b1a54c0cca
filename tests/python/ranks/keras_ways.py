# SPDX-License-Identifier: Apache-2.0
"""Ways to train that keras_train.py does not show: other calls, policies and wrappers, Horovod's other module,
the other kinds of optimizers.

keras_ways.py [short]: `short` leaves out the checks marked by @in_full.
"""

import contextlib
import importlib
import os

import numpy as np
from checks import check, main
from keras_flavour import (
    BACKEND,
    FLAVOUR,
    IS_3,
    N,
    R,
    expect_operations,
    expect_weights,
    fit,
    hvd,
    in_full,
    keras,
    model,
    optimizers,
    set_weights,
    sgd,
    weights,
)
from keras_steps import V, chosen, data, gradient, mean_gradient, sgd_steps, start

HERE = os.environ["CHECKS_DIR"]


def scaler(optimizer, **kwargs):
    return keras.mixed_precision.LossScaleOptimizer(optimizer, **kwargs)


def distributed(optimizer=None, **kwargs):
    """With op=Sum: a second reduction shows, and none too."""
    return hvd.DistributedOptimizer(optimizer or sgd(), op=hvd.Sum, **kwargs)


def expect_sums(made, what, **steps):
    expect_weights(made, sgd_steps(N, factor=N, **steps), what)


@check
def train_on_batch():
    made = model(distributed())
    for step in range(2):
        made.train_on_batch(*data(R, step))
    expect_sums(made, "train_on_batch", steps=2)


@check
def several_steps_an_execution():
    if BACKEND == "torch":
        return  # Keras has it not there
    made = model(distributed(sgd(0.05)), steps_per_execution=2)
    fit(made, 3)  # two and one
    expect_sums(made, "steps_per_execution", lr=0.05, steps=3)


@in_full
def passes_that_are_compiled():
    """By XLA where it can; torch takes half a minute."""
    made = model(distributed(sgd(0.05), backward_passes_per_step=2), jit_compile=True)
    fit(made, 4)
    expect_sums(made, "jit_compile", lr=0.05, steps=2, passes=2)


@check
def loss_scaling_and_passes():
    passes = {"backward_passes_per_step": 2}
    for what, make in (
        ("outside", lambda: distributed(scaler(sgd(0.05), initial_scale=64.0), **passes)),
        ("inside", lambda: scaler(distributed(sgd(0.05), **passes), initial_scale=64.0)),
    ):
        made = model(make())
        fit(made, 4)
        expect_sums(made, what, lr=0.05, steps=2, passes=2)


@contextlib.contextmanager
def policy(name):
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


@check
def mixed_float16():
    """compile() puts a LossScaleOptimizer around ours, whose first scale overflows: steps are left out by all."""
    tries = 6
    with policy("mixed_float16"):
        made = model(distributed(sgd(0.02)))
        assert "LossScale" in type(made.optimizer).__name__, made.optimizer
        x, y = data(R)
        for _ in range(tries):
            made.fit(x, y, batch_size=len(x), epochs=1, verbose=0)
    scale = made.optimizer.dynamic_scale if IS_3 else made.optimizer.loss_scale
    steps = tries - int(np.log2(2.0**15 / float(scale)))  # a step that is left out halves it
    assert 0 < steps < tries, f"{steps} of {tries} steps were taken: the scale did not overflow"
    w = start()
    for _ in range(steps):
        w = w - 0.02 * N * mean_gradient(w, N)
    got = weights(made)
    assert np.allclose(got, w, rtol=2e-2, atol=1e-2), (steps, got, w)
    alike = np.asarray(hvd.allgather(got.reshape(1, -1)))
    assert (alike == alike[0]).all(), alike


def root_and_two_steps():
    """The weights where ranks that differ take a step, then the first one's, and then another step."""
    w = start()
    w = w - 0.1 * np.sum([gradient(start() * (rank + 1), rank) for rank in range(N)], axis=0)
    return w - 0.1 * N * mean_gradient(w, N, 1)


def by(module, optimizer, what):
    """Horovod's module of this name trains, starts all as the root does, and loads."""
    other = importlib.import_module(module)
    made = model(other.DistributedOptimizer(optimizer(0.1), op=other.Sum))
    fit(made)
    expect_sums(made, what)
    set_weights(made, start() * (R + 1))
    fit(made, 2, [other.callbacks.BroadcastGlobalVariablesCallback(0)])
    expect_weights(made, root_and_two_steps(), f"{what}, from the root's weights")
    path = os.path.join(HERE, f"{module}{R}.{'keras' if IS_3 else 'h5'}")
    made.save(path)
    loaded = other.load_model(path)
    set_weights(loaded, start())
    expect_operations(4, lambda: fit(loaded))
    expect_weights(loaded, sgd_steps(N), f"{what}, loaded")


@check
def the_other_module_of_horovod():
    """horovod.tensorflow.keras with Keras 3, horovod.keras with Keras 2."""
    if BACKEND != "tensorflow" or os.environ.get("TF_USE_LEGACY_KERAS"):
        return  # there keras is Keras 3, and horovod.keras of that
    module = "horovod.tensorflow.keras" if IS_3 else "horovod.keras"
    by(module, optimizers().SGD, module)


def two_steps(module, kinds, of):
    """Horovod's module of this name, with another kind of optimizers than the one under test."""
    other = importlib.import_module(module)
    made = model(other.DistributedOptimizer(kinds.SGD(0.1), op=other.Sum), of=of)
    fit(made, 2)
    expect_sums(made, f"{module} {kinds.__name__}", steps=2)


@check
def legacy_optimizers_of_keras_2():
    if FLAVOUR == "2":
        for module in ("horovod.tensorflow.keras", "horovod.keras"):
            two_steps(module, keras.optimizers.legacy, keras)


@check
def tf_keras_beside_keras_3():
    """Only what trains: callbacks and load_model are of the Keras that TensorFlow has."""
    if not IS_3 or BACKEND != "tensorflow":
        return
    import tf_keras

    two_steps("horovod.tensorflow.keras", tf_keras.optimizers, tf_keras)
    two_steps("horovod.keras", tf_keras.optimizers.legacy, tf_keras)


@check
def a_process_set_of_two():
    """With 3 ranks the last trains alone, at the same time."""
    if N < 3:
        return
    two = hvd.add_process_set([0, 1])
    made = model(hvd.DistributedOptimizer(sgd(), op=hvd.Sum, process_set=two))
    fit(made, 2)
    w = start()
    for step in range(2):
        w = w - 0.1 * (2 * mean_gradient(w, 2, step) if R < 2 else gradient(w, R, step))
    expect_weights(made, w, "a set of two")
    for scales in (True, False):
        optimizer = hvd.DistributedOptimizer(
            sgd(), op=hvd.Sum, process_set=two, scale_local_gradients=scales
        )
        made = model(optimizer)
        optimizer.register_local_var(made.trainable_variables[V])
        fit(made)
        own = gradient(start(), R)
        if R < 2:
            own = chosen([V], own / (2 if scales else 1), 2 * mean_gradient(start(), 2))
        expect_weights(made, start() - 0.1 * own, f"a set of two, and a local weight, scales={scales}")
    hvd.remove_process_set(two)


main(R)
