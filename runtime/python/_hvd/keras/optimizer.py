# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer for the optimizers of every Keras.

The class of the result is a subclass of (Distributed3, DistributedNew or DistributedLegacy, the user's
class). It has the name and module of the user's class, so a model saved with it loads without Horovod.
"""

import warnings

from _hvd.elastic_keras import is_eager
from _hvd.keras.settings import Distributed, Settings, keras_of, plain_class


def _kind(optimizer):
    """Returns the module and the class that implement distributed optimizers of this optimizer's kind.

    Raises TypeError for anything but an optimizer of Keras 2 or 3.
    """
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
    """Whether the optimizer has created its variables, which it does for the variables of a model."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(inner, "built", False) or getattr(inner, "_built", False):
        return True
    return len(getattr(inner, "_weights", ())) > 1


def _shared(cls, optimizer):
    """Returns an optimizer of class cls that shares the attributes of this one, its variables included."""
    made = cls.__new__(cls)
    made.__dict__.update(optimizer.__dict__)
    made.__dict__.pop("_hvd_run", None)
    return made


def _converted(cls, optimizer):
    """Returns an optimizer of class cls with the configuration and the state of this one.

    It shares the variables of an optimizer that is built; otherwise it is a new one.
    """
    if _is_built(optimizer):
        return _shared(cls, optimizer)
    try:
        made = cls.from_config(optimizer.get_config())
    except Exception:  # a user's class that Keras cannot create from its config alone
        return _shared(cls, optimizer)
    _take_over(made, optimizer)
    return made


def _take_over(made, optimizer):
    """Copies what no config contains to `made`: attributes that were set later (exclude_from_weight_decay),
    and the number of steps."""
    for name, value in vars(optimizer).items():
        if name != "_hvd_run":
            vars(made).setdefault(name, value)
    done = vars(optimizer).get("_iterations")
    if done is not None and is_eager():
        _ = made.iterations  # creates the variable; with accumulation the property is a quotient of it
        made._iterations.assign(done)
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        _take_over(made.inner_optimizer, inner)


def distributed_class(optimizer, settings):
    """Returns the distributed class of this optimizer: a new class, with `settings` as an attribute."""
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
    """Gives `made` the registered name of `base`, so that models are saved with it; loading by that name
    still finds `base`. A class that is not registered is left alone.

    keras.utils has these functions in every Keras; keras.saving lacks them in that of TensorFlow 2.12.
    """
    name = keras.utils.get_registered_name(base) if keras else base.__name__
    if ">" in name:
        register = keras.utils.register_keras_serializable(*name.split(">", 1))
        objects = keras.utils.get_custom_objects()
        objects.pop(name, None)  # otherwise that Keras raises an error: the name is taken
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
    """Returns a distributed optimizer with the configuration and state of `optimizer`.

    options: the arguments of Settings. The caller should no longer use `optimizer`: once built, both share
    their variables. Raises TypeError for anything but an optimizer of Keras, and ValueError or TypeError
    for options that are not valid.
    """
    settings = Settings(**options)
    module, _ = _kind(optimizer)
    _check_inner(optimizer)
    if isinstance(optimizer, Distributed):
        warnings.warn(
            "DistributedOptimizer around a DistributedOptimizer: the arguments of the outer one count, and "
            "gradients are reduced once",
            stacklevel=4,
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
    """Makes the optimizer of a loaded model distributed in place; it keeps its state.

    An optimizer that was saved with backward_passes_per_step > 1 already has the accumulation set.
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
    """Returns a list of the trainable variables of a layer or of a list of layers; None has none.

    Raises ValueError for anything else.
    """
    if layers is None:
        return []
    if not isinstance(layers, (list, tuple, set)):
        layers = [layers]
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return [v for layer in layers for v in layer.trainable_weights]
