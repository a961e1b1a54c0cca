# SPDX-License-Identifier: Apache-2.0
"""TorchState: models, optimizers, samplers and any other objects as one elastic state.

An attribute for whose type the registry has a handler stays the object that it is: its contents are
saved, restored and synchronised. Any other is an ordinary object (ObjectState) that is replaced.
"""

import copy

import torch

from _hvd.basics import rank
from _hvd.elastic import ObjectState, check_names
from _hvd.objects import allgather_object, broadcast_object
from _hvd.torch.elastic.sampler import ElasticSampler, union
from _hvd.torch.functions import broadcast_optimizer_state, broadcast_parameters


class StateHandler:
    """Saves, restores and synchronises the contents of one object."""

    def __init__(self, value):
        self.value = value

    def save(self):
        raise NotImplementedError

    def restore(self):
        raise NotImplementedError

    def sync(self):
        raise NotImplementedError

    def kept(self):
        """What save() kept, for State.save_to()."""
        raise NotImplementedError

    def take(self, kept):
        """Makes this what save() kept; restore() follows."""
        raise NotImplementedError

    def set_value(self, value):
        self.value = value
        self.save()


class StateDictHandler(StateHandler):
    """For what has state_dict() and load_state_dict(): schedulers, GradScaler, classes of the user's."""

    def __init__(self, value):
        super().__init__(value)
        self.save()

    def save(self):
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self):
        # A copy, because some load_state_dict() keep what they are given and change it later.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def kept(self):
        return self._saved

    def take(self, kept):
        self._saved = kept

    def sync(self):
        state = broadcast_object(self.value.state_dict())
        if rank() != 0:
            self.value.load_state_dict(state)


class ModelStateHandler(StateDictHandler):
    """Parameters and buffers in place, and what modules keep by get_extra_state()."""

    def __init__(self, model):
        super().__init__(model)

    def sync(self):
        state = self.value.state_dict()
        broadcast_parameters(state, root_rank=0)
        others = {k: v for k, v in state.items() if not isinstance(v, torch.Tensor)}
        if others:
            state.update(broadcast_object(others))
            self.value.load_state_dict(state)


class OptimizerStateHandler(StateDictHandler):
    def __init__(self, optimizer):
        super().__init__(optimizer)

    def restore(self):
        super().restore()
        # Gradients of the step that failed must not be added to the next one's. None and not zeros,
        # because a reduction that is still pending may write into them.
        for group in self.value.param_groups:
            for p in group["params"]:
                p.grad = None

    def sync(self):
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(StateDictHandler):
    def __init__(self, sampler):
        self._saves = -2  # -1 from here on: a rank that arrives later never has the other ranks' commit
        self._restored = None  # what the sampler's state was after restore()
        super().__init__(sampler)

    def save(self):
        super().save()
        self._saves += 1

    def restore(self):
        super().restore()
        self._restored = self.value.state_dict()

    def kept(self):
        return self._saves, self._saved

    def take(self, kept):
        self._saves, self._saved = kept

    def sync(self):
        """The union of what the ranks have processed; for a rank that is a commit ahead, rank 0's state."""
        mine = self.value.state_dict()
        if mine == self._restored:
            mine = self._saved  # has the samples of this rank apart from those of all ranks
        gathered = allgather_object((self._saves, mine))
        saves, first = gathered[0]
        if "rounds" in first:
            first = union([state for n, state in gathered if n == saves])
        self.value.load_state_dict(first)
        self._saves = 0


class _HasStateDictType(type):
    def __instancecheck__(cls, value):
        return all(callable(getattr(type(value), m, None)) for m in ("state_dict", "load_state_dict"))


class _HasStateDict(metaclass=_HasStateDictType):
    """isinstance() is true for whatever has both methods."""


# The first row that fits counts.
_handler_registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (_HasStateDict, StateDictHandler),
]


def get_handler_registry():
    """[(type, handler class)]; the first row whose type fits an attribute counts."""
    return _handler_registry


def set_handler_registry(registry):
    """For states that are created from now on."""
    global _handler_registry
    _handler_registry = registry


def _get_handler(value):
    for handler_type, handler_class in _handler_registry:
        if isinstance(value, handler_type) and not isinstance(value, type):
            return handler_class(value)
    return None


class TorchState(ObjectState):
    """State of a PyTorch training: model, optimizer, and whatever else is given by keyword.

    All become attributes. Models, optimizers, samplers and what has state_dict() and load_state_dict()
    (schedulers, GradScaler) are kept by their contents; anything else as an ordinary object.
    """

    def __init__(self, model=None, optimizer=None, **kwargs):
        kwargs.update(model=model, optimizer=optimizer)
        handlers = {name: _get_handler(value) for name, value in kwargs.items()}
        self._handlers = {name: handler for name, handler in handlers.items() if handler}
        for name, handler in self._handlers.items():
            super().__setattr__(name, handler.value)
        objects = {name: value for name, value in kwargs.items() if name not in self._handlers}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **objects)

    def save(self):
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def kept(self):
        return {name: handler.kept() for name, handler in self._handlers.items()}, super().kept()

    def take(self, kept):
        of_handlers, objects = kept
        check_names("contents", self._handlers, of_handlers)
        for name, handler in self._handlers.items():
            handler.take(of_handlers[name])
        super().take(objects)

    def _write_kept(self, file, kept):
        torch.save(kept, file)

    def _read_kept(self, file):
        return torch.load(file, map_location="cpu", weights_only=False)

    def sync(self):
        for handler in self._handlers.values():
            handler.sync()
            handler.save()  # else a failure before the first commit would restore this rank's own
        super().sync()

    def __setattr__(self, name, value):
        """A model given late (state.model = ...) gets its handler then."""
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)
        elif name in self.__dict__.get("_saved_state", {}):
            handler = _get_handler(value)
            if handler:
                handlers[name] = handler
                del self._saved_state[name]
        super().__setattr__(name, value)
