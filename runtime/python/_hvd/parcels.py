# SPDX-License-Identifier: Apache-2.0
"""Objects with large tensors as one buffer: for copies that are made in each commit, and files in memory.

    | length of the head, 8 bytes | head: pickled | MAC of the head | tensors, each at a multiple of 64 |

The head is a pickle in which tensors are numbers of places behind it; their bytes are copied once. A
tensor is a plain torch.Tensor with strides, or a numpy array without objects. read() returns copies, in
host memory. Anything else in the object is pickled.

Unpickling runs code that the bytes choose, so a parcel that has come from another rank is verified before
it is read. Its MAC is the runtime's, whose key is that of one world: a parcel is sealed when it is written,
again before it is sent in a later world, and verified in the world in which it arrives.

Writing imports neither torch nor numpy: a program that has a tensor has. Called by sharded.py and
guard.py.
"""

import hmac
import io
import pickle
import struct
import sys

from _hvd import _native

_LENGTH = struct.Struct("<Q")
_MAC_BYTES = 32
_ALIGNED = 64
_PURPOSE = "parcel"


class ParcelError(ValueError):
    """The bytes are not a parcel of this job."""


class _Torch:
    @staticmethod
    def is_one(torch, obj):
        return type(obj) is torch.Tensor and obj.layout == torch.strided and not obj.is_quantized

    @staticmethod
    def form(_, tensor):
        return str(tensor.dtype).split(".")[1], tuple(tensor.shape), tensor.numel() * tensor.element_size()

    @staticmethod
    def view(torch, buffer, dtype, shape, at):
        n = 1
        for extent in shape:
            n *= extent
        flat = torch.frombuffer(buffer, dtype=getattr(torch, dtype), count=n, offset=at)
        return flat.reshape(shape)

    @staticmethod
    def write(torch, buffer, tensor, form, at):
        _Torch.view(torch, buffer, *form[:2], at).copy_(tensor.detach())

    @staticmethod
    def read(torch, buffer, form, at):
        if not form[2]:
            return torch.empty(form[1], dtype=getattr(torch, form[0]))
        return _Torch.view(torch, buffer, *form[:2], at).clone()


class _Numpy:
    @staticmethod
    def is_one(numpy, obj):
        return type(obj) is numpy.ndarray and obj.dtype.kind in "?biufc" and obj.dtype.isnative

    @staticmethod
    def form(_, array):
        return array.dtype.str, array.shape, array.nbytes

    @staticmethod
    def view(numpy, buffer, form, at):
        return numpy.ndarray(form[1], dtype=form[0], buffer=buffer, offset=at)

    @staticmethod
    def write(numpy, buffer, array, form, at):
        _Numpy.view(numpy, buffer, form, at)[...] = array

    @staticmethod
    def read(numpy, buffer, form, at):
        if not form[2]:
            return numpy.empty(form[1], dtype=form[0])
        return _Numpy.view(numpy, buffer, form, at).copy()


_KINDS = {"torch": _Torch, "numpy": _Numpy}


def _up(n):
    return -(-n // _ALIGNED) * _ALIGNED


class Parcel:
    """An object that is about to be written: its size, and then write() into a buffer of that size."""

    def __init__(self, obj):
        self._tensors = []  # (kind, module, tensor, form)
        self._numbers = {}  # id -> number; the object keeps its tensors alive meanwhile
        self._staged = None
        skeleton = io.BytesIO()
        pickler = pickle.Pickler(skeleton, protocol=4)
        pickler.persistent_id = self._number_of
        pickler.dump(obj)
        self._offsets, end = [], 0
        for _, _, _, form in self._tensors:
            self._offsets.append(end)
            end = _up(end + form[2])
        places = [(t[0], t[3], offset) for t, offset in zip(self._tensors, self._offsets)]
        self._head = pickle.dumps((places, skeleton.getvalue(), end), protocol=4)
        self._start = _up(_LENGTH.size + len(self._head) + _MAC_BYTES)
        self.size = self._start + end

    def _number_of(self, obj):
        for name, kind in _KINDS.items():
            module = sys.modules.get(name)
            if module is not None and kind.is_one(module, obj):
                if id(obj) not in self._numbers:
                    self._numbers[id(obj)] = len(self._tensors)
                    self._tensors.append((name, module, obj, kind.form(module, obj)))
                return self._numbers[id(obj)]
        return None

    def stage(self):
        """Starts copies of tensors on GPUs to pinned memory. write() waits for them.

        False: there are none. Later kernels of the current streams may change the tensors.
        """
        torch = sys.modules.get("torch")
        devices = {t[2].device for t in self._tensors if t[0] == "torch" and t[2].is_cuda}
        for i, (name, module, tensor, form) in enumerate(self._tensors):
            if name == "torch" and tensor.is_cuda:
                pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                pinned.copy_(tensor.detach(), non_blocking=True)
                self._tensors[i] = (name, module, pinned, form)
        self._staged = [torch.cuda.current_stream(device).record_event() for device in devices]
        return bool(devices)

    def write(self, buffer):
        """Into the first bytes of a writable buffer."""
        for event in self._staged or ():
            event.synchronize()
        view = memoryview(buffer)
        view[: _LENGTH.size] = _LENGTH.pack(len(self._head))
        view[_LENGTH.size : _LENGTH.size + len(self._head)] = self._head
        seal(view)
        for (name, module, tensor, form), offset in zip(self._tensors, self._offsets):
            if form[2]:
                _KINDS[name].write(module, buffer, tensor, form, self._start + offset)


def _head_of(view):
    """The pickled head."""
    if len(view) < _LENGTH.size:
        raise ParcelError("it is shorter than a parcel")
    (n,) = _LENGTH.unpack_from(view)
    if n > len(view) - _LENGTH.size - _MAC_BYTES:
        raise ParcelError("its head has a wrong length")
    return bytearray(view[_LENGTH.size : _LENGTH.size + n])


def _mac_place(head):
    start = _LENGTH.size + len(head)
    return slice(start, start + _MAC_BYTES)


def _mac(head):
    return _native.mac(_PURPOSE, _native.address(head), len(head))


def seal(buffer):
    """Writes the MAC of this world."""
    view = memoryview(buffer)
    head = _head_of(view)
    view[_mac_place(head)] = _mac(head)


def verify(buffer):
    """Raises ParcelError unless it was sealed in this world. The values of tensors are not verified."""
    view = memoryview(buffer)
    head = _head_of(view)
    if not hmac.compare_digest(_mac(head), bytes(view[_mac_place(head)])):
        raise ParcelError(
            "it does not match its MAC: it was changed on its way, or is of a rank with another job token"
        )


def read(buffer):
    """The object in a writable buffer that this process has written or verified, as copies."""
    head = _head_of(memoryview(buffer))
    places, skeleton, size = pickle.loads(head)
    start = _up(_LENGTH.size + len(head) + _MAC_BYTES)
    if start + size > len(buffer):
        raise ParcelError("its end is missing")
    tensors = {}

    def load(number):
        if number not in tensors:
            name, form, offset = places[number]
            __import__(name)
            tensors[number] = _KINDS[name].read(sys.modules[name], buffer, form, start + offset)
        return tensors[number]

    unpickler = pickle.Unpickler(io.BytesIO(skeleton))
    unpickler.persistent_load = load
    return unpickler.load()


def pack(obj, make=bytearray):
    """The object as a new parcel; make(n): a buffer of n bytes."""
    parcel = Parcel(obj)
    buffer = make(parcel.size)
    parcel.write(buffer)
    return buffer
