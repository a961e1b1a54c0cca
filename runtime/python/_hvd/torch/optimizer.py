# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: reduces gradients over all ranks while backward() still computes others.

Design. The returned object's class is derived from the user's optimizer class, with the methods of
`_DistributedOptimizer`. The user's class is its only base, as with Horovod, because Lightning builds its
own class over `__bases__[0]`. It shares the wrapped optimizer's parameter groups, state and defaults, so
loaded state is kept and schedulers created before wrapping still reach the same groups. All further state
is one object, `_hvd` (reducer.py, or adasum.py), so that wrappers which copy `__dict__` share the pending
gradients.

    optimizer.py    arguments; the class; step, zero_grad, closures, copies, pickling
    parameters.py   names and groups of parameters
    reducer.py      hooks; when gradients go out; waiting for all of them
    reduction.py    the way of one gradient
    adasum.py       op=Adasum: what is combined is the change of a parameter
"""

import copy
import warnings
from contextlib import contextmanager

import torch

from _hvd import basics
from _hvd.basics import Adasum, Average, Sum
from _hvd.options import check_predivide, named_options, renamed_groups
from _hvd.process_sets import global_process_set, is_elastic, process_set_id
from _hvd.torch.adasum import DeltaReducer
from _hvd.torch.compression import Compression
from _hvd.torch.parameters import check_groups, names_of
from _hvd.torch.reducer import Reducer
from _hvd.torch.reduction import Settings
from _hvd.torch.replica import after_step

_EARLY_ZERO = (
    "optimizer.zero_grad() was called after loss.backward() but before "
    "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause "
    "a race condition."
)
_NOT_SKIPPED = (
    "optimizer.step() called without optimizer.skip_synchronize() context after "
    "optimizer.synchronize(). This can cause training slowdown. You may want to "
    "consider using optimizer.skip_synchronize() context if you use "
    "optimizer.synchronize() in your code."
)


class _Common:
    """Methods of both kinds of optimizer; `_hvd_base` is the user's class."""

    def set_backward_passes_per_step(self, passes):
        """Sets the number of backward() per step from now on."""
        self._hvd.passes = passes
        for p in self._hvd.delay:
            self._hvd.delay[p] = passes

    def load_state_dict(self, *args, **kwargs):
        self._hvd.reset()
        result = self._hvd_base.load_state_dict(self, *args, **kwargs)
        # Schedulers created before wrapping use the wrapped optimizer's groups.
        self._hvd_plain.state, self._hvd_plain.param_groups = self.state, self.param_groups
        return result

    def add_param_group(self, param_group):
        """Parameters added after wrapping are reduced too (Horovod leaves them out silently)."""
        self._hvd_base.add_param_group(self, param_group)
        self._hvd.attach(self.param_groups)

    def zero_grad(self, set_to_none=None):
        if self._hvd.pending and not self._hvd.drop_foreign():
            raise AssertionError(_EARLY_ZERO)
        if set_to_none is None:
            return self._hvd_base.zero_grad(self)
        return self._hvd_base.zero_grad(self, set_to_none=set_to_none)

    def _hvd_note_step(self):
        """Schedulers created before wrapping check whether the wrapped optimizer has taken a step."""
        plain = self._hvd_plain
        plain._opt_called = True
        plain._step_count = getattr(plain, "_step_count", 0) + 1

    # The world is not part of what is copied or saved: a copy registers hooks of its own.

    def __copy__(self):
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo):
        names = copy.deepcopy(list(self._hvd.names.items()), memo)
        state = copy.deepcopy(self._hvd_base.__getstate__(self), memo)
        groups = self._hvd_options["groups"]
        options = dict(self._hvd_options, groups=copy.deepcopy(groups, memo))
        return _rebuild(self._hvd_base, state, names, options)

    def __reduce_ex__(self, protocol):
        options = dict(self._hvd_options)
        if options["process_set"] is global_process_set:
            del options["process_set"]  # its default: the one of the process that loads it
        names = list(self._hvd.names.items())
        return _rebuild, (self._hvd_base, self._hvd_base.__getstate__(self), names, options)


class _DistributedOptimizer(_Common):
    """What a DistributedOptimizer adds to the user's optimizer; see DistributedOptimizer()."""

    def synchronize(self):
        """Waits for the reduction of all gradients; submits those that were not computed."""
        self._hvd.synchronize(self.param_groups)

    @contextmanager
    def skip_synchronize(self):
        """step() inside does not synchronize; for use after an explicit synchronize()."""
        self._hvd.should_synchronize = False
        try:
            yield
        finally:
            self._hvd.should_synchronize = True

    def step(self, closure=None, *args, **kwargs):
        """Waits for the gradients, then steps. Those that the closure computes are reduced after it."""
        hvd = self._hvd
        self._hvd_note_step()
        if closure is not None:
            args = (self._hvd_closure(closure), *args)
        else:
            if hvd.should_synchronize:
                if hvd.synchronized:
                    warnings.warn(_NOT_SKIPPED, stacklevel=2)
                hvd.synchronize(self.param_groups)
            hvd.synchronized = False
        result = self._hvd_base.step(self, *args, **kwargs)
        after_step(self)
        return result

    def _hvd_closure(self, closure):
        hvd = self._hvd
        must = hvd.should_synchronize
        if hvd.pending and must:
            hvd.synchronize(self.param_groups)
            must = False
        hvd.synchronized = False

        def reduced():
            nonlocal must
            loss = closure()
            if hvd.pending or must:
                hvd.synchronize(self.param_groups)
                must = hvd.synchronized = False
            return loss

        return reduced

    # The base class of torch 2 would wrap it for its hooks and its profile: super().step has them.
    step.hooked = True


class _DistributedAdasumOptimizer(_Common):
    """op=Adasum: each parameter's change is computed here and combined; see adasum.py."""

    def synchronize(self):
        """Does nothing: with Adasum, gradients are not exchanged."""

    @contextmanager
    def skip_synchronize(self):
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def step(self, closure=None):
        self._hvd_note_step()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._hvd.finish(self)
        after_step(self)
        return loss

    step.hooked = True


def _reader(name):
    return property(lambda self: getattr(self._hvd.settings, name))


def _class_over(base, kind):
    """The class of distributed optimizers over the user's; named like it, so that its name in
    checkpoints and logs stays."""
    slot = f"_hvd{kind.__name__}"
    if slot not in base.__dict__:
        body = {**vars(_Common), **vars(kind)}
        del body["__dict__"], body["__weakref__"]
        body.update(_hvd_base=base, __module__=base.__module__, __doc__=base.__doc__)
        body["backward_passes_per_step"] = property(lambda self: self._hvd.passes)
        for name in ("op", "sparse_as_dense", "process_set"):
            body[name] = _reader(name)
        body["_parameter_names"] = property(lambda self: self._hvd.names)  # Horovod's name of it
        body["gradient_predivide_factor"] = _reader("predivide")
        setattr(base, slot, type(base.__name__, (base,), body))
    return base.__dict__[slot]


def _rebuild(base, state, names, options):
    """A copy, or what pickle has loaded."""
    plain = object.__new__(base)
    plain.__setstate__(state)
    named = [(name, p) for p, name in names]
    made = DistributedOptimizer(plain, named, **options)
    made._hvd.take_no_place()  # this rank may be the only one with a copy
    return made


def _check(optimizer, op, gradient_predivide_factor, backward_passes_per_step, process_set):
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
    if hasattr(optimizer, "_hvd_base"):
        raise ValueError("this optimizer is a DistributedOptimizer already; wrap it once")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "torch.optim.LBFGS cannot be distributed: each rank would search and stop by its own loss, "
            "and the models would part; use another optimizer"
        )
    check_predivide(gradient_predivide_factor, op)
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if op not in (Average, Sum, Adasum):
        raise ValueError(f"op must be hvd.Average, hvd.Sum or hvd.Adasum for gradients, not {op!r}")
    process_set_id(process_set)


@named_options
def DistributedOptimizer(
    optimizer,
    named_parameters=None,
    compression=Compression.none,
    backward_passes_per_step=1,
    op=Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    sparse_as_dense=False,
    process_set=global_process_set,
):
    """Wraps a torch optimizer so that step() applies gradients reduced over all ranks.

    named_parameters: model.named_parameters(); names the operations in error messages and traces.
    compression: hvd.Compression.*, or a class with compress(tensor) and decompress(tensor, context).
    backward_passes_per_step: how many backward() calls accumulate locally before gradients are reduced. op:
    hvd.Average, hvd.Sum or hvd.Adasum. gradient_predivide_factor: with op=Average, divides by the factor
    before the sum and by size/factor after it. groups: a number, or lists of parameters, whose gradients
    are reduced together. sparse_as_dense: reduces sparse gradients as dense ones. process_set: the ranks
    that take part; others step with their own gradients.
    """
    _check(optimizer, op, gradient_predivide_factor, backward_passes_per_step, process_set)
    groups = renamed_groups(num_groups, groups, 3)
    check_groups(groups)
    names = names_of(named_parameters, optimizer.param_groups)
    options = {
        "compression": compression,
        "backward_passes_per_step": backward_passes_per_step,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "groups": groups,
        "sparse_as_dense": sparse_as_dense,
        "process_set": process_set,
    }
    if op == Adasum and (basics.size() > 1 or is_elastic()):
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        kind = _DistributedAdasumOptimizer
    else:
        kind = _DistributedOptimizer
        op = Average if op == Adasum else op  # alone they are the same
    settings = Settings(compression, op, gradient_predivide_factor, sparse_as_dense, process_set)

    wrapped = object.__new__(_class_over(type(optimizer), kind))
    wrapped.__dict__.update(optimizer.__dict__)
    # A scheduler created before wrapping has put its own `step` into the instance; if kept, it would call
    # the unwrapped optimizer and train without synchronisation.
    wrapped.__dict__.pop("step", None)
    wrapped._hvd_plain = optimizer
    wrapped._hvd_options = options
    if kind is _DistributedOptimizer:
        passes = backward_passes_per_step
        wrapped._hvd = Reducer(names, settings, passes, groups, optimizer.param_groups)
    else:
        wrapped._hvd = DeltaReducer(names, settings, backward_passes_per_step, wrapped)
    return wrapped
