# SPDX-License-Identifier: Apache-2.0
"""Training with Keras: the callbacks of both packages, and those of elastic states."""

import io
import os
import tempfile
from contextlib import redirect_stdout

import horovod.keras.callbacks
import horovod.keras.elastic
import horovod.tensorflow.keras.callbacks
import horovod.tensorflow.keras.elastic
from harness import N, R, hvd, np, symbol, tf

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


class See(keras.callbacks.Callback):
    """Notes what value() is at the begin of each batch and at the end of each epoch."""

    def __init__(self, value):
        super().__init__()
        self.value, self.batches, self.epochs = value, [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.batches.append(self.value())

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append((self.value(), dict(logs or {})))


@of_both(CALLBACKS, "BroadcastGlobalVariablesCallback")
def broadcast_callback(t):
    """After the first batch all have root's weights and optimizer state."""
    for module in once(CALLBACKS, "BroadcastGlobalVariablesCallback"):
        model = model_of_this_rank(
            horovod.keras.DistributedOptimizer(keras.optimizers.SGD(0.125, momentum=0.5))
        )
        callback = module.BroadcastGlobalVariablesCallback(1)
        assert isinstance(callback, keras.callbacks.Callback)
        fit(model, callback)
        for w in model.get_weights():
            both = np.asarray(hvd.allgather(tf.constant(w[None])))
            t.equal(both[0], both[1])


@of_both(CALLBACKS, "BroadcastGlobalVariablesCallback")
def broadcast_callback_with_a_local_variable(t):
    for module in once(CALLBACKS, "BroadcastGlobalVariablesCallback"):
        model = model_of_this_rank(keras.optimizers.SGD(0.0))
        v = model.trainable_variables[0]
        callback = module.BroadcastGlobalVariablesCallback(1, local_variables=v)
        fit(model, callback)
        t.equal(model.get_weights()[0], np.full([2, 1], R + 1.0))
        t.equal(model.get_weights()[1], [4.0])
        t.fails(
            ValueError,
            ["local variables"],
            module.BroadcastGlobalVariablesCallback,
            0,
            local_variables=["v"],
        )


@of_both(CALLBACKS, "MetricAverageCallback")
def metric_average_callback(t):
    for module in once(CALLBACKS, "MetricAverageCallback"):
        logs = {"loss": R * 2.0, "accuracy": 0.25 + R, "lr": 1.0}
        callback = module.MetricAverageCallback()
        callback.on_epoch_end(0, logs)
        t.equal([logs["loss"], logs["accuracy"], logs["lr"]], [1, 0.75, 1])
        see = See(lambda: 0)
        fit(model_of_this_rank(), callback, see)
        loss = see.epochs[0][1]["loss"]
        t.equal(hvd.allgather(tf.constant([float(loss)])), [loss] * N, 1e-5 * abs(loss))


def rate(model):
    return float(np.asarray(model.optimizer.learning_rate))


@of_both(CALLBACKS, "LearningRateScheduleCallback")
def schedule_callback(t):
    for module in once(CALLBACKS, "LearningRateScheduleCallback"):
        make = module.LearningRateScheduleCallback
        model = model_of_this_rank(keras.optimizers.SGD(0.5, momentum=0.9))
        see = See(lambda m=model: rate(m))
        fit(model, make(0.5, 0.5, start_epoch=1, end_epoch=3), see, epochs=4)
        # constant multiplier: decays exponentially from start_epoch; held from end_epoch on
        t.equal(see.batches[::BATCHES], [0.5, 0.5, 0.25, 0.25], 1e-6)
        assert abs(float(see.epochs[2][1]["lr"]) - 0.25) < 1e-6
        t.equal(float(np.asarray(model.optimizer.momentum)), 0.9, 1e-6)
        model = model_of_this_rank()
        see = See(lambda m=model: rate(m))
        fit(model, make(1.0, lambda epoch: 1 + epoch, staircase=False), see, epochs=2)
        # the last batch's rate is what the next one's begin sees, before it is set
        t.equal(rate(model), 1 + 1 + (BATCHES - 1) / BATCHES, 1e-6)
        model = model_of_this_rank()
        fit(model, make(1.0, lambda epoch: 2.0, steps_per_epoch=BATCHES, momentum_correction=False))
        t.equal(rate(model), 2, 1e-6)
        t.fails(ValueError, ["initial_lr"], make, None, 1.0)


@of_both(CALLBACKS, "LearningRateWarmupCallback")
def warmup_callback(t):
    """From initial_lr / size to initial_lr, batch by batch; a line on rank 0 when it is done."""
    for module in once(CALLBACKS, "LearningRateWarmupCallback"):
        model = model_of_this_rank()
        callback = module.LearningRateWarmupCallback(0.5, warmup_epochs=2, verbose=1)
        see = See(lambda m=model: rate(m))
        out = io.StringIO()
        with redirect_stdout(out):
            fit(model, callback, see, epochs=3)
        steps = 2 * BATCHES
        wanted = [0.5 / N * ((i + 1) / BATCHES * (N - 1) / 2 + 1) for i in range(steps)]
        t.equal(see.epochs[0][0], wanted[BATCHES - 1], 1e-6)
        t.equal([see.epochs[1][0], see.epochs[2][0]], [0.5, 0.5], 1e-6)
        said = "Epoch 2: finished gradual learning rate warmup to 0.5." in out.getvalue()
        assert said is (R == 0), out.getvalue()


@of_both(CALLBACKS, "BestModelCheckpoint")
def best_model_checkpoint(t):
    """Without a path of its own: what runs the training sets it."""
    for module in CALLBACKS:
        try:
            callback = module.BestModelCheckpoint(monitor="loss", save_freq="epoch")
        except (ValueError, TypeError, AttributeError) as e:
            raise AssertionError(f"{module.__name__}: {e}") from e
        assert isinstance(callback, keras.callbacks.ModelCheckpoint) and callback.save_best_only
        assert callback.monitor == "loss"
        callback.filepath = os.path.join(tempfile.mkdtemp(), "best.keras")
        fit(model_of_this_rank(), callback)
        assert os.path.exists(callback.filepath)


def state_of(module, **values):
    model = model_of_this_rank()
    return module.KerasState(model, batch=0, epoch=0, **values)


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
        model.set_weights([w + 1 for w in model.get_weights()])
        state.commit()
        state.step = 9
        model.set_weights([w * 5 for w in model.get_weights()])
        state.restore()
        assert state.step == 7
        t.equal(model.get_weights()[0], [[2], [2]])
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    t.fails(ValueError, ["built"], ELASTIC[0].KerasState, unbuilt, keras.optimizers.SGD())


@of_both(ELASTIC, "CommitStateCallback", "UpdateBatchStateCallback", "UpdateEpochStateCallback")
def elastic_callbacks(t):
    for module in once(ELASTIC, "CommitStateCallback"):
        state = state_of(module)
        commits = []
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


@symbol("horovod.tensorflow.elastic.TensorFlowKerasState", "horovod.tensorflow.elastic.run")
def elastic_run_with_a_model(t):
    """A collective that fails takes every rank back to its last commit."""
    model = model_of_this_rank()
    state = hvd.elastic.TensorFlowKerasState(model, epoch=0)
    tries = []

    @hvd.elastic.run
    def train(state):
        tries.append(state.epoch)
        while state.epoch < 3:
            state.epoch += 1
            if len(tries) == 1 and state.epoch == 2:
                model.set_weights([w + 100 for w in model.get_weights()])
                hvd.allreduce(tf.ones([2 + R]), name="fails.once")
            state.commit()
        return state.epoch

    assert train(state) == 3
    assert tries == [0, 1], tries
    t.equal(model.get_weights()[0], [[1], [1]])
