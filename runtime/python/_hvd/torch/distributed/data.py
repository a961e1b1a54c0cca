# SPDX-License-Identifier: Apache-2.0
"""Memory of tensors: which tensors are sent and received in place, and which by a copy.

Reduced tensors keep their dtype; of complex numbers the parts are reduced. Tensors that are only moved are
flattened, and sent as bytes where the runtime lacks the dtype (complex numbers, the small floats, wide
unsigned integers).
"""

import torch

from _hvd import handles
from _hvd.basics import Average, Sum
from _hvd.torch import tensors as t
from _hvd.torch.tensors import DTYPES

_UINT8 = DTYPES[torch.uint8]


def check(tensor, what):
    """Raises an error, with the collective's name, for a tensor that cannot be sent."""
    if not t.can_send(tensor):
        raise RuntimeError(f"{what}: a tensor on {tensor.device}: {t.why_not(tensor)}; use tensor.cpu()")
    if tensor.layout != torch.strided:
        raise RuntimeError(f"{what}: a tensor of {tensor.layout} cannot be moved; use tensor.to_dense()")


def submit(function, keep, result, name, source, output, dtype, shape, place, *args):
    """Begins an operation. source, output: tensors or rows; place: where() the source was at the call."""
    tensor = (name, source.data_ptr(), 0 if output is None else output.data_ptr(), dtype, shape)
    if place is not None:
        tensor = (*tensor, None, 0, False, place.device, place.stream)
    return handles.submit(function, keep, result, tensor, *args, place=place)


def dtype_name(tensor):
    return str(tensor.dtype)[6:]  # without "torch."


def parts_of(tensor, op, what):
    """Complex memory as its real and imaginary parts: sums of those are sums of the numbers."""
    if not tensor.is_complex():
        return tensor
    if op not in (Average, Sum):
        raise RuntimeError(f"{what}: {tensor.dtype} can only be summed or averaged")
    return torch.view_as_real(tensor)


def reducible(tensor, what):
    """The runtime's number of a dtype that it can add."""
    check(tensor, what)
    number = DTYPES.get(tensor.dtype)
    if number is None:
        raise RuntimeError(f"{what}: {tensor.dtype} cannot be reduced; use tensor.float() or alike")
    return number


def movable(tensor, what):
    """(dtype number, units per element) of what is only moved."""
    check(tensor, what)
    number = DTYPES.get(tensor.dtype)
    return (_UINT8, tensor.element_size()) if number is None else (number, 1)


def same_kind(tensors, what):
    """Checks that all tensors have one dtype, as they are sent as one; returns the first."""
    first = tensors[0]
    for one in tensors:
        check(one, what)
        if one.dtype != first.dtype:
            raise RuntimeError(f"{what}: tensors of {first.dtype} and {one.dtype} in one list")
    return first


def _storage_of(tensor):
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr()


def _lie_in_a_row(tensors):
    """Whether they are neighbours in one allocation: separate allocations may be freed separately."""
    at, storage = tensors[0].data_ptr(), _storage_of(tensors[0])
    for one in tensors:
        if one.numel() == 0 or not t.is_plain(one) or one.data_ptr() != at or _storage_of(one) != storage:
            return False
        at += one.numel() * one.element_size()
    return True


class Row:
    """Tensors one after the other in one piece of memory: their own, if they lie so, or a copy."""

    def __init__(self, tensors, is_source):
        first = tensors[0]
        self.tensors = tensors
        self.numel = sum(one.numel() for one in tensors)
        self.is_own = len(tensors) == 1 and t.is_plain(first)
        self.is_own = self.is_own or (len(tensors) > 1 and _lie_in_a_row(tensors))
        if self.is_own:
            self.memory = first
        elif is_source:
            self.memory = torch.cat([one.detach().reshape(-1) for one in tensors])
        else:
            self.memory = first.new_empty(self.numel)
            self.place = t.where(first)
        self.size_bytes = self.numel * first.element_size()

    def data_ptr(self):
        return self.memory.data_ptr()

    def write_back(self):
        """Copies the received data from the copy into the tensors."""
        at = 0
        for one in self.tensors:
            one.copy_(self.memory[at : at + one.numel()].view(one.shape))
            at += one.numel()
        t.read_here(self.memory, self.place)


def back(tensor, memory):
    """Returns a function that copies the sent copy back into the tensor; None if there was no copy."""
    if memory is tensor:
        return None
    place = t.where(memory)

    def copy():
        tensor.copy_(memory)
        t.read_here(memory, place)

    return copy


def all_of(steps):
    """One step of several, of which some are None; None if all are."""
    steps = [s for s in steps if s is not None]

    def after():
        for s in steps:
            s()

    return after if steps else None
