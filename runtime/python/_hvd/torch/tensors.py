# SPDX-License-Identifier: Apache-2.0
"""Tensors as the runtime sees them: an address, a shape and a dtype.

The runtime reads and writes contiguous elements. A contiguous tensor is passed without a copy; another one
(transposed, expanded, channels_last, a lazy negation) as a contiguous copy that is written back at the end
of an operation in place. Other layouts are never sent in place: the runtime cannot know that all ranks have
the same, and elements would be added to the wrong ones. Complex elements are sent as their real and
imaginary parts, in one dimension more.

Results whose shape only the runtime knows are in its memory and become tensors without a copy (DLPack); the
memory is freed with the tensor's last view, also after shutdown.
"""

import contextlib
import threading

import torch

from _hvd import _native, gpu, handles
from _hvd.basics import Average, Sum

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

# Sums of the parts are the parts of the sum.
_PARTS = {torch.complex64: DTYPES[torch.float32], torch.complex128: DTYPES[torch.float64]}

_from_dlpack = torch.utils.dlpack.from_dlpack


def dtype_of(tensor):
    """Returns the runtime's number of the tensor's dtype; raises an error for unsupported tensors."""
    number = None
    if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and can_send(tensor):
        number = DTYPES.get(tensor.dtype)
        if number is None:
            number = _PARTS.get(tensor.dtype)
    return _refuse(tensor) if number is None else number


def check_complex(tensor, op):
    """Raises ValueError for a reduction of complex numbers that is not one of their parts."""
    if op not in (Average, Sum) and isinstance(tensor, torch.Tensor) and tensor.is_complex():
        raise ValueError(f"tensors of {tensor.dtype} have op=hvd.Average and hvd.Sum, not {op!r}")


def check_rows(tensor, name):
    """Raises ValueError for a complex number alone, which has no rows although its parts look like two."""
    if tensor.dim() == 0 and tensor.is_complex():
        raise ValueError(f'tensor "{name}" is a rank-zero tensor and has no rows')


def can_send(tensor):
    """Whether the runtime can send the tensor from the memory that it is in."""
    return tensor.is_cpu or (tensor.is_cuda and not gpu.problem())


def _refuse(tensor):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise NotImplementedError(
            f"tensors of layout {tensor.layout} cannot be sent as they are; use "
            "hvd.sparse_allreduce_async() for sparse ones, or tensor.to_dense()"
        )
    if not can_send(tensor):
        raise NotImplementedError(f"a tensor on {tensor.device}: {why_not(tensor)}; use tensor.cpu()")
    raise ValueError(f"Tensor type {tensor.type()} is not supported.")


def why_not(tensor):
    """The reason why the runtime does not support a tensor's device."""
    return gpu.problem() if tensor.is_cuda else "only host memory and NVIDIA's GPUs are supported"


def current_stream(device):
    """The handle of the CUDA stream that this thread works in on a device."""
    get = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return torch.cuda.current_stream(device).cuda_stream if get is None else get(device)


def where(tensor):
    """The Place of a tensor on a GPU, with the stream that this thread works in; None for host memory."""
    if tensor.is_cpu:
        return None
    device = tensor.device.index
    return gpu.Place(device, current_stream(device), current_stream)


def _stream_of(place):
    """torch's object of a place's stream. ExternalStream(0) is a new one, with nothing in it."""
    if place.stream == 0:
        return torch.cuda.default_stream(place.device)
    return torch.cuda.ExternalStream(place.stream, device=place.device)


def follow(place):
    """Makes this thread's current stream follow the current work of the place's stream."""
    if current_stream(place.device) != place.stream:
        torch.cuda.current_stream(place.device).wait_stream(_stream_of(place))


def read_here(tensor, place):
    """Records that this thread's current stream reads a tensor of ours from the place's stream; otherwise
    torch would reuse its memory as soon as we drop it."""
    if place is not None and tensor.is_cuda and current_stream(place.device) != place.stream:
        tensor.record_stream(torch.cuda.current_stream(place.device))


def used_here(tensor):
    """Records that this thread's current stream uses a tensor whose memory may be another stream's."""
    parts = (tensor._indices(), tensor._values()) if tensor.layout == torch.sparse_coo else (tensor,)
    for part in parts:
        if part.is_cuda:
            part.record_stream(torch.cuda.current_stream(part.device.index))


_own = threading.local()


@contextlib.contextmanager
def own_streams(devices):
    """Within it this thread works in a stream of its own on each of the devices: one that waits there
    delays nothing else. The streams do not wait for the default stream."""
    streams = _own.__dict__
    with contextlib.ExitStack() as stack:
        for device in devices:
            key = f"device{device}"
            if key not in streams:
                streams[key] = torch.cuda.Stream(device)
            stack.enter_context(torch.cuda.stream(streams[key]))
        yield


class Mark:
    """The current work of this thread's streams on these devices, for other streams to follow."""

    def __init__(self, devices):
        self._events = []
        for device in devices:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            self._events.append((device, current_stream(device), event))

    def wait(self):
        """Makes this thread's current streams follow it."""
        for device, stream, event in self._events:
            if current_stream(device) != stream:
                torch.cuda.current_stream(device).wait_event(event)

    def wait_in(self, place):
        """Makes the stream of a place follow it."""
        for device, stream, event in self._events:
            if device == place.device and stream != place.stream:
                _stream_of(place).wait_event(event)


_HOST, _NO_GPU = -1, -3  # HVD_DEVICE_HOST, HVD_DEVICE_NONE
_host_device = None


def host_device():
    """HVD_DEVICE_HOST or HVD_DEVICE_NONE: with the latter, other ranks' errors report why a torch built for
    GPUs has none."""
    global _host_device
    if _host_device is None:
        _host_device = _NO_GPU if torch.version.cuda and gpu.is_missing() else _HOST
    return _host_device


def is_plain(tensor):
    """Whether its memory holds its elements row by row, as the runtime requires."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def plain(tensor):
    """The tensor itself where that is plain, or a plain copy."""
    if is_plain(tensor):
        return tensor
    return tensor.detach().resolve_neg().resolve_conj().contiguous()


def check_writable(tensor):
    """Raises an error, before anything is sent, for a tensor that cannot be written in place."""
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} with elements that share memory (expand()) cannot "
            "be written in place; use tensor.contiguous(), or the function without the underscore"
        )


def describe(tensor, output, dtype, name, place, group=None, group_size=0, is_held=False):
    """The arguments of _native's functions for a tensor. output: a tensor or None; place: where(tensor)."""
    if output is not None and output.is_cpu != tensor.is_cpu:
        raise ValueError(f"a tensor on {tensor.device} cannot have its output on {output.device}")
    address = 0 if output is None else output.data_ptr()
    device, stream = (host_device(), 0) if place is None else (place.device, place.stream)
    shape = (*tensor.shape, 2) if tensor.is_complex() else tensor.shape
    return name, tensor.data_ptr(), address, dtype, shape, group, group_size, is_held, device, stream


def copy_back(destination, source, place):
    """Returns the result function of an in-place operation on `source`, a copy of the tensor made at
    place."""

    def result(handle):
        with torch.no_grad():
            destination.copy_(source)
        read_here(source, place)
        return destination

    return result


def take(handle, like, dtype):
    """Returns the runtime's result as a tensor of like's dtype; None if it was taken before.

    The tensor takes ownership of the handle.
    """
    capsule = _native.take(handles._pending, handle, dtype)
    if capsule is None:
        return None
    tensor = _from_dlpack(capsule)
    if like.is_complex():
        return torch.view_as_complex(tensor)
    return tensor if tensor.dtype == like.dtype else tensor.view(like.dtype)
