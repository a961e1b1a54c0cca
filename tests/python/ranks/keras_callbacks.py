# SPDX-License-Identifier: Apache-2.0
"""The callbacks of Keras and the collectives on values, on every Keras and back end.

keras_callbacks.py [short]: `short` leaves the checks marked by @on_one to torch and Keras 2.
"""

import os
import warnings

import numpy as np
from checks import Calls, check, check_if, expect_error, main
from horovod.common.exceptions import HorovodInternalError
from keras_expect import expect_alike, expect_warning, expect_weights
from keras_flavour import BACKEND, IS_3, N, R, hvd, keras, on_one
from keras_models import SUFFIX, FP16Compressor, fit, model, scaler, set_weights, sgd, weights
from keras_steps import ROWS, At, chosen, close, data, predicted, sgd_steps, start

callbacks = hvd.callbacks


def of_variable(value):
    return float(np.asarray(keras.ops.convert_to_numpy(value) if IS_3 else value))


class Rates(keras.callbacks.Callback):
    """Notes the learning rate that each batch is trained with."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_end(self, batch, logs=None):
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.rates.append(of_variable(self.model.optimizer.learning_rate))


@check
def values():
    total = sum(range(N))
    close(hvd.allreduce([1.0 + R, 2.0]), [(N + 1) / 2, 2.0])
    close(hvd.allreduce(np.float64(R), average=False, name="named"), total)
    for options in (
        {},
        {"prescale_factor": 2.0, "postscale_factor": 0.5},
        {"compression": hvd.Compression.fp16},
    ):
        close(hvd.allreduce([float(R)], op=hvd.Sum, **options), [total])
    if N > 1:
        close(hvd.allreduce([float(R)], op=hvd.Sum, compression=FP16Compressor), [2 * total])
    gathered = np.asarray(hvd.allgather([[R]] * (R + 1))).ravel()
    assert np.array_equal(gathered, np.repeat(range(N), range(1, N + 1)))
    close(hvd.broadcast([R, 7], N - 1), [N - 1, 7])
    close(hvd.reducescatter(np.arange(N, dtype=np.float32), op=hvd.Sum), [R * N])
    close(hvd.reducescatter(np.arange(N, dtype=np.float32)), [R])
    expect_error(RuntimeError, ["broadcast_global_variables"], hvd.broadcast_global_variables, 0)


def model_of_this_rank(lr, **options):
    made = model(hvd.DistributedOptimizer(sgd(lr, **options)))
    set_weights(made, start() * (R + 1))
    return made


@check
def all_start_as_the_root_does():
    """The root's weights are there after the first batch, and what comes then is equal on all ranks."""
    root = callbacks.BroadcastGlobalVariablesCallback
    made = model_of_this_rank(0.0)
    fit(made, 1, [root(N - 1)])
    expect_weights(made, start() * N, "the root's")
    made = model_of_this_rank(0.1, momentum=0.5)
    fit(made, 2, [root(N - 1)])
    expect_alike(weights(made))
    made = model_of_this_rank(0.0)
    fit(made, 1, [root(0, local_variables=made.trainable_variables[At.V])])
    expect_weights(made, chosen([At.V], start() * (R + 1), start()), "local")
    expect_error(ValueError, ["tf.Variable"], root, 0, local_variables=["a"])


@check
def all_have_the_roots_loss_scale():
    made = model(scaler(hvd.DistributedOptimizer(sgd(0.0)), initial_scale=64.0 * (R + 1)))
    fit(made, 1, [callbacks.BroadcastGlobalVariablesCallback(N - 1)])
    close(of_variable(made.optimizer.dynamic_scale if IS_3 else made.optimizer.loss_scale), 64.0 * N)


@on_one
def a_plain_optimizer_beside_a_distributed_one_warns():
    optimizer = hvd.DistributedOptimizer(sgd())
    root = callbacks.BroadcastGlobalVariablesCallback(0)
    words = [f"rank {R} trains alone", "ordinary SGD"]
    plain, ours = model(sgd()), model(optimizer)
    if N > 1:
        expect_warning(words, lambda: fit(plain, 1, [root]))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*alone")
        fit(ours, 1, [callbacks.BroadcastGlobalVariablesCallback(0)])


@check
def metrics_are_averaged():
    made = model(sgd(0.0))
    x, y = data(R)
    mine = float(np.mean((predicted(start(), x) - y) ** 2))
    seen = {}

    class After(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.update(logs)

    fitted = fit(made, 1, [callbacks.MetricAverageCallback(), After()], validation_data=(x, y))
    want = float(np.mean(np.asarray(hvd.allgather([mine]))))
    close([seen["loss"], seen["val_loss"]], [want, want])
    close(fitted.history["loss"], [want])


@check_if(N > 1)
def metrics_lose_nothing_by_compression():
    hvd.shutdown()
    os.environ["HVD_COMPRESSION"] = "fp16"
    try:
        hvd.init()
        logs = {"count": 40001.0 + R}
        callbacks.MetricAverageCallback().on_epoch_end(0, logs)
        assert logs["count"] == 40001.0 + (N - 1) / 2, logs
    finally:
        hvd.shutdown()
        del os.environ["HVD_COMPRESSION"]
        hvd.init()


@on_one
def metrics_that_differ_are_named():
    if N == 1:
        return
    more = {"validation_data": data(R)} if R == 0 else {}
    average = [callbacks.MetricAverageCallback()]
    expect_error(ValueError, ["val_loss", "rank 0", "rank 1"], fit, model(sgd(0.0)), 1, average, **more)


@check
def warm_up():
    steps = 4
    want = [0.8 / N * ((i + 1) / steps / 2 * (N - 1) + 1) for i in range(2 * steps)] + [0.8] * steps
    for given in ((0.8,), ()):
        made, seen = model(sgd(0.8)), Rates()
        warm = callbacks.LearningRateWarmupCallback(*given, warmup_epochs=2, verbose=1)
        fitted = fit(made, steps, [warm, seen], epochs=3)
        assert np.allclose(seen.rates, want, rtol=1e-5), (given, seen.rates, want)
        close(fitted.history["lr"], [want[steps - 1], 0.8, 0.8])
        assert fitted.history["learning_rate"] == fitted.history["lr"]


@check
def schedules():
    made, seen = model(sgd(0.5)), Rates()
    schedule = callbacks.LearningRateScheduleCallback
    falls = schedule(0.8, lambda epoch: 1.0 / (1 + epoch), end_epoch=2)
    fit(made, 2, [falls, schedule(0.8, 0.1, start_epoch=3, end_epoch=5), seen], epochs=6)
    want = np.repeat([0.8, 0.4, 0.4, 0.8, 0.08, 0.08], 2)
    assert np.allclose(seen.rates, want, rtol=1e-5), (seen.rates, want)
    expect_error(ValueError, ["initial_lr"], schedule, None, 0.1)
    if IS_3:
        decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        words = ["LearningRateScheduleCallback", "schedule", "number"]
        expect_error(TypeError, words, fit, model(sgd(decay)), 1, [schedule(0.8, 0.1)])


@check
def momentum_is_corrected_where_it_can_be():
    def fitted(**way):
        made = model(sgd(0.5, momentum=0.5), **way)
        fit(made, 1, [callbacks.LearningRateScheduleCallback(1.0, 1.0)])
        assert of_variable(made.optimizer.momentum) == 0.5, "restored"

    fitted(run_eagerly=True)
    if IS_3 and BACKEND != "torch" and R == 0:
        expect_warning(["momentum is not corrected", "SGD"], fitted)
    else:
        fitted()


def reported(callback, steps, **options):
    """What fit() reports: (epoch, epochs, step, total, samples, names of metrics) of each call."""
    with Calls("progress") as calls:
        fit(model(hvd.DistributedOptimizer(sgd(0.01))), steps, [callback], **options)
    for _, (*_, metrics) in calls.made:
        assert all(type(value) is float for value in (metrics or {}).values()), metrics
    return [
        (epoch, epochs, step, total, samples, sorted(metrics or ()))
        for _, (step, total, epoch, epochs, samples, metrics) in calls.made
    ]


@check
def progress_is_reported():
    size = ROWS * N
    callback = callbacks.ProgressCallback(batch_size=ROWS)
    callback._READ_EVERY_S = 1e9  # a busy machine may take 5 s
    made = reported(callback, 3, epochs=3, initial_epoch=1, validation_data=data(R))
    assert made == [
        (2, 3, 3, 9, 3 * size, []),
        (None, None, 4, None, 4 * size, ["loss"]),
        (None, None, 5, None, 5 * size, []),
        (None, None, 6, None, 6 * size, []),
        (None, None, 6, None, 6 * size, ["loss", "val_loss"]),
        (3, 3, 6, 9, 6 * size, []),
        (None, None, 7, None, 7 * size, ["loss"]),
        (None, None, 8, None, 8 * size, []),
        (None, None, 9, None, 9 * size, []),
        (None, None, 9, None, 9 * size, ["loss", "val_loss"]),
    ], made
    expect_error(ValueError, ["batch_size: 1.5"], callbacks.ProgressCallback, 1.5)


@on_one
def progress_of_unknown_length_is_reported():
    """Of a generator: neither the steps of an epoch are known nor the samples."""

    def batches():
        for step in range(2):
            yield data(R, step)

    with Calls("progress") as calls:
        made = model(hvd.DistributedOptimizer(sgd(0.01)))
        made.fit(batches(), epochs=1, verbose=0, callbacks=[callbacks.ProgressCallback()])
    steps = [arguments[0] for _, arguments in calls.made]
    assert steps == [0, 1, 2, 2], steps
    assert calls.made[0][1][1] is None, calls.made[0]
    assert all(arguments[4] is None for _, arguments in calls.made), calls.made


@on_one
def the_best_model_is_kept():
    path = os.path.join(os.environ["CHECKS_DIR"], f"best{R}.{SUFFIX}")
    best = callbacks.BestModelCheckpoint(monitor="loss", mode="min")
    expect_error(ValueError, ["filepath"], fit, model(sgd()), 1, [best])
    best.filepath = path
    made = model(hvd.DistributedOptimizer(sgd(0.01)))
    fit(made, 1, [best], epochs=2)
    close(weights(keras.models.load_model(path)), weights(made))


@check
def elastic_state_is_kept_during_fit():
    made = model(hvd.DistributedOptimizer(sgd(0.01)))
    state = hvd.elastic.KerasState(made, batch=0, epoch=0)
    seen = []

    class Seen(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((state.epoch, state.batch))

    elastic = hvd.elastic
    kept = [elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state)]
    fit(made, 3, [*kept, elastic.CommitStateCallback(state, 2), Seen()], epochs=2)
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)], seen
    assert (state.epoch, state.batch) == (2, 0)
    at_the_end = weights(made)
    set_weights(made, start() * 9)
    state.restore()
    expect_weights(made, at_the_end, "restored")


@check_if(IS_3)
def elastic_state_leaves_each_rank_its_random_numbers():

    def numbers():
        return np.asarray(keras.ops.convert_to_numpy(dropout.seed_generator.state))

    made = model(sgd())
    dropout = keras.layers.Dropout(0.5, seed=R)
    made.add(dropout)
    made.compile(hvd.DistributedOptimizer(sgd(0.01)), loss="mse", metrics=["mae"] if R == 0 else None)
    if R == 0:
        made.evaluate(*data(R), verbose=0)  # creates metrics, which the other ranks' states lack
    before = numbers()
    hvd.elastic.KerasState(made).sync()
    close(numbers(), before, "the generator's state")
    expect_alike(weights(made))


@check
def a_failed_step_is_repeated_from_the_last_commit():
    """The last rank leaves within fit(), so the gradients of other ranks find a world that is lost."""
    made = model(hvd.DistributedOptimizer(sgd()))
    state = hvd.elastic.KerasState(made, step=0)
    begun = []

    class Leaves(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if begun == [0, 1] and batch == 1 and R == N - 1:
                raise HorovodInternalError("as a failed collective does")

    @hvd.elastic.run
    def train(state):
        while state.step < 3:
            begun.append(state.step)
            fit(made, 2, [Leaves()], first=2 * state.step)
            state.step += 1
            state.commit()
        return "result"

    assert train(state) == "result"
    assert begun == [0, 1, 1, 2], begun
    expect_weights(made, sgd_steps(N, steps=6))


main(R)
