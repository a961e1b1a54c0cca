# SPDX-License-Identifier: Apache-2.0
"""The checked arguments of DistributedOptimizer, and the state of one distributed optimizer.

`Settings` belong to the class of the distributed optimizer, so that its from_config() creates one that is
distributed in the same way. A `Run` belongs to one instance.
"""

import contextlib
import copy
import sys

from _hvd.basics import Average, Sum
from _hvd.options import check_predivide, renamed_groups
from _hvd.process_sets import global_process_set, is_alone
from _hvd.replica import Guard


class Settings:
    """The arguments of DistributedOptimizer. Never changed after its creation.

    Raises ValueError or TypeError for values that are not allowed.
    """

    def __init__(
        self,
        name=None,
        device_dense="",
        device_sparse="",
        compression=None,
        sparse_as_dense=False,
        gradient_predivide_factor=1.0,
        op=Average,
        backward_passes_per_step=1,
        average_aggregated_gradients=False,
        num_groups=0,
        groups=None,
        process_set=global_process_set,
        scale_local_gradients=True,
    ):
        if op not in (Average, Sum):
            raise ValueError("op currently only supports Average and Sum")
        check_predivide(gradient_predivide_factor, op)
        if isinstance(backward_passes_per_step, bool) or not isinstance(backward_passes_per_step, int):
            raise TypeError(
                f"backward_passes_per_step must be an integer, not {backward_passes_per_step!r}"
            )
        if backward_passes_per_step < 1:
            raise ValueError("backward_passes_per_step must be > 0")
        self.name = name
        self.device_dense = device_dense
        self.device_sparse = device_sparse
        self.compression = compression
        self.sparse_as_dense = sparse_as_dense
        self.predivide = gradient_predivide_factor
        self.op = op
        self.passes = backward_passes_per_step
        self.averages_passes = average_aggregated_gradients
        self.groups = _checked_groups(num_groups, groups)
        self.process_set = process_set
        self.scales_local = scale_local_gradients

    def of_values(self, op):
        """Returns the settings for values that are not gradients and are reduced by op."""
        settings = copy.copy(self)
        settings.op, settings.predivide, settings.compression, settings.groups = op, 1.0, None, None
        return settings

    def scales(self, times=1):
        """Returns (prescale, postscale) for the runtime's reduction, with the result multiplied by
        `times`."""
        factor = self.predivide if self.op == Average else 1.0
        return 1.0 / factor, factor * times

    def of_passes(self):
        """Returns the factor for the mean over the backward passes: 1, or the number of passes for a
        sum."""
        return 1 if self.averages_passes else self.passes

    def is_alone(self):
        """Whether there is no other rank to reduce with: one rank that stays alone, or a set without this
        rank."""
        return is_alone(self.process_set)


def _checked_groups(num_groups, groups):
    groups = renamed_groups(num_groups, groups, 6)
    if groups is None:
        return None
    is_list = isinstance(groups, list) and all(isinstance(g, (list, tuple)) for g in groups)
    if not is_list and (isinstance(groups, bool) or not isinstance(groups, int) or groups < 0):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    return groups or None


def backend_variable(variable):
    """Returns the TensorFlow or torch variable inside a Keras 3 variable; any other variable unchanged."""
    inner = variable.__dict__.get("_value") if hasattr(variable, "__dict__") else None
    return variable if inner is None else inner


def keys_of(variable):
    """Returns the set of ids that identify a variable: for a Keras 3 variable also that of the inner
    one."""
    return {id(variable), id(backend_variable(variable))}


class Run:
    """State of one distributed optimizer, not saved: its reducers, its local variables, and whether a call
    of it is running."""

    def __init__(self):
        self.inside = False
        self.local_variables = []
        self.reduce = None  # created at the first gradient: by then hvd.init() has been called
        self.maxima = self.sums = None  # as reduce
        self.helper = None
        self.guard = Guard()
        self.has_computed = self.has_warned_changed = False

    @contextlib.contextmanager
    def entered(self):
        """Nested calls of the optimizer within this context do not reduce."""
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before

    def register(self, variable):
        """Adds a local variable, whose gradient is not reduced. The Run keeps a reference to it."""
        self.local_variables.append(variable)

    def local_keys(self):
        """Returns the set of keys_of() all local variables."""
        return {key for v in self.local_variables for key in keys_of(v)}


class Distributed:
    """Base of all distributed optimizers: `isinstance(optimizer, Distributed)`."""

    is_used = False  # whether this process has created one
    _hvd_settings = Settings()

    @property
    def _hvd(self):
        run = self.__dict__.get("_hvd_run")
        if run is None:
            run = Run()
            object.__setattr__(self, "_hvd_run", run)  # Keras' own __setattr__ would track the object
        return run

    def register_local_var(self, var):
        """Excludes the gradient of this variable from the reduction. It is divided by the number of ranks,
        unless scale_local_gradients=False."""
        self._hvd.register(var)
        if self._hvd.helper is not None:
            self._hvd.helper.register_local_var(var)

    def _hvd_name(self):
        """Returns the prefix of the operations' names, the same on all ranks. (Keras' names count
        instances.)

        It does not depend on where loss scaling is: Keras' compile() may add it around the optimizer.
        """
        return self._hvd_settings.name or f"Distributed{type(innermost(self)).__name__}"


def innermost(optimizer):
    """Returns the inner optimizer of a LossScaleOptimizer; any other optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def plain_class(optimizer):
    """Returns the optimizer's class; if it is distributed, the user's class that it was created from."""
    cls = type(optimizer)
    return cls.__bases__[1] if issubclass(cls, Distributed) else cls


def keras_of(thing):
    """Returns the module, keras or tf_keras, of a model or optimizer, also of a user's subclass; else
    None."""
    roots = (cls.__module__.split(".")[0] for cls in type(thing).__mro__)
    return next((sys.modules[root] for root in roots if root in ("keras", "tf_keras")), None)


def backend_of(keras):
    """Returns the name of a Keras module's back end, such as tensorflow, torch or jax; always tensorflow
    for Keras 2."""
    return keras.backend.backend() if hasattr(keras, "ops") else "tensorflow"


def is_distributed(optimizer):
    """Whether this optimizer, or one inside it (loss scaling, MultiOptimizer), reduces gradients."""
    if isinstance(optimizer, Distributed):
        return True
    inner = getattr(optimizer, "inner_optimizer", None)
    within = getattr(optimizer, "optimizers", ()) if inner is None else (inner,)
    return isinstance(within, (list, tuple)) and any(is_distributed(one) for one in within)
