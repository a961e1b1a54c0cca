# SPDX-License-Identifier: Apache-2.0
"""Parameters of torch for the replica guard (_hvd/replica.py), and hvd.check_replicas().

A parameter on a GPU, or one whose memory is not row by row, is copied to host memory, one at a time. What
has no elements of its own in host or GPU memory (meta, sparse, quantised) is left out.
"""

import torch

from _hvd import replica
from _hvd.process_sets import global_process_set
from _hvd.torch.tensors import plain

_UNNAMED = "allreduce.noname."


def _held(tensor):
    there = plain(tensor.detach()).cpu()
    return there, there.data_ptr()


def _value(name, tensor, key):
    dtype = str(tensor.dtype).rpartition(".")[2]
    return replica.Value(name, dtype, tensor.shape, tensor.element_size(), lambda: _held(tensor), key)


def values_of(named, key=None):
    return [
        _value(name, p, key)
        for name, p in named
        if p.layout is torch.strided and p.device.type != "meta" and not p.is_quantized
    ]


def _named(optimizer):
    """The parameters that must be equal on all ranks: those of groups without replica_check=False."""
    names = optimizer._hvd.names
    for g, group in enumerate(optimizer.param_groups):
        if not group.get("replica_check", True):
            continue
        for i, p in enumerate(group["params"]):
            name = names.get(p, _UNNAMED)
            yield f"number {i} of group {g}" if name.startswith(_UNNAMED) else name, p


def after_step(optimizer):
    """Counts a step of a DistributedOptimizer and compares the parameters where HVD_REPLICA_CHECK says."""
    hvd = optimizer._hvd
    process_set = hvd.settings.process_set
    if hvd.guard.is_due(process_set):
        hvd.guard.check(values_of(_named(optimizer)), process_set)


def check_replicas(params, process_set=global_process_set):
    """Compares params over the ranks, bit by bit; raises HorovodInternalError on all ranks if they differ.

    For models without a DistributedOptimizer, such as those of DistributedDataParallel; independent of
    HVD_REPLICA_CHECK. params: a dict (model.state_dict()), or any iterable of (name, tensor) pairs
    (model.named_parameters()) or of tensors, in the same order on all ranks of the set.
    """
    from _hvd.torch.functions import _named as named

    tensors = [(str(name), t) for name, t in named(params) if isinstance(t, torch.Tensor)]
    if process_set.included() and process_set.size() > 1:
        replica.check(values_of(tensors), process_set)
