# SPDX-License-Identifier: Apache-2.0
"""Starting all ranks from one rank's state: parameters, optimizer state, any object."""

import copy

import torch

from _hvd.objects import allgather_object, broadcast_object
from _hvd.torch.mpi_ops import broadcast_async_, synchronize

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


def _named(params):
    """[(name, tensor)] from whatever a user has: a state_dict, pairs, tensors, a generator."""
    if hasattr(params, "items"):
        return sorted(params.items())
    if isinstance(params, (str, bytes, torch.Tensor)) or not hasattr(params, "__iter__"):
        raise ValueError(f"invalid params of type: {type(params)}")
    return [item if isinstance(item, tuple) else (f"param.{i}", item) for i, item in enumerate(params)]


def broadcast_parameters(params, root_rank):
    """Overwrites params on every rank with the root rank's.

    params: a dict (model.state_dict()), or any iterable of (name, tensor) pairs
    (model.named_parameters()) or of tensors (model.parameters()).
    """
    pending = [
        broadcast_async_(tensor.data, root_rank, name=str(name))
        for name, tensor in _named(params)
        if isinstance(tensor, torch.Tensor)
    ]
    for handle in pending:
        synchronize(handle)


class _TensorPlace:
    """In a broadcast structure: a tensor whose content follows by itself."""

    def __init__(self, tensor):
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype


def _take_tensors(value, found):
    """value with each tensor replaced by a _TensorPlace and appended to found."""
    if isinstance(value, torch.Tensor):
        found.append(value)
        return _TensorPlace(value)
    if isinstance(value, dict):
        return {k: _take_tensors(v, found) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_take_tensors(v, found) for v in value)
    return value


def _put_tensors(value, found):
    """value with each _TensorPlace replaced by a new tensor, appended to found."""
    if isinstance(value, _TensorPlace):
        tensor = torch.empty(value.shape, dtype=value.dtype)
        found.append(tensor)
        return tensor
    if isinstance(value, dict):
        return {k: _put_tensors(v, found) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_put_tensors(v, found) for v in value)
    return value


def broadcast_optimizer_state(optimizer, root_rank, model=None):
    """Overwrites the optimizer's state and options on every rank with the root rank's.

    The root's state_dict travels as a structure and its tensors after it, so a rank whose state is
    still empty (nothing stepped yet) needs no made-up step to create it, as Horovod takes.
    """
    from _hvd import _native

    if isinstance(optimizer, torch.optim.LBFGS):
        # its state holds closures' results and cannot be laid over another rank's
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    is_root = _native.rank() == root_rank
    tensors = []
    structure = _take_tensors(optimizer.state_dict(), tensors) if is_root else None
    structure = broadcast_object(structure, root_rank, name="optimizer_state")
    if is_root:
        tensors = [t.detach() for t in tensors]
    else:
        tensors = []
        structure = _put_tensors(structure, tensors)
    pending = [broadcast_async_(t, root_rank, name=f"optimizer_state.{i}") for i, t in enumerate(tensors)]
    for handle in pending:
        synchronize(handle)
    if not is_root:
        optimizer.load_state_dict(copy.deepcopy(structure))
