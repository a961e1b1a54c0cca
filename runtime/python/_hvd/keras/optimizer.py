# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer for the optimizers of every Keras.

The result is of a class that has the wrapped one's name and module, with Distributed3, DistributedNew or
DistributedLegacy before it: models that were saved with it load where there is no Horovod.
"""

import warnings

from _hvd.elastic_keras import is_eager
from _hvd.keras.settings import Distributed, Settings, keras_of, plain_class


def _kind(optimizer):
    """The module and class that implement a distributed optimizer of this kind."""
    has = lambda name: callable(getattr(optimizer, name, None))  # noqa: E731
    if isinstance(optimizer, type) or not (has("apply_gradients") and has("get_config")):
        raise TypeError(
            f"DistributedOptimizer needs an optimizer of Keras, such as keras.optimizers.SGD(0.1), not "
            f"{optimizer!r}"
        )
    if has("stateless_apply"):
        from _hvd.keras import optimizer3

        return optimizer3, optimizer3.Distributed3
    from _hvd.keras import optimizer2

    for kind in (optimizer2.DistributedLegacy, optimizer2.DistributedNew):
        if kind.is_of(optimizer):
            return optimizer2, kind
    raise TypeError(
        f"DistributedOptimizer: {type(optimizer).__name__} is an optimizer of neither Keras 2 nor Keras 3"
    )


def _is_built(optimizer):
    """Whether the optimizer has variables for those of a model."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(inner, "built", False) or getattr(inner, "_built", False):
        return True
    return len(getattr(inner, "_weights", ())) > 1


def _shared(cls, optimizer):
    """An optimizer of cls with this one's variables and settings."""
    made = cls.__new__(cls)
    made.__dict__.update(optimizer.__dict__)
    made.__dict__.pop("_hvd_run", None)
    return made


def _converted(cls, optimizer):
    """A new optimizer like this one, with its state, so that a loaded one continues."""
    if _is_built(optimizer):
        return _shared(cls, optimizer)
    try:
        made = cls.from_config(optimizer.get_config())
    except Exception:  # a user's class that Keras cannot create from its config alone
        return _shared(cls, optimizer)
    _take_over(made, optimizer)
    return made


def _take_over(made, optimizer):
    """Copies what no config contains: attributes that were set later (exclude_from_weight_decay), steps."""
    for name, value in vars(optimizer).items():
        if name != "_hvd_run":
            vars(made).setdefault(name, value)
    done = vars(optimizer).get("_iterations")
    if done is not None and is_eager():
        _ = made.iterations  # makes it; with accumulation it is not the variable
        made._iterations.assign(done)
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        _take_over(made.inner_optimizer, inner)


def distributed_class(optimizer, settings):
    """The class of this optimizer, made distributed."""
    base = plain_class(optimizer)
    mixin = _kind(optimizer)[1]
    Distributed.is_used = True
    body = {
        "_hvd_settings": settings,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    made = type(base)(base.__name__, (mixin, base), body)
    _register_as(made, base, keras_of(optimizer))
    return made


def _register_as(made, base, keras):
    """A class that its user has registered is saved by that name, under which the plain one is loaded.

    keras.utils has these functions in every Keras; keras.saving not in that of TensorFlow 2.12.
    """
    name = keras.utils.get_registered_name(base) if keras else base.__name__
    if ">" in name:
        register = keras.utils.register_keras_serializable(*name.split(">", 1))
        objects = keras.utils.get_custom_objects()
        objects.pop(name, None)  # which that Keras would call taken
        register(made)
        objects[name] = base


def _check_inner(optimizer):
    inner = getattr(optimizer, "inner_optimizer", None)
    if isinstance(inner, Distributed):
        raise ValueError(
            "the LossScaleOptimizer's inner optimizer is distributed already; use it as it is, without "
            "another DistributedOptimizer around it"
        )


def wrap(optimizer, **options):
    """A distributed optimizer like this one. options: DistributedOptimizer's, as Settings takes them."""
    settings = Settings(**options)
    module, _ = _kind(optimizer)
    _check_inner(optimizer)
    if isinstance(optimizer, Distributed):
        warnings.warn(
            "DistributedOptimizer around a DistributedOptimizer: the arguments of the outer one count, and "
            "gradients are reduced once",
            stacklevel=3,
        )
    elif hasattr(module, "as_compiled"):
        optimizer = module.as_compiled(optimizer)
    made = _converted(distributed_class(optimizer, settings), optimizer)
    module.prepare(made)
    if hasattr(module, "set_passes"):
        before = optimizer._hvd_settings.passes if isinstance(optimizer, Distributed) else 1
        module.set_passes(made, settings.passes, before)
    return made


def wrap_in_place(optimizer, settings):
    """Makes the optimizer of a loaded model distributed in place, with its state.

    Several passes a step belong to what was saved.
    """
    module, _ = _kind(optimizer)
    if isinstance(optimizer, Distributed):
        return
    optimizer.__class__ = distributed_class(optimizer, settings)
    module.prepare(optimizer)
    if hasattr(module, "set_passes"):
        before = module.passes_of(optimizer) if settings.passes > 1 else 1
        module.set_passes(optimizer, settings.passes, before)
        module.begin_step(optimizer)


def layers_variables(layers):
    """The trainable variables of one layer or several."""
    if layers is None:
        return []
    if not isinstance(layers, (list, tuple, set)):
        layers = [layers]
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return [v for layer in layers for v in layer.trainable_weights]
