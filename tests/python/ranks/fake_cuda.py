# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors for a torch without CUDA: their memory is that of the fake driver, which the CPU can touch.

A Tensor here reports the device cuda:ORDINAL. Its operations run on the CPU, in the order of the current
stream, so a result that was not waited for does not exist yet. `stream()` sets the thread's current stream,
as torch.cuda.stream() does; it is a handle, initially 0, the legacy default stream.

Memory is returned to the driver when torch has no reference to it, in the order of the stream that
allocated it, as torch's allocator would reuse it; with record_stream() after that stream's work too. A
later use of it ends the process.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import threading
import weakref

import numpy as np
import torch
from _hvd.torch import tensors
from gpu_driver import Gpu, ordinal

GPU = Gpu(ordinal())
DEVICE = torch.device("cuda", GPU.ordinal)
_here = threading.local()
_plainly = getattr(torch._C, "DisableTorchFunctionSubclass", torch._C.DisableTorchFunction)
_blocks = {}  # address -> bytes
_recorded = {}  # address -> streams of record_stream()
history = []  # (address, stream) of record_stream()


def plain(tensor):
    """The same memory as a torch.Tensor."""
    with _plainly():
        return tensor.detach().as_subclass(torch.Tensor)


def current_stream(device=None):
    assert device is None or device == GPU.ordinal, f"device {device} is not this rank's"
    return getattr(_here, "stream", 0)


@contextlib.contextmanager
def stream(which):
    before = current_stream()
    _here.stream = which
    try:
        yield
    finally:
        _here.stream = before


def _is_there(address):
    return any(at <= address < at + n for at, n in _blocks.copy().items())  # what ends meanwhile leaves it


def _view(address, shape, dtype, at_end=None):
    """A Tensor of device memory; at_end: what is called when nothing of torch has it any more, and with what."""
    n = max(1, int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size())
    memory = np.ctypeslib.as_array(c.cast(address, c.POINTER(c.c_uint8)), (n,))
    if at_end is not None:
        weakref.finalize(memory, *at_end).atexit = False
    flat = torch.from_numpy(memory)[: n - n % torch.empty(0, dtype=dtype).element_size()].view(dtype)
    return flat[: int(np.prod(shape))].view(shape).as_subclass(Tensor)


def to_gpu(values, requires_grad=False):
    """A Tensor with the values of a torch.Tensor."""
    with _plainly():
        values = plain(values)
        address, n = c.c_uint64(), max(1, values.numel() * values.element_size())
        where = current_stream()
        GPU.call("cuMemAllocAsync", c.byref(address), c.c_size_t(n), c.c_void_p(where))
        GPU.finish(where)
        _blocks[address.value] = n
        made = _view(address.value, values.shape, values.dtype, (_free, address.value, where))
        made.copy_(values)
        return made.requires_grad_() if requires_grad else made


def _free(address, where):
    del _blocks[address]
    for stream in _recorded.pop(address, ()):
        Stream(where).wait_stream(Stream(stream))
    GPU.call("cuMemFreeAsync", c.c_uint64(address), c.c_void_p(where))


class Stream:
    """What there is of torch.cuda.Stream."""

    def __init__(self, handle):
        self.cuda_stream = handle

    def wait_event(self, event):
        GPU.call("cuStreamWaitEvent", c.c_void_p(self.cuda_stream), event.handle, c.c_uint(0))

    def record_event(self):
        event = Event()
        event.record(self)
        return event

    def wait_stream(self, other):
        self.wait_event(other.record_event())


class Event:
    """What there is of torch.cuda.Event."""

    def __init__(self):
        self.handle = c.c_void_p()
        GPU.call("cuEventCreate", c.byref(self.handle), c.c_uint(2))

    def record(self, stream=None):
        stream = torch.cuda.current_stream() if stream is None else stream
        GPU.call("cuEventRecord", self.handle, c.c_void_p(stream.cuda_stream))

    def __del__(self):
        GPU.call("cuEventDestroy_v2", self.handle)


class Future:
    """A replacement of torch.futures.Future for devices, which torch supports only with CUDA.

    As torch's: a result records the current stream's position on the result's devices only. A waiting
    thread's stream follows it; the function of then() runs in a stream of its own that follows it.
    """

    def __init__(self, devices):
        self._devices, self._lock = set(devices), threading.Lock()
        self._end, self._events, self._calls = None, [], []  # _end: a function that returns or raises
        self._is_over = threading.Event()

    def _ends(self, end):
        with self._lock:
            assert self._end is None, "a second end"
            self._end, calls = end, self._calls
        self._is_over.set()
        for call in calls:
            call()

    def set_result(self, value):
        tensors = value if isinstance(value, (list, tuple)) else [value]
        used = {x.device for x in tensors if isinstance(x, Tensor)}
        assert used <= self._devices, f"{used} are not among {self._devices}"
        self._events = [torch.cuda.current_stream(device.index).record_event() for device in used]
        self._ends(lambda: value)

    def _fails(self, error):
        def end():
            raise error

        self._ends(end)

    def _follow(self):
        for event in self._events:
            torch.cuda.current_stream().wait_event(event)

    def wait(self):
        assert self._is_over.wait(60), "a future has not ended"
        self._follow()
        return self._end()

    def then(self, function):
        after = Future(self._devices)

        def call():
            with stream(GPU.stream()):
                self._follow()
                try:
                    result = function(self)
                except Exception as e:
                    after._fails(e)
                else:
                    after.set_result(result)

        with self._lock:
            is_over = self._end is not None
            if not is_over:
                self._calls.append(call)
        if is_over:
            call()
        return after


@contextlib.contextmanager
def futures():
    """Within it torch.futures.Future(devices=) makes those."""
    real = torch.futures.Future
    torch.futures.Future = lambda devices=None: Future(devices) if devices else real()
    try:
        yield
    finally:
        torch.futures.Future = real


def external_stream(handle, device=None):
    """torch.cuda.ExternalStream; of 0 it is a new one of torch's pool, which nothing is in (torch's #182960)."""
    assert device in (None, GPU.ordinal), device
    return Stream(handle or GPU.stream())


def _moved(x):
    """A result: where it has memory of its own, that is the GPU's."""
    if isinstance(x, (tuple, list)):
        return type(x)(*map(_moved, x)) if hasattr(x, "_fields") else type(x)(map(_moved, x))
    if isinstance(x, Tensor) or not isinstance(x, torch.Tensor) or x.layout != torch.strided:
        return x
    if x.is_meta or x.grad_fn is not None:
        return x  # of a graph: its memory does not travel
    return x.as_subclass(Tensor) if _is_there(x.data_ptr()) else to_gpu(x)


_TO_HOST = {torch.Tensor.cpu, torch.Tensor.tolist, torch.Tensor.item, torch.Tensor.numpy}
_ASKS = {
    "__get__", "data_ptr", "size", "stride", "numel", "dim", "element_size", "is_contiguous", "is_neg", "is_conj",
    "is_complex", "is_floating_point", "detach", "view", "expand", "as_subclass",
}  # fmt: skip


class Tensor(torch.Tensor):
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    device = property(lambda self: DEVICE)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if getattr(kwargs.get("device"), "type", "") == "cuda":
            del kwargs["device"]
        if function.__name__ not in _ASKS:
            GPU.finish(current_stream())
        with _plainly():
            result = function(*args, **kwargs)
            if function in _TO_HOST:
                return (
                    result.as_subclass(torch.Tensor).clone() if isinstance(result, torch.Tensor) else result
                )
            return _moved(result)

    def cpu(self):
        GPU.finish(current_stream())
        return plain(self).clone()

    def record_stream(self, stream):
        at = plain(self).data_ptr()
        history.append((at, stream.cuda_stream))
        for base, n in _blocks.copy().items():
            if base <= at < base + n and base not in _results:  # as torch's: only of its own memory
                _recorded.setdefault(base, set()).add(stream.cuda_stream)

    def __reduce_ex__(self, protocol):
        raise TypeError("memory of a GPU is not pickled here")


class _DlTensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("type", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
        ("manager", c.c_void_p),
        ("deleter", c.CFUNCTYPE(None, c.c_void_p)),
    ]


_pointer = c.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
_rename = c.pythonapi.PyCapsule_SetName
_rename.argtypes = [c.py_object, c.c_char_p]
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
n_taken = n_given_back = 0
_results = set()  # addresses of the runtime's memory


def _from_dlpack(capsule):
    """torch's own, for memory of the GPU; that of the host goes there."""
    global n_taken
    at = _pointer(capsule, b"dltensor")
    dl = _DlTensor.from_address(at)
    if dl.device_type == 1:
        return _original(capsule)
    assert (dl.device_type, dl.device_id) == (2, GPU.ordinal), (dl.device_type, dl.device_id)
    dtype = getattr(torch, f"{_KINDS[dl.type]}{dl.bits}")
    shape = tuple(dl.shape[: dl.ndim])
    n = int(np.prod(shape)) * (dl.bits // 8)
    _rename(capsule, b"used_dltensor")
    n_taken += 1
    if n == 0:
        dl.deleter(at)
        return to_gpu(torch.empty(shape, dtype=dtype))
    _blocks[dl.data] = n
    _results.add(dl.data)
    return _view(dl.data, shape, dtype, (_give_back, dl.data, at))


def _give_back(data, at):
    global n_given_back
    n_given_back += 1
    _results.discard(data)
    del _blocks[data]
    _DlTensor.from_address(at).deleter(at)


def _with_device(function):
    def make(*args, device=None, **kwargs):
        if device is None or torch.device(device).type == "cpu":
            return function(*args, **kwargs)
        return to_gpu(function(*args, **kwargs))

    return make


_original = tensors._from_dlpack
tensors._from_dlpack = _from_dlpack
tensors.current_stream = current_stream
torch.cuda.current_stream = lambda device=None: Stream(current_stream(device))
torch.cuda.default_stream = lambda device=None: Stream(0)
torch.cuda.ExternalStream, torch.cuda.Event = external_stream, Event
torch.cuda.Stream = lambda device=None: Stream(GPU.stream())
torch.cuda.stream = lambda which: stream(which.cuda_stream)
for _name in ("empty", "empty_strided", "zeros", "tensor"):
    setattr(torch, _name, _with_device(getattr(torch, _name)))
