# SPDX-License-Identifier: Apache-2.0
"""The callbacks, for every Keras: implementations without a base class, and classes(keras), which adds one.

A model calls the methods that have Keras' names. They use self.model only, so the callbacks of one Keras
also work with models of another that accepts them.
"""

import functools
import itertools
import time
import types
import warnings

import numpy as np

from _hvd import arrays, basics, elastic_keras, objects
from _hvd.basics import Average
from _hvd.keras import replica, variables
from _hvd.keras.settings import Distributed, backend_of, is_distributed, keras_of


def warn_if_alone(model):
    """Warns if the model's optimizer is not distributed and this process has created one that is: the ranks
    would train separately, without an error."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not Distributed.is_used or is_distributed(optimizer) or basics.size() == 1:
        return
    warnings.warn(
        f"horovod: rank {basics.rank()} trains alone: hvd.DistributedOptimizer() was called, but the "
        f"model's optimizer is an ordinary {type(optimizer).__name__}; give compile() what "
        "DistributedOptimizer returned, and load models by hvd.load_model()",
        stacklevel=3,
    )


class BatchHooks:
    """Calls the batch hooks of Keras 2 by the names that Keras 2 and 3 share: Keras 3 checks that these
    exist."""

    def on_train_batch_begin(self, batch, logs=None):
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self.on_batch_end(batch, logs)


class BroadcastGlobalVariablesCallbackImpl(BatchHooks):
    """Broadcasts the root rank's weights and optimizer state after the first batch, when all of them exist.

    device: of the operations, on TensorFlow. local_variables: a variable or a list of them that are not
    broadcast; ValueError for anything else.
    """

    def __init__(self, root_rank, device="", local_variables=None):
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local_vars = []
        if local_variables is None:
            local_variables = []
        elif hasattr(local_variables, "assign"):
            local_variables = [local_variables]
        for var in local_variables:
            if not hasattr(var, "assign"):
                raise ValueError("All local variables must be of tf.Variable type.")
            self.register_local_var(var)

    def register_local_var(self, var):
        """Registers a variable that differs between ranks: it is not broadcast."""
        self._local_vars.append(var)

    def on_train_begin(self, logs=None):
        warn_if_alone(self.model)

    def on_batch_end(self, batch, logs=None):
        if not self.broadcast_done:
            variables.broadcast(self.model, self.root_rank, self._local_vars, self.device)
            self.broadcast_done = True
        else:
            replica.after_batch(self.model)


class MetricAverageCallbackImpl:
    """Replaces each numeric metric in logs by its mean over all ranks, at the end of every epoch.

    All ranks must log the same metrics, else ValueError. device: accepted as by Horovod, unused.
    """

    def __init__(self, device=""):
        super().__init__()
        self.device = device

    @staticmethod
    def _check(names):
        """Checks that all ranks have the same metrics: otherwise the other ranks would wait forever."""
        of_ranks = objects.allgather_object(names, name="MetricAverageCallback.names")
        for rank, others in enumerate(of_ranks):
            if others != of_ranks[0]:
                differs = sorted(set(others) ^ set(of_ranks[0])) or others
                has = rank if differs[0] in others else 0
                raise ValueError(
                    f"MetricAverageCallback: rank {has} has the metric '{differs[0]}' and rank "
                    f"{rank if has == 0 else 0} has not; all ranks must log the same (give all of them "
                    "validation data, or none)"
                )

    def on_epoch_end(self, epoch, logs=None):
        found = {}
        for name, value in sorted((logs or {}).items()):
            value = value.numpy() if hasattr(value, "numpy") else value
            if np.asarray(value).dtype.kind in "biuf":
                found[name] = np.asarray(value, np.float64)
        self._check(list(found))
        names, values = [f"MetricAverageCallback.{name}" for name in found], list(found.values())
        means = arrays.allreduce_all(values, names, Average, wires=["none"] * len(values))
        for name, mean in zip(found, means):
            logs[name] = mean if mean.shape else float(mean)


class LearningRateScheduleCallbackImpl(BatchHooks):
    """Sets the learning rate to initial_lr * multiplier(epoch), from start_epoch until before end_epoch.

    multiplier: a function of the epoch, or a number for exponential decay: multiplier ** (epoch -
    start_epoch). staircase: sets it once per epoch; otherwise in every batch, with a fractional epoch,
    which needs steps_per_epoch if Keras does not know it. momentum_correction: scales the momentum of the
    batch in which the learning rate changes. ValueError: no initial_lr. TypeError: the learning rate is a
    schedule.
    """

    _needs_initial_lr = True

    def __init__(
        self,
        initial_lr,
        multiplier,
        start_epoch=0,
        end_epoch=None,
        staircase=True,
        momentum_correction=True,
        steps_per_epoch=None,
    ):
        super().__init__()
        if initial_lr is None and self._needs_initial_lr:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = None
        self.restore_momentum = None
        self.multiplier = multiplier
        if not callable(multiplier):  # a constant: exponential decay
            self.multiplier = lambda epoch: multiplier ** (epoch - start_epoch)

    def _autodetect_steps_per_epoch(self):
        params = self.params or {}
        if params.get("steps"):
            return params["steps"]
        if params.get("samples") and params.get("batch_size"):
            return params["samples"] // params["batch_size"]
        raise ValueError(
            "Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch "
            f"parameter to the {type(self).__name__}()."
        )

    def _learning_rate(self):
        return variables.number(self.model.optimizer.learning_rate, self.model)

    def _set_learning_rate(self, value):
        try:
            self.model.optimizer.learning_rate = value
        except TypeError as e:
            raise TypeError(
                f"{type(self).__name__}: the optimizer's learning rate is a schedule and cannot be set; "
                "create the optimizer with a number"
            ) from e

    def _adjust_learning_rate(self, epoch):
        variables.settle(self.model)
        old_lr = self._learning_rate()
        new_lr = self.initial_lr * self.multiplier(epoch)
        self._set_learning_rate(new_lr)
        if self.momentum_correction and old_lr:
            self._correct_momentum(new_lr / old_lr)

    def _correct_momentum(self, factor):
        """Corrects the momentum for this batch, as in "Accurate, Large Minibatch SGD", section 2.2."""
        optimizer = self._with_momentum()
        if optimizer is None or factor == 1.0:
            return
        momentum = variables.number(optimizer.momentum, self.model)
        if not momentum:
            return
        if not hasattr(optimizer.momentum, "assign") and not self._runs_eagerly():
            _warn_no_correction(type(optimizer).__name__)
            return
        self.restore_momentum = momentum
        optimizer.momentum = momentum * factor

    def _with_momentum(self):
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        return optimizer if getattr(optimizer, "momentum", None) is not None else None

    def _runs_eagerly(self):
        """Whether the optimizer's attributes are read in every batch, and not only when it is compiled."""
        if self.model.run_eagerly:
            return True
        return backend_of(keras_of(self.model)) == "torch" and not self.model.jit_compile

    def _restore_momentum_if_needed(self):
        if self.restore_momentum:
            self._with_momentum().momentum = self.restore_momentum
            self.restore_momentum = None

    def on_train_begin(self, logs=None):
        if self.initial_lr is None:
            self.initial_lr = self._learning_rate()
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._autodetect_steps_per_epoch()

    def on_epoch_begin(self, epoch, logs=None):
        self.current_epoch = epoch

    def on_batch_begin(self, batch, logs=None):
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if not self.staircase:
            self._adjust_learning_rate(self.current_epoch + float(batch) / self.steps_per_epoch)
        elif batch == 0:
            self._adjust_learning_rate(self.current_epoch)

    def on_batch_end(self, batch, logs=None):
        self._restore_momentum_if_needed()

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            variables.settle(self.model)
            logs["lr"] = logs["learning_rate"] = self._learning_rate()


@functools.lru_cache(maxsize=None)
def _warn_no_correction(name):
    if basics.rank() == 0:
        warnings.warn(
            f"horovod: momentum is not corrected when the learning rate changes: {name} of this Keras has "
            "it as a constant of the compiled step (momentum_correction=False says the same)",
            stacklevel=5,
        )


class LearningRateWarmupCallbackImpl(LearningRateScheduleCallbackImpl):
    """Raises the learning rate from initial_lr / size() to initial_lr, in every batch of warmup_epochs.

    initial_lr: None for the optimizer's at the start of the training. verbose: 1 prints a line at the end.
    """

    _needs_initial_lr = False

    def __init__(
        self,
        initial_lr=None,
        warmup_epochs=5,
        momentum_correction=True,
        steps_per_epoch=None,
        verbose=0,
    ):
        def multiplier(epoch):
            # round numbers at the end of each epoch
            epoch += 1.0 / self.steps_per_epoch
            return 1.0 / basics.size() * (epoch * (basics.size() - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and basics.rank() == 0:
            print(
                f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._learning_rate():g}."
            )


class ProgressCallbackImpl:
    """Reports progress for the job's status (hvd.progress): steps, epochs, samples, and logs as metrics.

    batch_size: of this rank; without it the samples are not known, because Keras does not give it to
    callbacks. The metrics are read at the end of each epoch and in between every 5 s, since reading them
    may wait for a GPU: the first 16 numbers of the logs. Epochs count from 1, as Keras prints them.
    """

    _READ_EVERY_S = 5

    def __init__(self, batch_size=None):
        super().__init__()
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(f"batch_size: {batch_size!r} is not a positive integer")
        self._supports_tf_logs = True  # Keras 2 leaves tensors in the logs: no wait in each batch
        self.batch_size = batch_size
        self._epoch = self._before = self._step = 0  # _before: steps at the begin of this epoch
        self._next_read = 0.0

    def _report(self, logs, **more):
        batch_size = self.batch_size or self.params.get("batch_size")
        samples = self._step * batch_size * basics.size() if batch_size else None
        basics.progress(step=self._step, samples=samples, metrics=logs and _numbers_in(logs), **more)

    def on_train_begin(self, logs=None):
        self._step = 0

    def on_epoch_begin(self, epoch, logs=None):
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        if steps:
            self._step = epoch * steps  # also where fit() continues with initial_epoch
        self._before, self._next_read = self._step, 0.0
        self._report(None, epoch=epoch + 1, epochs=epochs, total=steps and epochs and steps * epochs)

    def on_train_batch_end(self, batch, logs=None):
        self._step = self._before + batch + 1
        now = time.monotonic()
        if now < self._next_read:
            logs = None
        else:
            self._next_read = now + self._READ_EVERY_S
        self._report(logs)

    def on_epoch_end(self, epoch, logs=None):
        self._report(logs)


def _numbers_in(logs):
    """The first numbers of the logs, as many as hvd.progress() takes."""
    found = {}
    for name, value in logs.items():
        value = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        if value.dtype.kind in "biuf" and value.size == 1:
            found[name] = float(value.reshape(()))
    return dict(itertools.islice(found.items(), 16))


class _BestModel:
    """ModelCheckpoint that saves the best model only, to a path that is set later: callback.filepath.

    Keras 3 does not accept filepath=None, so it is created with a name that is never used.
    """

    def _begin(self, monitor, verbose, save_weights_only, mode, save_freq):
        super().__init__(
            filepath="unset.weights.h5" if save_weights_only else "unset.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = None

    def on_train_begin(self, logs=None):
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint: set its filepath before fit(): callback.filepath = ...")
        super().on_train_begin(logs)


class CommitStateCallbackImpl(BatchHooks, elastic_keras.CommitStateCallbackImpl):
    pass


class UpdateBatchStateCallbackImpl(BatchHooks, elastic_keras.UpdateBatchStateCallbackImpl):
    pass


@functools.lru_cache(maxsize=None)
def _classes_of(base, checkpoint):
    """Returns a namespace of callback classes that are subclasses of a Keras' Callback and
    ModelCheckpoint."""

    class BroadcastGlobalVariablesCallback(BroadcastGlobalVariablesCallbackImpl, base):
        __doc__ = BroadcastGlobalVariablesCallbackImpl.__doc__

    class MetricAverageCallback(MetricAverageCallbackImpl, base):
        __doc__ = MetricAverageCallbackImpl.__doc__

    class LearningRateScheduleCallback(LearningRateScheduleCallbackImpl, base):
        __doc__ = LearningRateScheduleCallbackImpl.__doc__

    class LearningRateWarmupCallback(LearningRateWarmupCallbackImpl, base):
        __doc__ = LearningRateWarmupCallbackImpl.__doc__

    class ProgressCallback(ProgressCallbackImpl, base):
        __doc__ = ProgressCallbackImpl.__doc__

    class BestModelCheckpoint(_BestModel, checkpoint):
        __doc__ = _BestModel.__doc__

        def __init__(
            self, monitor="val_loss", verbose=0, save_weights_only=False, mode="auto", save_freq="epoch"
        ):
            self._begin(monitor, verbose, save_weights_only, mode, save_freq)

    class BestWholeModelCheckpoint(_BestModel, checkpoint):
        __doc__ = _BestModel.__doc__

        def __init__(self, monitor="val_loss", verbose=0, mode="auto", save_freq="epoch"):
            self._begin(monitor, verbose, False, mode, save_freq)

    class CommitStateCallback(CommitStateCallbackImpl, base):
        __doc__ = elastic_keras.CommitStateCallbackImpl.__doc__

    class UpdateBatchStateCallback(UpdateBatchStateCallbackImpl, base):
        __doc__ = elastic_keras.UpdateBatchStateCallbackImpl.__doc__

    class UpdateEpochStateCallback(elastic_keras.UpdateEpochStateCallbackImpl, base):
        __doc__ = elastic_keras.UpdateEpochStateCallbackImpl.__doc__

    found = {name: cls for name, cls in locals().items() if isinstance(cls, type)}
    for name, cls in found.items():
        cls.__qualname__ = name
    return types.SimpleNamespace(**found)


def classes(keras):
    """Returns a namespace of all callback classes for a Keras module (keras, tf.keras). The classes are the
    same in every call for the same module."""
    return _classes_of(keras.callbacks.Callback, keras.callbacks.ModelCheckpoint)
