# SPDX-License-Identifier: Apache-2.0
"""Starting all ranks from one rank's state: parameters, optimizer state, any object."""

import copy

import torch

from _hvd import handles
from _hvd.objects import allgather_object, broadcast_object
from _hvd.process_sets import global_process_set
from _hvd.torch.mpi_ops import broadcast_async_, synchronize
from _hvd.torch.tensors import plain

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


def broadcast_parameters(params, root_rank, process_set=global_process_set):
    """Overwrites params on every rank with the root rank's.

    params: a dict (model.state_dict()), or any iterable of (name, tensor) pairs
    (model.named_parameters()) or of tensors (model.parameters()).
    """
    pending = [
        broadcast_async_(tensor.data, root_rank, str(name), process_set)
        for name, tensor in _named(params)
        if isinstance(tensor, torch.Tensor)
    ]
    handles.wait_for(pending)
    for handle in pending:
        synchronize(handle)


class _TensorPlace:
    """In a broadcast structure: a tensor whose content follows by itself."""

    def __init__(self, tensor):
        self.shape = tuple(tensor.shape)
        self.stride = torch.empty_like(tensor, device="meta").stride()  # a fused optimizer wants its p's
        self.dtype = tensor.dtype
        self.is_cuda = tensor.is_cuda


def _rebuilt(value, replace):
    """value with replace() applied to all that it holds; value itself where that changes nothing."""
    if isinstance(value, dict):
        items = {k: replace(v) for k, v in value.items()}
        if all(items[k] is v for k, v in value.items()):
            return value
        new = copy.copy(value)  # keeps the class: OrderedDict, defaultdict
        new.update(items)
        return new
    if isinstance(value, (list, tuple)):
        items = [replace(v) for v in value]
        if all(a is b for a, b in zip(items, value)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _take_tensors(value, found):
    """value with each tensor replaced by a _TensorPlace and appended to found."""
    if isinstance(value, torch.Tensor):
        found.append(plain(value.detach()) if value.layout is torch.strided else value.detach())
        return _TensorPlace(value)
    return _rebuilt(value, lambda v: _take_tensors(v, found))


def _put_tensors(value, found, device):
    """value with each _TensorPlace replaced by a new tensor, appended to found; device: those on GPUs."""
    if isinstance(value, _TensorPlace):
        where = device if value.is_cuda else "cpu"
        tensor = torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device=where)
        found.append(tensor)
        return tensor
    return _rebuilt(value, lambda v: _put_tensors(v, found, device))


def _parameters(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def _snapshot(optimizer):
    """What differs between ranks, with parameters as numbers: group sizes and options, state."""
    number = {p: i for i, p in enumerate(_parameters(optimizer))}
    return {
        "sizes": [len(group["params"]) for group in optimizer.param_groups],
        "options": [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups],
        "of_params": {number[k]: v for k, v in optimizer.state.items() if k in number},
        "of_others": {k: v for k, v in optimizer.state.items() if not isinstance(k, torch.Tensor)},
    }


def _lay_over(optimizer, snapshot):
    """Overwrites the optimizer with the snapshot, inside its own dicts.

    Not by load_state_dict(): that replaces the groups, to which an earlier scheduler still writes, and
    casts state to its parameter's dtype. Both would make this rank differ from the root.
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if sizes != snapshot["sizes"]:
        raise ValueError(
            f"this rank's optimizer has groups of {sizes} parameters, the root rank's has groups of "
            f"{snapshot['sizes']}: create the same optimizer on every rank"
        )
    for group, options in zip(optimizer.param_groups, snapshot["options"]):
        for key in [k for k in group if k != "params" and k not in options]:
            del group[key]
        group.update(options)
    params = _parameters(optimizer)
    optimizer.state.clear()
    optimizer.state.update({params[i]: v for i, v in snapshot["of_params"].items()})
    optimizer.state.update(snapshot["of_others"])


def broadcast_optimizer_state(optimizer, root_rank, model=None, process_set=global_process_set):
    """Overwrites the optimizer's state and options on every rank with the root rank's.

    The root's state is sent as a structure followed by its tensors, so a rank without state (no step yet)
    needs no artificial step to create it, unlike Horovod. State that only this rank has is dropped. A rank
    where this fails keeps what it had.
    """
    from _hvd import _native

    if isinstance(optimizer, torch.optim.LBFGS):
        # its state holds closures' results and cannot be laid over another rank's
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    is_root = _native.rank() == root_rank
    tensors = []
    snapshot = _take_tensors(_snapshot(optimizer), tensors) if is_root else None
    snapshot = broadcast_object(snapshot, root_rank, "optimizer_state", process_set)
    if not is_root:
        on_gpu = [p.device for p in _parameters(optimizer) if p.is_cuda]
        snapshot = _put_tensors(snapshot, tensors, on_gpu[0] if on_gpu else "cpu")
    pending = [
        broadcast_async_(t, root_rank, f"optimizer_state.{i}", process_set) for i, t in enumerate(tensors)
    ]
    handles.wait_for(pending)
    for handle in pending:
        synchronize(handle)
    if not is_root:
        _lay_over(optimizer, snapshot)
    if not snapshot["of_params"]:
        _give_gradients(optimizer, model)


def _give_gradients(optimizer, model):
    """Zeros, where the state is still empty: Horovod's step with them leaves that, and scripts use it.

    Not to parameters of sparse embeddings, whose gradients are sparse (SparseAdam's, or those of model).
    """
    modules = [] if model is None else model.modules()
    sparse = {m.weight for m in modules if isinstance(m, torch.nn.modules.sparse.Embedding) and m.sparse}
    if isinstance(optimizer, torch.optim.SparseAdam):
        return
    for p in _parameters(optimizer):
        if p.requires_grad and p.grad is None and p not in sparse:
            p.grad = torch.zeros_like(p)
