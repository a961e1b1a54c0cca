# SPDX-License-Identifier: Apache-2.0
"""The replica guard (_hvd/replica.py) for Keras: after each step of a distributed optimizer.

On TensorFlow and torch the optimizer's apply() calls after_apply(). On JAX that is compiled, without the
variables' values; BroadcastGlobalVariablesCallback calls after_batch() there.
"""

import functools

import numpy as np

from _hvd import replica
from _hvd.keras import variables as model_variables
from _hvd.keras.local import are_local
from _hvd.keras.settings import Distributed, backend_of, backend_variable, keras_of


def _name(variable):
    return getattr(variable, "path", None) or variable.name


def _shared(optimizer, variables):
    variables = list(variables)
    return [v for v, mine in zip(variables, are_local(optimizer, variables)) if not mine]


def _values_of(backend, variables):
    names = [_name(v) for v in variables]
    inner = [backend_variable(v) for v in variables]
    if backend == "tensorflow":
        from _hvd.tensorflow.replica import values_of

        return values_of(inner, names)
    if backend == "torch":
        from _hvd.torch.replica import values_of

        return values_of(list(zip(names, inner)), key="")
    return [
        replica.array_value(name, np.dtype(v.dtype), v.shape, functools.partial(np.asarray, v))
        for v, name in zip(inner, names)
    ]


def after_apply(optimizer, variables):
    """Counts a step of a distributed optimizer that updates these variables; see replica.Guard."""
    settings, guard = optimizer._hvd_settings, optimizer._hvd.guard
    if settings.is_alone() or not replica.period():
        return
    backend = backend_of(keras_of(optimizer))
    shared = _shared(optimizer, variables)

    def step():
        if guard.is_due(settings.process_set):
            guard.check(_values_of(backend, shared), settings.process_set)

    if backend == "tensorflow":
        from _hvd.tensorflow.replica import after_assignments

        after_assignments([backend_variable(v) for v in shared], step)
    elif backend == "torch":
        from _hvd.keras.reduction import uncompiled

        uncompiled(step)()


def after_batch(model):
    """As after_apply(), for a model that fit() trains on JAX."""
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", None)
    ours = optimizer if isinstance(optimizer, Distributed) else inner
    if not replica.period() or not isinstance(ours, Distributed) or backend_of(keras_of(model)) != "jax":
        return
    settings, guard = ours._hvd_settings, ours._hvd.guard
    if not settings.is_alone() and guard.is_due(settings.process_set):
        model_variables.settle(model)
        guard.check(_values_of("jax", _shared(ours, model.trainable_variables)), settings.process_set)
