# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with op=Adasum: combines each parameter's change, not its gradient.

When a parameter's gradient is complete, the user's optimizer takes its step on that parameter alone; the
change (-rate * f(gradient)) is sent to the other ranks from the parameter's own memory. step() restores the
parameter and adds the combined change. Between backward() and step() a parameter therefore holds its
change, as in Horovod.

Invariant: after finish() every parameter holds a value again, even when a collective failed: then the
one from before the step.
"""

import weakref

import torch

from _hvd import handles
from _hvd.basics import Adasum
from _hvd.torch.grad_hooks import Listener
from _hvd.torch.submit import submit_allreduce
from _hvd.torch.tensors import read_here, where


class Delta:
    """One parameter's change while it is reduced."""

    __slots__ = ("handle", "sent", "ctx", "place")

    def __init__(self, change, name, settings):
        self.sent, self.ctx = change, None
        if settings.compresses:
            self.sent, self.ctx = settings.compression.compress(change)
        self.place = where(self.sent)
        args = (f"allreduce.{name}", Adasum, 1.0, 1.0, 0)
        self.handle = submit_allreduce(self.sent, self.sent, *args, compression=settings.wire)

    def finish(self, settings):
        handles.finish(self.handle)
        read_here(self.sent, self.place)
        return settings.compression.decompress(self.sent, self.ctx) if settings.compresses else self.sent


class DeltaReducer(Listener):
    def __init__(self, names, settings, passes, optimizer):
        super().__init__(names, settings, passes)
        self.pending = {}  # parameter -> its Delta, None while gradients accumulate
        self.before = {}  # parameter -> its value before the step, while its change is reduced
        self._optimizer = weakref.ref(optimizer)
        self.attach(optimizer.param_groups)

    def ready(self, p):
        optimizer = self._optimizer()
        if optimizer is None:
            return
        left = self.count(p)
        self.pending[p] = None if left else self._start(p, optimizer)

    @torch.no_grad()
    def _start(self, p, optimizer):
        """Takes the step of p alone and sends its change."""
        stashed = [group["params"] for group in optimizer.param_groups]
        self.before[p] = p.detach().clone()
        try:
            for group, params in zip(optimizer.param_groups, stashed):
                group["params"] = [p] if any(p is q for q in params) else []
            optimizer._hvd_base.step(optimizer)
        finally:
            for group, params in zip(optimizer.param_groups, stashed):
                group["params"] = params
        change = p.detach()
        change.sub_(self.before[p])
        return Delta(change, self.names[p], self.settings)

    @torch.no_grad()
    def finish(self, optimizer):
        """All parameters get their combined changes."""
        error = None
        self.attach(optimizer.param_groups)
        for p in self.delay:
            if self.pending.get(p) is None and (p in self.pending or p.requires_grad):
                self.pending[p] = self._start(p, optimizer)
        handles.wait_for([delta.handle for delta in self.pending.values()])
        for p, delta in list(self.pending.items()):
            try:
                change = delta.finish(self.settings)
                p.copy_(self.before[p].add_(change))
            except Exception as e:
                p.copy_(self.before[p])
                error = error or e
            read_here(self.before[p], delta.place)
            del self.pending[p], self.before[p]
        self.reset()
        if error is not None:
            raise error

    def reset(self):
        """Resets; changes that were sent and not waited for are undone."""
        with torch.no_grad():
            for p, value in self.before.items():
                p.copy_(value)
        self.before.clear()
        self.pending.clear()
        for p in self.delay:
            self.delay[p] = self.passes
