# SPDX-License-Identifier: Apache-2.0
"""Tensors as the runtime sees them: an address, a shape and a dtype.

The runtime reads and writes rows of elements without gaps. A tensor that lies so travels as it is;
another (transposed, expanded, channels_last, a lazy negation) travels as a contiguous copy and, in
place, is written back at the end. Layouts other than the plain one are never sent in place: nothing
tells the runtime that all ranks have the same, and elements would be added to the wrong ones.

Results whose shape only the runtime knows come in its memory and become tensors without a copy
(DLPack); that memory is given back when the last view of the tensor dies, also after shutdown.
"""

import torch

from _hvd import _native, handles

# torch dtype -> enum hvd_dtype
DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bool: 9,
    torch.bfloat16: 10,
}
if hasattr(torch, "uint16"):
    DTYPES[torch.uint16] = 2

_from_dlpack = torch.utils.dlpack.from_dlpack


def dtype_of(tensor):
    """The runtime's number of the tensor's dtype; refuses tensors that cannot travel."""
    number = None
    if isinstance(tensor, torch.Tensor) and tensor.is_cpu and tensor.layout is torch.strided:
        number = DTYPES.get(tensor.dtype)
    return _refuse(tensor) if number is None else number


def _refuse(tensor):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise NotImplementedError(
            f"tensors of layout {tensor.layout} cannot travel as they are; use "
            "hvd.sparse_allreduce_async() for sparse ones, or tensor.to_dense()"
        )
    if not tensor.is_cpu:
        raise NotImplementedError(
            f"tensors on {tensor.device.type} are not supported yet (this one is on "
            f"{tensor.device}); move it with tensor.cpu()"
        )
    raise ValueError(f"Tensor type {tensor.type()} is not supported.")


def is_plain(tensor):
    """Does its memory hold its elements row by row, as the runtime takes them?"""
    return tensor.is_contiguous() and not tensor.is_neg()


def plain(tensor):
    """The tensor itself where that is plain, or a plain copy."""
    if is_plain(tensor):
        return tensor
    return tensor.detach().resolve_neg().contiguous()


def check_writable(tensor):
    """Refuses, before anything travels, what cannot take a result in place."""
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} with elements that share memory (expand()) cannot "
            "be written in place; use tensor.contiguous(), or the function without the underscore"
        )


def describe(tensor, output, dtype, name, group=None, group_size=0):
    """What _native's functions take of a tensor; output: a tensor or None."""
    address = 0 if output is None else output.data_ptr()
    return name, tensor.data_ptr(), address, dtype, tensor.shape, group, group_size


def copy_back(destination, source):
    """The result of an operation in place whose tensor travelled as the copy `source`."""

    def result(handle):
        with torch.no_grad():
            destination.copy_(source)
        return destination

    return result


def take(handle, like, dtype):
    """The runtime's result as a tensor of like's dtype, which takes the handle over; None: taken before."""
    capsule = _native.take(handles._pending, handle, dtype)
    if capsule is None:
        return None
    tensor = _from_dlpack(capsule)
    return tensor if tensor.dtype == like.dtype else tensor.view(like.dtype)
