# SPDX-License-Identifier: Apache-2.0
"""horovod.keras and horovod.tensorflow.keras: operations on values, models saved and loaded, optimizers."""

import os
import tempfile

import horovod.keras
import horovod.tensorflow.keras
from harness import N, R, hvd, np, symbol, tf, v1

PACKAGES = (horovod.keras, horovod.tensorflow.keras)
MINE = R + 1.0
MEAN = 1.5
# Keras 3 itself cannot continue with an optimizer from such a file.
OLD_FORMAT = ".keras" if hasattr(tf.keras, "Variable") else ".h5"
keras = tf.keras


def of_both(*names):
    """Marks a case as one of these names of both packages."""
    return symbol(*[f"{package.__name__}.{name}" for name in names for package in PACKAGES])


@of_both("allreduce", "allgather", "broadcast", "reducescatter")
def operations_on_values(t):
    for k in PACKAGES:
        t.equal(k.allreduce([2.0], average=True, prescale_factor=0.5, postscale_factor=4.0), [4])
        t.equal(k.allgather([R] * (R + 1), name="uneven"), [0, 1, 1])
        t.equal(k.broadcast([R, 7], 1), [1, 7])
        t.equal(k.reducescatter([[1.0 * R], [2.0 * R]], name="sum", op=k.Sum), [[1.0 * (R + 1)]])


@symbol("horovod.keras.allreduce")
def average_is_what_horovod_keras_does(t):
    t.equal(horovod.keras.allreduce([1.0 * R], average=False), [1])


@symbol("horovod.keras.allreduce", "horovod.keras.broadcast_global_variables")
@symbol("horovod.tensorflow.keras.broadcast_global_variables")
def in_a_graph(t):
    """Values come back from Keras's session; where Keras has none (Keras 3), a graph has no variables of its own."""
    t.needs(hasattr(v1.keras.backend, "get_session"))
    for k in PACKAGES:
        with tf.Graph().as_default(), v1.Session() as session:
            v1.keras.backend.set_session(session)
            t.equal(k.allreduce([1.0 * R], op=k.Sum), [1])
            v = v1.get_variable("v", initializer=tf.constant([float(R)]))
            session.run(v1.global_variables_initializer())
            k.broadcast_global_variables(1)
            t.equal(session.run(v), [1])


@of_both("broadcast_global_variables")
def global_variables_need_a_graph(t):
    for k in PACKAGES:
        t.fails(RuntimeError, ["hvd.broadcast_variables"], k.broadcast_global_variables, 0)


def sgd(**options):
    return keras.optimizers.SGD(learning_rate=1.0, **options)


def moved(optimizer, local=False):
    """Where a variable that starts at 10 is after a step of apply_gradients."""
    v = getattr(keras, "Variable", tf.Variable)([10.0])
    if local:
        optimizer.register_local_var(v)
    optimizer.apply_gradients([(tf.constant([MINE]), v)])
    return tf.convert_to_tensor(v)


@of_both("DistributedOptimizer")
def keras_optimizer(t):
    """What its options do: keras_options.py."""
    for k in PACKAGES:
        wrapped = k.DistributedOptimizer(sgd(momentum=0.5))
        t.equal(moved(wrapped), [10 - MEAN])
        t.equal(moved(k.DistributedOptimizer(sgd(), op=hvd.Sum)), [10 - N * MEAN])
        assert isinstance(wrapped, keras.optimizers.SGD) and type(wrapped).__name__ == "SGD"
        assert float(wrapped.get_config()["momentum"]) == 0.5


@symbol("horovod.tensorflow.keras.DistributedOptimizer")
def keras_optimizer_with_a_variable_of_one_rank(t):
    for scale in (True, False):
        wrapped = horovod.tensorflow.keras.DistributedOptimizer(sgd(), scale_local_gradients=scale)
        t.equal(moved(wrapped, local=True), [10 - MINE / (N if scale else 1)])


@symbol("horovod.tensorflow.keras.DistributedOptimizer")
def optimizer_of_keras_2(t):
    legacy = getattr(keras.optimizers, "legacy", None)
    t.needs(hasattr(tf, "estimator"))
    wrapped = horovod.tensorflow.keras.DistributedOptimizer(legacy.SGD(learning_rate=1.0))
    assert isinstance(wrapped, legacy.SGD)
    t.equal(moved(wrapped), [10 - MEAN])


@symbol("horovod.keras.PartialDistributedOptimizer")
def partial_optimizer(t):
    one, other = (keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(2))
    model = keras.Sequential([keras.Input([1]), one, other])
    make = horovod.keras.PartialDistributedOptimizer
    wrapped = make(sgd(), local_layers=other, scale_local_gradients=False)
    gradients = [tf.constant([[MINE]])] * 2
    wrapped.apply_gradients(zip(gradients, model.trainable_variables))
    t.equal(model.get_weights()[0], [[1 - MEAN]])
    t.equal(model.get_weights()[1], [[1 - MINE]])
    t.fails(ValueError, ["local layers"], make, sgd(), local_layers=["no layer"])


class MySgd(keras.optimizers.SGD):
    """An optimizer of the user's own."""


def saved(optimizer, suffix):
    """A model that has learned a step, the same on both ranks, and the file it is in."""
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(optimizer, keras.losses.MeanSquaredError(), run_eagerly=True)
    model.fit(np.ones([2, 2], "f"), np.ones([2, 1], "f"), epochs=1, verbose=0)
    path = os.path.join(tempfile.mkdtemp(), f"model{suffix}")
    model.save(path)
    return model, path


def is_distributed(t, model):
    """Gradients that differ move the weights of both ranks by as much."""
    before = model.get_weights()[0]
    model.optimizer.apply_gradients(
        zip([tf.fill(v.shape, MINE) for v in model.trainable_variables], model.trainable_variables)
    )
    after = np.asarray(hvd.allgather(tf.constant(model.get_weights()[0][None])))
    t.equal(after[0], after[1])
    assert (after[0] != before).all()


@of_both("load_model")
def load_model(t):
    """Comes back with the optimizer's state, and distributed."""
    for k, suffix in zip(PACKAGES, (".keras", OLD_FORMAT)):
        model, path = saved(keras.optimizers.SGD(0.25, momentum=0.5), suffix)
        loaded = k.load_model(path, compression=hvd.Compression.fp16)
        assert type(loaded.optimizer).__name__ == "SGD"
        assert isinstance(loaded.optimizer, keras.optimizers.SGD)
        assert abs(float(loaded.optimizer.get_config()["learning_rate"]) - 0.25) < 1e-6
        for got, want in zip(loaded.get_weights(), model.get_weights()):
            t.equal(got, want)
        assert int(loaded.optimizer.iterations) == 1
        is_distributed(t, loaded)
        t.fails((ValueError, OSError), [], k.load_model, path + ".not")


@of_both("load_model")
def load_model_with_an_optimizer_of_the_users(t):
    for k in PACKAGES:
        _, path = saved(MySgd(0.5), ".keras")
        for options in ({"custom_optimizers": [MySgd]}, {"custom_objects": {"MySgd": MySgd}}):
            loaded = k.load_model(path, **options)
            assert isinstance(loaded.optimizer, MySgd)
            is_distributed(t, loaded)
