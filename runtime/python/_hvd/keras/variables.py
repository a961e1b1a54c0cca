# SPDX-License-Identifier: Apache-2.0
"""Reads, writes and broadcasts the variables of models and optimizers, of every Keras. For the callbacks.

On JAX, fit() holds the values of variables while it runs. `settle` writes them back to the variables, and
the next step of fit() reads them again.
"""

import contextlib
import sys

import numpy as np

from _hvd import arrays, elastic_keras
from _hvd.keras.settings import backend_of, backend_variable, innermost, keras_of, keys_of


def settle(model):
    """Writes the values that fit() holds on JAX back to the model's variables; see the top of this file."""
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def session_of(model):
    """Returns Keras' session of a model in a graph of TensorFlow 1, else None. model: may be None."""
    tf = sys.modules.get("tensorflow")
    if tf is None or hasattr(keras_of(model), "ops") or tf.executing_eagerly():
        return None
    return tf.compat.v1.keras.backend.get_session()


def number(value, model):
    """Returns a scalar, such as a learning rate, as a float: a number, a tensor or a variable."""
    session = session_of(model)
    if session is not None and not isinstance(value, (int, float, np.generic)):
        return float(session.run(value))
    if hasattr(value, "numpy"):
        value = value.numpy()
    return float(value)


def of_model(model):
    """Returns the list of variables that must be equal on all ranks: the weights, without metrics and the
    states of random generators."""
    return list(model.weights)


def broadcast(model, root_rank, local_variables, device=""):
    """Assigns the root rank's weights and optimizer state to the model on every rank.

    local_variables: the variables that stay as they are. device: of the operations, on TensorFlow.
    """
    local = {key for v in local_variables for key in keys_of(v)}
    settle(model)
    if session_of(model) is not None:
        from _hvd.tensorflow import functions

        session_of(model).run(functions.broadcast_global_variables(root_rank))
        return
    variables = {id(v): v for v in of_model(model)}
    if getattr(model, "optimizer", None) is not None:
        variables.update((id(v), v) for v in elastic_keras.variables_of(model.optimizer))
        for total in getattr(innermost(model.optimizer), "_accumulated_gradients", ()):
            variables.pop(id(total), None)  # sums of several passes differ between ranks
    variables = [v for v in variables.values() if not keys_of(v) & local]
    _BROADCASTS[backend_of(keras_of(model))](variables, root_rank, device)


def _by_tensorflow(variables, root_rank, device):
    import tensorflow as tf

    from _hvd.tensorflow import functions

    with tf.device(device) if device else contextlib.nullcontext():
        inner = [backend_variable(v) for v in variables]
        functions.broadcast_as_named(inner, _names(variables), root_rank)


def _names(variables):
    """Returns operation names by index: a variable's own name counts the layers of its process, and the
    names of a loaded model differ from those of one that was built."""
    return [f"broadcast_variables.{i}" for i in range(len(variables))]


def _by_torch(variables, root_rank, _):
    import torch

    from _hvd.torch.functions import broadcast_parameters

    with torch.no_grad():
        pairs = [(n, v.value.detach()) for n, v in zip(_names(variables), variables)]
        broadcast_parameters(pairs, root_rank)


def _by_numpy(variables, root_rank, _):
    values = [np.asarray(v.value) for v in variables]
    for v, value in zip(variables, arrays.broadcast_all(values, _names(variables), root_rank)):
        v.assign(value)


_BROADCASTS = {"tensorflow": _by_tensorflow, "torch": _by_torch, "jax": _by_numpy}
