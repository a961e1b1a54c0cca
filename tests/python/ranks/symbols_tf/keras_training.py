# SPDX-License-Identifier: Apache-2.0
"""Training with Keras: the callbacks of both packages, and those of elastic states."""

import os
import tempfile

import horovod.keras.callbacks
import horovod.keras.elastic
import horovod.tensorflow.keras.callbacks
import horovod.tensorflow.keras.elastic
from harness import R, hvd, np, symbol, tf

keras = tf.keras
CALLBACKS = (horovod.keras.callbacks, horovod.tensorflow.keras.callbacks)
ELASTIC = (horovod.keras.elastic, horovod.tensorflow.keras.elastic)
BATCHES = 4


def once(modules, name):
    """The modules whose class of this name is not that of one before: with one Keras it is one class."""
    return {getattr(module, name): module for module in reversed(modules)}.values()


def of_both(modules, *names):
    return symbol(*[f"{module.__name__}.{name}" for name in names for module in modules])


def model_of_this_rank(optimizer=None, seed=R):
    """A linear model whose weights are each rank's own."""
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.set_weights([np.full([2, 1], seed + 1.0, "f"), np.full([1], seed + 3.0, "f")])
    model.compile(optimizer or keras.optimizers.SGD(0.125), "mse", run_eagerly=True)
    return model


def fit(model, *callbacks, epochs=1, **options):
    rng = np.random.default_rng(R)
    x, y = rng.normal(size=(2 * BATCHES, 2)).astype("f"), rng.normal(size=(2 * BATCHES, 1)).astype("f")
    return model.fit(
        x, y, batch_size=2, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks), **options
    )


@of_both(
    CALLBACKS,
    "BroadcastGlobalVariablesCallback",
    "MetricAverageCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
)
def callbacks_train(t):
    """That each is of Keras, trains and reaches all ranks; what each computes: keras_callbacks.py."""
    for module in once(CALLBACKS, "BroadcastGlobalVariablesCallback"):
        model = model_of_this_rank(horovod.keras.DistributedOptimizer(keras.optimizers.SGD(0.125)))
        callbacks = [
            module.BroadcastGlobalVariablesCallback(1),
            module.MetricAverageCallback(),
            module.LearningRateWarmupCallback(0.25, warmup_epochs=1),
            module.LearningRateScheduleCallback(0.25, lambda epoch: 0.5, start_epoch=1),
        ]
        assert all(isinstance(callback, keras.callbacks.Callback) for callback in callbacks)
        history = fit(model, *callbacks, epochs=2).history
        t.equal(history["lr"], [0.25, 0.125], 1e-6)
        for value in (*model.get_weights(), np.asarray(history["loss"])):
            both = np.asarray(hvd.allgather(tf.constant(value[None])))
            t.equal(both[0], both[1])


@of_both(CALLBACKS, "ProgressCallback")
def progress_callback(t):
    """What it reports: ranks/keras_callbacks.py."""
    for module in CALLBACKS:
        callback = module.ProgressCallback(batch_size=4)
        assert isinstance(callback, keras.callbacks.Callback)
        fit(model_of_this_rank(), callback)
        t.fails(ValueError, ["batch_size: 0"], module.ProgressCallback, 0)


@of_both(CALLBACKS, "BestModelCheckpoint")
def best_model_checkpoint(t):
    """Without a path of its own: what runs the training sets it."""
    for module in CALLBACKS:
        callback = module.BestModelCheckpoint(monitor="loss", save_freq="epoch")
        assert isinstance(callback, keras.callbacks.ModelCheckpoint) and callback.save_best_only
        assert callback.monitor == "loss"
        callback.filepath = os.path.join(tempfile.mkdtemp(), "best.keras")
        fit(model_of_this_rank(), callback)
        assert os.path.exists(callback.filepath)


@symbol("horovod.tensorflow.elastic.TensorFlowKerasState")
@of_both(ELASTIC, "KerasState")
def keras_state(t):
    for module in once(ELASTIC, "KerasState"):
        model = model_of_this_rank()
        state = module.KerasState(model, step=R, text="x")
        assert isinstance(state, horovod.tensorflow.elastic.TensorFlowKerasState)
        state.sync()
        t.equal(model.get_weights()[0], [[1], [1]])
        assert (state.step, state.text) == (0, "x")
        state.step = 7
        state.commit()
        state.step = 9
        model.set_weights([w * 5 for w in model.get_weights()])
        state.restore()
        assert state.step == 7
        t.equal(model.get_weights()[0], [[1], [1]])


@of_both(ELASTIC, "CommitStateCallback", "UpdateBatchStateCallback", "UpdateEpochStateCallback")
def elastic_callbacks(t):
    for module in once(ELASTIC, "CommitStateCallback"):
        state, commits = module.KerasState(model_of_this_rank(), batch=0, epoch=0), []
        state.commit = lambda s=state, c=commits: c.append((s.epoch, s.batch))
        callbacks = (
            module.UpdateBatchStateCallback(state),
            module.UpdateEpochStateCallback(state),
            module.CommitStateCallback(state, batches_per_commit=2),
        )
        assert all(isinstance(c, keras.callbacks.Callback) for c in callbacks)
        fit(state.model, *callbacks, epochs=2)
        assert (state.epoch, state.batch) == (2, 0)
        # after every second batch, and at each epoch's end
        assert commits == [(0, 1), (0, 3), (1, 0), (1, 1), (1, 3), (2, 0)], commits
