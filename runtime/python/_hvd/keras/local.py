# SPDX-License-Identifier: Apache-2.0
"""Decisions about all gradients that local ones, which differ between ranks, take part in.

- Loss scaling skips a step if a gradient is not finite.
- `global_clipnorm` scales all gradients by their common norm.

If each rank decided by its own local gradients, the weights that all ranks share would become different.
So ranks exchange one number for each local gradient, and all decide alike, as one model does that has the
local variables of every rank. Optimizers without local variables exchange nothing here.
"""

import contextlib
import types

from _hvd.basics import Sum
from _hvd.keras.reduction import reducer
from _hvd.keras.settings import backend_of, innermost, keras_of, keys_of


def are_local(optimizer, variables):
    """Returns a list of bool: which of these are local variables of this distributed optimizer. All are
    False if it has no other rank to exchange with."""
    local = optimizer._hvd.local_keys()
    if not local or optimizer._hvd_settings.is_alone():
        return [False] * len(variables)
    return [bool(local & keys_of(v)) for v in variables]


def agreed(optimizer, grads, variables):
    """Returns the gradients, for a check whether all are finite: if a local one is not finite on some rank,
    the local ones are not a number on all ranks."""
    grads = list(grads)
    at = [i for i, mine in enumerate(are_local(optimizer, variables)) if mine and grads[i] is not None]
    if not at:
        return grads
    math = _math(optimizer)
    bad = [1.0 - math.cast(math.all(math.isfinite(_values(grads[i]))), "float32") for i in at]
    is_finite = math.sum(_summed(optimizer, bad)) == 0
    for i in at:
        grads[i] = _with_values(grads[i], math.where(is_finite, _values(grads[i]), float("nan")))
    return grads


@contextlib.contextmanager
def clipping(optimizer, grads, variables):
    """Within this context `global_clipnorm` of the optimizer, or of the one within its loss scaling, counts
    the local gradients of all ranks. grads, variables: what Keras is about to apply."""
    inner = innermost(optimizer)
    replaces = getattr(optimizer, "_overwrite_variable_with_gradient", lambda v: False)
    known = zip(grads, variables, are_local(optimizer, variables))
    is_local = [mine for g, v, mine in known if g is not None and not replaces(v)]
    if not any(is_local):
        yield
        return
    before = vars(inner).get("_hvd_clip")
    inner.__dict__["_hvd_clip"] = lambda grads, limit: _clipped(optimizer, grads, is_local, limit)
    try:
        yield
    finally:
        inner.__dict__["_hvd_clip"] = before


def _clipped(optimizer, grads, is_local, limit):
    """Returns the gradients scaled as Keras does it for global_clipnorm=limit."""
    math = _math(optimizer)
    wide = "float64" if any("float64" in str(g.dtype) for g in grads) else "float32"
    squares = [math.sum(math.square(math.cast(_values(g), wide))) for g in grads]
    shared = [s for s, mine in zip(squares, is_local) if not mine]
    total = math.sum(_summed(optimizer, [s for s, mine in zip(squares, is_local) if mine]))
    norm = math.sqrt(sum(shared, total))
    factor = limit * math.minimum(1.0 / norm, 1.0 / limit)
    factor += norm - norm  # not a number if the norm is not finite
    return [_with_values(g, _values(g) * math.cast(factor, g.dtype)) for g in grads]


def _summed(optimizer, numbers):
    """Returns a list of scalars as one tensor, summed over the ranks."""
    run, settings = optimizer._hvd, optimizer._hvd_settings
    if run.sums is None:
        backend = backend_of(keras_of(optimizer))
        run.sums = reducer(backend, f"{optimizer._hvd_name()}.local", settings.of_values(Sum))
    return run.sums([_math(optimizer).stack(numbers)], [None])[0]


def _values(grad):
    return grad.values if hasattr(grad, "dense_shape") else grad


def _with_values(grad, values):
    return type(grad)(values, grad.indices, grad.dense_shape) if hasattr(grad, "dense_shape") else values


def _math(optimizer):
    """Returns the functions of the optimizer's Keras: keras.ops, or TensorFlow's by these names."""
    keras = keras_of(optimizer)
    if hasattr(keras, "ops"):
        return keras.ops
    import tensorflow as tf

    same = {name: getattr(tf, name) for name in ("cast", "minimum", "sqrt", "square", "stack", "where")}
    return types.SimpleNamespace(all=tf.reduce_all, isfinite=tf.math.is_finite, sum=tf.reduce_sum, **same)


def clip_over_all_ranks(kind):
    """Patches an optimizer class of Keras, once per process, for `clipping`."""
    if "_hvd_clips" in vars(kind):
        return
    kind._hvd_clips = True
    is_legacy = hasattr(kind, "_transform_gradients")
    plain = kind._transform_gradients if is_legacy else kind._clip_gradients

    def clip(self, grads):
        ours = vars(self).get("_hvd_clip")
        if ours is None or self.clipnorm or not self.global_clipnorm:
            return plain(self, grads)
        return ours(grads, self.global_clipnorm)

    def transform(self, pairs):
        ours, limit = vars(self).get("_hvd_clip"), self.global_clipnorm
        if ours is None or limit is None:
            return plain(self, pairs)
        if self.clipvalue is not None:
            pairs = self._clipvalue_fn(pairs)
        grads, variables = zip(*pairs)
        return list(zip(ours(grads, limit), variables))

    if is_legacy:
        kind._transform_gradients = transform
    else:
        kind._clip_gradients = clip
