# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: reduces gradients over all ranks while backward() still computes others.

Design. The returned object is an instance of a class made from the user's optimizer class, with
`_DistributedOptimizer` before it in the method resolution order; it shares the wrapped optimizer's
parameter groups, state and defaults, so that state loaded before wrapping is kept and schedulers
made before wrapping still reach the same groups. A hook on each parameter submits its gradient as
soon as it has been accumulated `backward_passes_per_step` times; step() waits for all of them.

Invariants
 - Every rank submits every parameter exactly once a step: gradients that were not computed here are
   submitted as zeros, because another rank may have computed them.
 - A failed collective leaves nothing pending: all operations of the step have ended before the
   error is raised, so the optimizer can be reset by load_state_dict().
 - Hooks hold the optimizer weakly: one that was dropped and replaced reduces nothing any more.
"""

import functools
import warnings
import weakref
from contextlib import contextmanager

import torch

from _hvd import basics
from _hvd.absent import refuse
from _hvd.basics import Adasum, Average, check_reduce_op
from _hvd.process_sets import global_process_set, process_set_id
from _hvd.torch import grad_hooks
from _hvd.torch.compression import Compression
from _hvd.torch.mpi_ops import allreduce_async_, synchronize


def _find_duplicates(names):
    seen = set()
    dups = set()
    for name in names:
        if name in seen:
            dups.add(name)
        seen.add(name)
    return dups


def _check_names(named_parameters, param_groups):
    """named_parameters as {parameter: name}, or Horovod's ValueErrors."""
    if named_parameters is None:
        return {
            p: f"allreduce.noname.{g}.{i}"
            for g, group in enumerate(param_groups)
            for i, p in enumerate(group["params"])
        }
    named_parameters = list(named_parameters)
    if any(not isinstance(p, tuple) for p in named_parameters):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually "
            "produced by model.named_parameters()."
        )
    dups = _find_duplicates([k for k, _ in named_parameters])
    if dups:
        raise ValueError(
            "Parameter names in named_parameters must be unique. "
            f"Found duplicates: {', '.join(sorted(dups))}"
        )
    all_ids = {id(p) for group in param_groups for p in group["params"]}
    unnamed = all_ids - {id(p) for _, p in named_parameters}
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Python object ids: {', '.join(str(i) for i in sorted(unnamed))}"
        )
    return {p: name for name, p in named_parameters}


class _DistributedOptimizer:
    """Mixed in before the user's optimizer class; see DistributedOptimizer()."""

    def _hvd_setup(
        self,
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
    ):
        self._parameter_names = _check_names(named_parameters, self.param_groups)
        self._compression = compression
        self.backward_passes_per_step = backward_passes_per_step
        self.op = op
        self.gradient_predivide_factor = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._handles = {}  # parameter -> (handle or None while accumulating, compressed, context)
        self._allreduce_delay = {}
        self._grad_hooks = []
        self._synchronized = False
        self._should_synchronize = True
        self._is_distributed = basics.size() > 1
        if self._is_distributed:
            for group in self.param_groups:
                self._register_hooks(group["params"])

    def _register_hooks(self, params):
        for p in params:
            if p.requires_grad and p not in self._allreduce_delay:
                self._allreduce_delay[p] = self.backward_passes_per_step
                self._grad_hooks.append(grad_hooks.on_gradient(p, self._make_hook(p)))

    def _make_hook(self, p):
        optimizer = weakref.ref(self)

        def hook():
            self = optimizer()
            if self is not None:
                self._gradient_ready(p)

        return hook

    def _gradient_ready(self, p):
        if self._handles.get(p, (None,))[0] is not None and self._allreduce_delay[p] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call "
                "to step(). Increase backward_passes_per_step to accumulate gradients locally."
            )
        assert not p.grad.requires_grad
        assert self._allreduce_delay[p] > 0
        self._allreduce_delay[p] -= 1
        if self._allreduce_delay[p] == 0:
            self._handles[p] = self._allreduce_grad_async(p)
        else:
            self._handles[p] = (None, None, None)

    def _allreduce_grad_async(self, p):
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        if p.grad.is_sparse:
            if not self.sparse_as_dense:
                refuse("the reduction of sparse gradients", "pass sparse_as_dense=True")
            p.grad = p.grad.to_dense()
        compressed, ctx = self._compression.compress(p.grad)
        factor = self.gradient_predivide_factor if self.op == Average else 1.0
        handle = allreduce_async_(
            compressed,
            name=self._parameter_names[p],
            op=self.op,
            prescale_factor=1.0 / factor,
            postscale_factor=factor,
            process_set=self.process_set,
        )
        return handle, compressed, ctx

    def set_backward_passes_per_step(self, passes):
        self.backward_passes_per_step = passes
        for p in self._allreduce_delay:
            self._allreduce_delay[p] = passes

    def load_state_dict(self, *args, **kwargs):
        self._handles = {}
        self._synchronized = False
        self._should_synchronize = True
        for p in self._allreduce_delay:
            self._allreduce_delay[p] = self.backward_passes_per_step
        return super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group):
        """Parameters added after wrapping are reduced too (Horovod leaves them out silently)."""
        super().add_param_group(param_group)
        names = getattr(self, "_parameter_names", None)
        if names is None:
            return  # called by a base class' constructor, before _hvd_setup
        group = len(self.param_groups) - 1
        for i, p in enumerate(self.param_groups[-1]["params"]):
            names.setdefault(p, f"allreduce.noname.{group}.{i}")
        if self._is_distributed:
            self._register_hooks(self.param_groups[-1]["params"])

    def synchronize(self):
        """Waits for the reduction of all gradients; submits those that were not computed."""
        error = None
        try:
            for p in self._allreduce_delay:
                if self._handles.get(p, (None,))[0] is None:
                    self._handles[p] = self._allreduce_grad_async(p)
        except Exception as e:
            error = e
        for p, (handle, _, ctx) in self._handles.items():
            self._allreduce_delay[p] = self.backward_passes_per_step
            if handle is None:
                continue
            try:
                reduced = self._compression.decompress(synchronize(handle), ctx)
            except Exception as e:
                error = error or e
                continue
            if reduced is not p.grad:
                with torch.no_grad():
                    p.grad.copy_(reduced)
        self._handles.clear()
        if error is not None:
            raise error
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self):
        """step() inside does not synchronize; for use after an explicit synchronize()."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This can cause training slowdown. You may want to "
                    "consider using optimizer.skip_synchronize() context if you use "
                    "optimizer.synchronize() in your code.",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        return super().step(closure)

    def zero_grad(self, *args, **kwargs):
        if self._handles:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause "
                "a race condition."
            )
        return super().zero_grad(*args, **kwargs)


@functools.lru_cache(maxsize=None)
def _distributed_class(base):
    """A class named like the user's, so that its name in checkpoints and logs stays."""
    return type(base.__name__, (_DistributedOptimizer, base), {"__module__": base.__module__})


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

    named_parameters: model.named_parameters(); gives the operations the names that error messages
    and traces show. backward_passes_per_step: how many backward() calls accumulate locally before
    gradients are reduced. gradient_predivide_factor: with op=Average, divides by the factor before
    the sum and by size/factor after it.
    """
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("this optimizer is a DistributedOptimizer already; wrap it once")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups or groups:
        refuse("DistributedOptimizer(groups=...)", "leave it out: results do not depend on it")
    if op == Adasum and basics.size() == 1:
        op = Average  # with one rank they are the same, and Horovod takes this way too
    check_reduce_op(op)
    process_set_id(process_set)

    wrapped = object.__new__(_distributed_class(optimizer.__class__))
    wrapped.__dict__.update(optimizer.__dict__)
    # A scheduler made before wrapping has put its own `step` into the instance: kept, it would call
    # the unwrapped optimizer and train without synchronisation.
    wrapped.__dict__.pop("step", None)
    wrapped._hvd_setup(
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
    )
    return wrapped
