# SPDX-License-Identifier: Apache-2.0
"""load_model: loads a saved Keras model with a distributed optimizer that keeps its state.

Keras loads the model, and then the class of its optimizer is replaced. Horovod instead passes functions
under the optimizers' names, which Keras 3 does not accept.

The file contains the optimizer's arguments but not those of DistributedOptimizer, so they are passed to
load_model again.
"""

from _hvd.keras.optimizer import wrap_in_place
from _hvd.keras.settings import Settings, innermost


def _objects(custom_optimizers, custom_objects):
    found = {}
    for cls in custom_optimizers or ():
        found[cls.__name__] = cls
        found[cls.__name__.lower()] = cls
    found.update(custom_objects or {})
    return found or None


def _check_passes(optimizer, filepath, is_given):
    """Raises ValueError if the loaded optimizer accumulates and backward_passes_per_step is not given: the
    file of Keras 3 does not show who set the accumulation, and so whether passes are summed or averaged."""
    steps = getattr(innermost(optimizer), "gradient_accumulation_steps", None)
    if steps and not is_given:
        raise ValueError(
            f"the optimizer in {filepath} adds up the gradients of {steps} passes: give load_model "
            f"backward_passes_per_step={steps} if hvd.DistributedOptimizer had it, or 1 if it was the "
            f"optimizer's own gradient_accumulation_steps={steps}"
        )


def load_model(keras, filepath, custom_optimizers, custom_objects, options):
    """See Api.load_model(). keras: the Keras module. options: {argument of DistributedOptimizer: value}."""
    settings = Settings(**options)
    model = keras.models.load_model(filepath, custom_objects=_objects(custom_optimizers, custom_objects))
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        _check_passes(optimizer, filepath, "backward_passes_per_step" in options)
        wrap_in_place(innermost(optimizer), settings)  # as compile() has it: loss scaling around it
    return model
