# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with op=Adasum: combines each parameter's change, not its gradient.

When a parameter's gradient is complete, the user's optimizer takes its step on that parameter alone; the
change (-rate * f(gradient)) is sent to the other ranks, and the parameter gets its value back. step() adds
the combined change. Horovod keeps the change in the parameter until then, so weights that are loaded in
between are lost there.

Pending: {parameter: its Delta, None while its gradient accumulates}.

Invariant: outside of _start() a parameter holds a value. A failed collective does not change it.
"""

import contextlib
import weakref

import torch

from _hvd import handles
from _hvd.basics import Adasum
from _hvd.torch.grad_hooks import Listener
from _hvd.torch.submit import submit_allreduce
from _hvd.torch.tensors import read_here, where


class Delta:
    """One parameter's change while it is reduced."""

    __slots__ = ("handle", "sent", "ctx", "place", "world")

    def __init__(self, change, name, settings):
        self.sent, self.ctx = change, None
        if settings.compresses:
            self.sent, self.ctx = settings.compression.compress(change)
        self.place = where(self.sent)
        self.world = handles.world
        args = (f"allreduce.{name}", Adasum, 1.0, 1.0, 0)
        self.handle = submit_allreduce(self.sent, self.sent, *args, compression=settings.wire)

    def finish(self, settings):
        handles.finish(self.handle)
        read_here(self.sent, self.place)
        return settings.compression.decompress(self.sent, self.ctx) if settings.compresses else self.sent


class DeltaReducer(Listener):
    def __init__(self, names, settings, passes, optimizer):
        super().__init__(names, settings, passes)
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
        """Takes the step of p alone, sends its change and takes the step back."""
        stashed = [group["params"] for group in optimizer.param_groups]
        before = p.detach().clone()
        try:
            for group, params in zip(optimizer.param_groups, stashed):
                group["params"] = [p] if any(p is q for q in params) else []
            optimizer._hvd_base.step(optimizer)
            change = p.detach() - before
        finally:
            for group, params in zip(optimizer.param_groups, stashed):
                group["params"] = params
            p.copy_(before)
        return Delta(change, self.sent_as(p), self.settings)

    def _start_all(self, optimizer):
        """Sends the changes that are not sent yet."""
        for p in self.delay:
            if self.pending.get(p) is None and (p in self.pending or p.requires_grad):
                self.pending[p] = self._start(p, optimizer)

    @torch.no_grad()
    def finish(self, optimizer):
        """All parameters get their combined changes."""
        error = None
        self.attach(optimizer.param_groups)
        self._start_all(optimizer)
        handles.wait_for([delta.handle for delta in self.pending.values()])
        for p, delta in list(self.pending.items()):
            try:
                p.add_(delta.finish(self.settings))
            except Exception as e:
                error = error or e
            del self.pending[p]
        self.end_step()
        self.reset()
        if error is not None:
            raise error

    def reset(self):
        """Drops what is pending. If changes were sent, all ranks call this: the remaining ones are sent
        too, and all end first, because the next ones have the same names."""
        sent = [delta for delta in self.pending.values() if delta is not None]
        optimizer = self._optimizer()
        if optimizer is not None and any(delta.world == handles.world for delta in sent):
            with contextlib.suppress(Exception):
                self._start_all(optimizer)
            for delta in filter(None, self.pending.values()):
                with contextlib.suppress(Exception):
                    delta.finish(self.settings)
        self.pending.clear()
        for p in self.delay:
            self.delay[p] = self.passes
