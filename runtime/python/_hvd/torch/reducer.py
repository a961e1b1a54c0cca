# SPDX-License-Identifier: Apache-2.0
"""When gradients are sent: hooks that run during backward(), and the wait for all of them.

    backward() -> hook: ready(p) -> queue --(BUCKET_BYTES, or the last one)--> submitted together
    step()     -> synchronize(): submits what was not computed, waits for everything

A ready gradient waits in the queue until BUCKET_BYTES are collected, because every submission costs time of
the computing thread and of the runtime's. The runtime runs submitted operations meanwhile. The queue is
local to this rank: operations are matched by name. Gradients on a GPU are collected in larger buckets,
because a batch costs a launch, and those of one queue share one event; in synchronize() a stream waits for
them, not a thread. Their first bucket of a step is small: until it is submitted the network is idle.

Pending: {parameter: its reduction, None while its gradient accumulates}.

Invariants
 - Every rank submits each parameter that needs a gradient exactly once between two synchronize():
   gradients that were not computed here are sent as zeros, because another rank may have computed them.
 - After synchronize() nothing is pending, even when it raises. Exception: after a signal handler's
   exception it may be called again and continues.
"""

import contextlib
import gc

from _hvd import handles
from _hvd.torch.grad_hooks import Listener, live
from _hvd.torch.parameters import groups_of
from _hvd.torch.reduction import ENDED, QUEUED, reduction_of, settle

BUCKET_BYTES = 4 << 20
GPU_BUCKET_BYTES = 25 << 20
GPU_FIRST_BUCKET_BYTES = 1 << 20


def _start(reductions, *group):
    """Those of a group, and those on a GPU, are held and submitted together: a group as a whole or not at
    all, because all ranks would wait for the rest of it; those on a GPU with one event for all."""
    held = []
    try:
        for reduction in reductions:
            is_held = (group or reduction.place is not None) and not reduction.is_gathered()
            if is_held and reduction.state == QUEUED:
                reduction.start(*group, is_held=True)
                held.append(reduction)
            else:
                reduction.start(*group)
    except BaseException:
        if group:
            handles.drop([r.handle for r in held])
            _recall(held)
        raise
    finally:
        if held:
            _submit(held)


def _submit(held):
    try:
        handles.submit_held([r.handle for r in held])
    except BaseException:
        _recall(held)
        raise


def _recall(held):
    for reduction in held:
        reduction.recall()
    held.clear()


class Group:
    """Gradients that are reduced together, all or none, once the last of them is ready."""

    def __init__(self, params):
        self.params = params
        self.n_ready = 0


class Reducer(Listener):
    def __init__(self, names, settings, passes, groups, param_groups):
        super().__init__(names, settings, passes)
        self.groups = groups  # as the user gave them
        self.sparse_dims = {}  # of parameters whose gradients were sparse
        self.queue = []
        self.queued_bytes = 0
        self.is_first = True  # no queue was submitted yet in this step
        self.n_left = 0  # gradients that this backward() has yet to compute, if it computes all
        self.group_of = None  # {parameter: Group}, once hooks are registered
        self.synchronized = False
        self.should_synchronize = True
        self.world = handles.world
        self._drop_others(param_groups)
        self.attach(param_groups)
        self.restart()

    @staticmethod
    def _drop_others(param_groups):
        """Ends the reductions that earlier optimizers have pending for these parameters.

        Otherwise the next backward() would use them as its own. An optimizer with a scheduler is part of a
        reference cycle: once dropped it stays until the next collection, so that is done first here.
        """
        params = {id(p) for group in param_groups for p in group["params"]}
        if any(id(p) in params for other in list(live) for p in other.delay):
            gc.collect()
        waited = [r for other in list(live) for r in other.pending.values()]
        settle(lambda r: id(r.p) in params or not any(r is w for w in waited))

    # --- hooks ---

    def attach(self, param_groups):
        if not super().attach(param_groups):
            return False
        if self.group_of is None:
            made = map(Group, groups_of(self.groups, param_groups))
            self.group_of = {p: group for group in made for p in group.params}
        return True

    def ready(self, p):
        """backward() has added to p.grad."""
        if self.world != handles.world:
            self.reset()
        if p.grad.requires_grad:
            raise AssertionError(
                f"the gradient of {self.names[p]} is part of a graph itself (backward(create_graph=True)) "
                "and cannot be reduced in place; use torch.autograd.grad(..., create_graph=True) for the "
                "inner derivative"
            )
        if not self.delay[p] and all(r is not None and r.state == ENDED for r in self.pending.values()):
            self.restart()  # another optimizer shares p and has taken the step
        if self.count(p):
            self.pending[p] = None
            return
        reduction = self.pending[p] = self._reduction_of(p)
        self.n_left -= 1
        group = self.group_of.get(p)
        if group is not None:
            group.n_ready += 1
            if group.n_ready == len(group.params):
                self._start_group(group)
        elif reduction.state == QUEUED:
            self.queue.append(reduction)
            self.queued_bytes += p.numel() * p.element_size()
        if self.queue and (self.n_left <= 0 or self.queued_bytes >= self._bucket_bytes(reduction.place)):
            self._start_queue()

    def _reduction_of(self, p):
        return reduction_of(p, self.sent_as(p), self.settings, self.sparse_dims)

    # --- submission and completion ---

    def _bucket_bytes(self, place):
        if place is None:
            return BUCKET_BYTES
        return GPU_FIRST_BUCKET_BYTES if self.is_first else GPU_BUCKET_BYTES

    def _start_queue(self):
        queue, self.queue, self.queued_bytes, self.is_first = self.queue, [], 0, False
        _start(queue)

    def _start_group(self, group):
        """Sparse gradients are gathered outside of the group; frozen parameters are left out."""
        members = [r for r in map(self.pending.get, group.params) if r is not None]
        together = [r for r in members if r.state == QUEUED and not r.is_gathered()]
        _start(together, f"group.{self.sent_as(group.params[0])}", len(together))
        _start(members)

    def _start_all(self):
        """Submits the gradients that are not submitted yet, computed here or not."""
        for p in self.delay:
            if self.pending.get(p) is None and (p in self.pending or p.requires_grad):
                self.pending[p] = self._reduction_of(p)
        for group in dict.fromkeys(self.group_of.values()):
            self._start_group(group)
        _start(list(self.pending.values()))

    def synchronize(self, param_groups):
        """Returns when all gradients are reduced; raises the first error, once nothing is pending."""
        error = None
        if self.attach(param_groups):
            try:
                self._start_all()
            except Exception as e:
                error = e
        handles.wait_for([r.handle for r in self.pending.values() if r is not None and r.place is not None])
        for reduction in self.pending.values():
            try:
                if reduction is not None:
                    reduction.finish()
            except Exception as e:
                if reduction.state != ENDED:
                    raise  # of a signal handler
                error = error or e
        self.end_step()
        self.restart()
        if error is not None:
            raise error
        self.synchronized = True

    def restart(self):
        """Resets all counts."""
        self.world = handles.world
        self.pending.clear()
        self.queue, self.queued_bytes, self.is_first = [], 0, True
        self.n_left = 0
        for p in self.delay:
            self.delay[p] = self.passes
            self.n_left += p.requires_grad
        for group in (self.group_of or {}).values():
            group.n_ready = 0

    def drop_foreign(self):
        if not self.has_company():
            return False
        self._drop()
        return True

    def _drop(self):
        """Drops what is pending. If gradients were sent, all ranks call this: the remaining ones are sent
        too, and all end first, because the next ones have the same names and perhaps the same memory."""
        if self.world == handles.world and any(r is not None for r in self.pending.values()):
            with contextlib.suppress(Exception):
                self._start_all()
            for reduction in filter(None, self.pending.values()):
                with contextlib.suppress(Exception):
                    reduction.finish()
        for reduction in self.pending.values():
            if reduction is not None:
                reduction.abandon()
        self.restart()

    def reset(self):
        """For another state: as if the optimizer had been created now."""
        self._drop()
        self.synchronized = False
        self.should_synchronize = True
