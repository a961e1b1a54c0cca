# SPDX-License-Identifier: Apache-2.0
"""Elastic state of a Keras model and its optimizer, and the callbacks that keep it during fit().

For Keras 2 and Keras 3 alike, on each of its back ends: variables are read and written as numpy
arrays. Nothing is imported for it: where TensorFlow matters, it is imported already. The optimizer is built
with the state, so that what fit() would make in its first step belongs to the first commit too.
"""

import sys

import numpy as np

from _hvd import basics, objects
from _hvd.elastic import ArraysState


def is_eager():
    """False inside graphs of TensorFlow 1, where values need a session."""
    tf = sys.modules.get("tensorflow")
    return tf is None or tf.executing_eagerly()


def _numpy(value):
    """The value as an array of our own."""
    if hasattr(value, "detach"):  # of torch
        value = value.detach().cpu()
    return np.array(value)


def _read_eagerly(variable):
    value = variable.value
    if callable(value):  # a tf.Variable
        return np.array(variable.numpy())
    if hasattr(value, "numpy") and not hasattr(value, "detach"):  # Keras 3's around a tf.Variable
        return np.array(value.numpy())
    return _numpy(value)


def read(variables, session):
    """Values of variables as arrays; session: TensorFlow 1's, or None."""
    if session is not None:
        return [np.array(value) for value in raw_session(session).run(list(variables))]
    return [_read_eagerly(variable) for variable in variables]


def write(pairs, session):
    """Gives each variable its value; pairs: [(variable, array)]."""
    for variable, value in pairs:
        if session is None:
            variable.assign(value)
        else:  # no new nodes, so that a finalized graph is no obstacle
            start = variable.initializer
            raw_session(session).run(start, {start.inputs[1]: value})


def raw_session(session):
    """The session below a MonitoredSession, whose hooks are not to count these runs."""
    below = getattr(session, "_tf_sess", None)
    return below() if callable(below) else session


def variables_of(optimizer):
    """All of an optimizer's variables, with the learning rate and the loss scale, which Keras 2 does not
    count among them."""
    variables = optimizer.variables
    variables = list(variables() if callable(variables) else variables)  # a method in legacy ones
    scale = getattr(optimizer, "_loss_scale", None)
    more = [getattr(optimizer, "learning_rate", None)]
    more += [getattr(scale, name, None) for name in ("current_loss_scale", "counter")]
    return variables + [v for v in more if hasattr(v, "assign")]


def _build(optimizer, model):
    """Creates the optimizer's variables unless they exist."""
    for name in ("build", "_create_all_weights"):
        make = getattr(optimizer, name, None)
        if callable(make):
            if not getattr(optimizer, "built", False) and model.trainable_variables:
                make(model.trainable_variables)
            return


class TensorFlowKerasState(ArraysState):
    """State of a Keras model, its optimizer, and whatever else is given by keyword.

    model: built, that is with shapes. optimizer: none for the one that the model was compiled with.
    backend: in graphs of TensorFlow 1, the keras.backend whose get_session() runs the model.
    """

    def __init__(self, model, optimizer=None, backend=None, **kwargs):
        if not getattr(model, "built", True):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        self.backend = backend
        if self.optimizer is None:
            raise ValueError(
                "elastic state: the model has no optimizer; compile it before, or pass optimizer="
            )
        if is_eager():
            _build(self.optimizer, model)
        self._keep_variables()
        super().__init__(bcast_object=objects.broadcast_object, get_rank=basics.rank, **kwargs)

    def _session(self):
        if is_eager():
            return None
        get_session = getattr(self.backend, "get_session", None)
        if get_session is None:
            get_session = getattr(sys.modules["tensorflow"].compat.v1.keras.backend, "get_session", None)
        if get_session is None:
            raise ValueError("elastic state: this Keras has no sessions; switch eager execution on")
        return get_session()

    def _variables(self):
        # weights: in Keras 3, variables would be metrics and the states of random generators too
        once = {id(v): v for v in [*self.model.weights, *variables_of(self.optimizer)]}
        return list(once.values())

    def _read(self, variables):
        return read(variables, self._session())

    def _write(self, pairs):
        write(pairs, self._session())


class CommitStateCallbackImpl:
    """Commits the state every batches_per_commit batches, and at the end of each epoch."""

    def __init__(self, state, batches_per_commit=1):
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError(f"batches_per_commit={batches_per_commit}: it must be at least 1")
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs=None):
        self.batches_remaining = self.batches_per_commit  # alike on all ranks after each reset

    def on_batch_end(self, batch, logs=None):
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.commit()

    def on_epoch_end(self, epoch, logs=None):
        self.commit()

    def commit(self):
        self.state.commit()


class UpdateBatchStateCallbackImpl:
    """Updates state.batch: the number of the last finished batch, 0 when an epoch has ended.

    After a reset the first epoch is shorter by that many batches if steps_per_epoch is given and Keras uses
    params["steps"]; otherwise the script passes steps_per_epoch - state.batch.
    """

    def __init__(self, state):
        super().__init__()
        self.state = state
        self.steps_per_epoch = None

    def on_train_begin(self, logs=None):
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch, logs=None):
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch, logs=None):
        self.state.batch = batch

    def on_epoch_end(self, epoch, logs=None):
        self.state.batch = 0


class UpdateEpochStateCallbackImpl:
    """Updates state.epoch: the finished epochs over all resets. fit() itself counts from 0 each time."""

    def __init__(self, state):
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs=None):
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch, logs=None):
        self.state.epoch = self.initial_epoch + epoch + 1
