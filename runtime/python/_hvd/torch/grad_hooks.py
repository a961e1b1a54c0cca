# SPDX-License-Identifier: Apache-2.0
"""Callbacks for complete gradients of parameters.

torch 2.1 and later have a public hook for it. Before that, the node that accumulates the gradient
is reached through a throw-away view of the parameter; the node lives only as long as it is referenced, so
it is returned as part of the registration.
"""

import gc
import threading
import weakref

import torch

from _hvd import basics
from _hvd.process_sets import is_elastic
from _hvd.replica import Guard
from _hvd.torch.data_parallel import is_possible, refuse_ddp
from _hvd.torch.parameters import name_in_world, numbered, start_world

live = weakref.WeakSet()  # all listeners
_unnamed = []  # references to those that have parameters without names of operations, in order of creation
_naming = threading.RLock()
_TOO_MANY = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)
_OF_A_GAN = (
    " Gradients of another optimizer's loss are dropped by optimizer.zero_grad(), not module.zero_grad()."
)
HAS_PUBLIC_HOOK = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


def on_gradient(parameter, function, use_public_hook=HAS_PUBLIC_HOOK):
    """Calls function(parameter) each time backward() has added to parameter.grad.

    Returns (removable hook, object to keep alive). Neither holds the parameter.
    """
    if use_public_hook:
        return parameter.register_post_accumulate_grad_hook(function), None
    with torch.enable_grad():
        view = parameter.expand_as(parameter)
    accumulator = view.grad_fn.next_functions[0][0]
    reference = weakref.ref(parameter)
    return accumulator.register_hook(lambda *_: function(reference())), accumulator


def is_distributed(process_set):
    """Whether there are other ranks to reduce with, now or in a world that may grow."""
    return bool(process_set.included()) and (basics.size() > 1 or is_elastic())


class Listener:
    """Receives an optimizer's gradients and counts the passes until each is complete.

    A subclass defines ready(p), which is called when backward() has added to p.grad. Hooks hold the
    listener weakly and are removed with it.
    """

    n_steps = 0  # of all listeners

    def __init__(self, names, settings, passes):
        self.names = names  # {parameter: name}, the user's or numbers
        self._sent_as = {}  # parameter -> the name of the operation that reduces its gradient
        self.settings = settings
        self.passes = passes
        self.pending = {}  # parameter -> what a subclass does with its gradient, until the step ends
        self.n_steps_before = 0  # n_steps when the first of them was computed
        self.delay = {}  # parameter with a hook -> backward passes until its gradient is complete
        self.guard = Guard()
        self._has_no_ddp = False  # no DDP model reduces these too; known from the first backward() on
        self._hooks = []
        weakref.finalize(self, _remove, self._hooks).atexit = False
        live.add(self)

    def attach(self, param_groups):
        """Adds hooks to parameters that need gradients and have none; returns whether there are other
        ranks.

        Called for every step: parameters may have been added or unfrozen, the world may have grown.
        """
        if not is_distributed(self.settings.process_set):
            return False
        added = {}
        for p, number in numbered(param_groups):
            if p not in self.delay and p.requires_grad:
                added[p] = self.names.setdefault(p, number)
        if added:
            refuse_ddp(added)
        for p in added:
            self.delay[p] = self.passes
            self._hooks.append(on_gradient(p, self._hook()))
        if added:
            with _naming:
                _unnamed.append(weakref.ref(self))
        return True

    def sent_as(self, p):
        """The name of the operation that reduces p's gradient."""
        start_world()  # a rank that has joined begins to count now
        if _unnamed:
            _name_all()
        if p not in self._sent_as:
            self.take_names()
        return self._sent_as[p]

    def take_no_place(self):
        """It is named at its own first gradient."""
        with _naming:
            _unnamed[:] = [r for r in _unnamed if r() is not self]

    def take_names(self):
        for p in list(self.delay):
            if p not in self._sent_as:
                self._sent_as[p] = name_in_world(p, self.names[p], self.settings.process_set)

    def _hook(self):
        reference = weakref.ref(self)

        def hook(p):
            listener = reference()
            if listener is not None and p is not None:
                listener.ready(p)

        return hook

    def count(self, p):
        """Counts one pass and returns how many are left. Raises AssertionError if none was left, and
        ValueError at the first one if a DDP model reduces the gradients too."""
        if not self._has_no_ddp and is_possible():
            refuse_ddp({q: self.names[q] for q in self.delay})
            self._has_no_ddp = True
        if not self.pending:
            self.n_steps_before = Listener.n_steps
        left = self.delay[p] - 1
        if left < 0:
            raise AssertionError(_TOO_MANY + _OF_A_GAN if self.has_company() else _TOO_MANY)
        self.delay[p] = left
        return left

    @staticmethod
    def end_step():
        Listener.n_steps += 1

    def has_company(self):
        """Whether what is pending may be of another optimizer's loss: that has gradients of the same time,
        or has taken its step since. A GAN's two losses each compute gradients for both of its models."""
        return self.n_steps_before < Listener.n_steps or any(o.pending for o in live if o is not self)

    def drop_foreign(self):
        """Drops what is pending if it may be of another optimizer's loss; returns whether it did.

        If gradients were sent, all ranks call this.
        """
        return False


def _name_all():
    """Names the parameters of all optimizers when the first gradient of any is sent.

    In order of creation, as ranks may use them in another order. Not at their creation: one that a rank has
    created alone, and dropped, takes no name.
    """
    with _naming:
        if len(_unnamed) > 1:
            gc.collect()
        while _unnamed:
            listener = _unnamed[0]()
            if listener is not None:
                listener.take_names()
            del _unnamed[0]


def _remove(hooks):
    for hook, _ in hooks:
        hook.remove()
