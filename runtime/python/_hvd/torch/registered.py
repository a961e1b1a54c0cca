# SPDX-License-Identifier: Apache-2.0
"""Registered buffers: memory on GPUs that is registered with NCCL once.

NCCL moves most tensors through buffers of its own. From memory that all ranks have registered it reads and
writes directly, where the machine can. A tensor's buffer is found by its address when it is submitted
(engine/region.c), so nothing else changes for the caller.
"""

import threading
import warnings

from _hvd import _native, handles
from _hvd.process_sets import global_process_set, process_set_id
from _hvd.torch import tensors as t

__all__ = ["RegisteredBuffer", "register_buffer"]


class RegisteredBuffer:
    """What register_buffer() returns: a tensor's memory, until deregister() or shutdown().

    Also a context manager, which deregisters at its end, except after an exception: other ranks might not
    take part then.
    """

    def __init__(self, tensor, process_set, problem):
        self.tensor = tensor
        self.process_set = process_set
        self.problem = problem  # why it is not registered, "" where it is, or was
        self._set_id = process_set_id(process_set)
        self._world = handles.world
        self._leaving = None  # the handle of a deregister() that a signal handler's exception has left
        self._lock = threading.RLock()

    @property
    def is_registered(self):
        """Whether tensors in it are sent as registered memory. False for all buffers after shutdown()."""
        return handles.world == self._world and handles.registered.get(id(self)) is self

    def deregister(self):
        """Ends the registration on all ranks of the process set: collective. The memory may be freed then.

        Waits for pending operations on the memory. Does nothing where it is not registered.
        """
        with self._lock:
            if not self.is_registered:
                return
            if self._leaving is None or self._leaving not in handles._pending:
                self._leaving = handles.submit(
                    _native.deregister_buffer, self, lambda h: None, self.tensor.data_ptr(), self._set_id
                )
            handles.finish(self._leaving)
            handles.registered.pop(id(self), None)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.deregister()

    def __repr__(self):
        state = "registered" if self.is_registered else self.problem or "not registered any more"
        return f"RegisteredBuffer({self.tensor.numel()} x {self.tensor.dtype}, {state})"


def register_buffer(tensor, process_set=global_process_set):
    """Registers the memory of a GPU tensor with NCCL for a process set; returns a RegisteredBuffer.

    Collective: all ranks of the set call it in the same order, with as many elements of one dtype each.
    From then on tensors in that memory, whole or as views, are sent and received in place, without NCCL's
    own copies, over NVLink SHARP, InfiniBand SHARP and between GPUs of one node. A tensor must be in the
    same buffer on every rank, or in none; it is not packed with others, so register large ones.
    The memory stays alive until deregister() or shutdown(); a new world (elastic) has no buffers yet.

    If one rank cannot register, none does (below NCCL 2.19, or where NCCL refuses the memory): one
    RuntimeWarning (of the set's first rank) names it, .is_registered is False, .problem is the reason, and
    tensors are sent as before. Tensors in host memory or with gaps raise ValueError; memory that overlaps a
    registered buffer or has a pending operation raises HorovodInternalError on all ranks.
    """
    set_id = process_set_id(process_set)
    dtype = t.dtype_of(tensor)
    if tensor.is_cpu:
        raise ValueError("only memory on a GPU can be registered: tensors in host memory gain nothing")
    if not t.is_plain(tensor):
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} has gaps, or an order "
            "of its own: register the contiguous one that it is a view of"
        )
    flat = tensor.detach().view(-1)
    name = handles.auto_name("register_buffer", set_id)
    problem = ""
    try:
        handles.finish(
            handles.submit(
                _native.register_buffer,
                flat,
                lambda h: None,
                t.describe(flat, None, dtype, name, t.where(flat)),
                set_id,
            )
        )
    except NotImplementedError as e:
        problem = str(e)
        if process_set.rank() == 0:
            warnings.warn(f"{problem}; its tensors are sent unregistered", RuntimeWarning, stacklevel=2)
    made = RegisteredBuffer(flat, process_set, problem)
    if not problem:
        handles.registered[id(made)] = made
    return made
