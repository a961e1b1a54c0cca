# SPDX-License-Identifier: Apache-2.0
"""Memory and streams of a GPU by the driver's API, and collectives on them by _hvd._native: no framework.

The driver and its fake (tests/fakes/cuda) have everything that is called here, so the same ranks run on
both; functions named fake_ need the fake.
"""

from __future__ import annotations

import ctypes as c
import itertools
import os
import threading
import time

import numpy as np
from _hvd import _native
from capi import DTYPES, SUM, np_type

NOT_READY = 600
_KERNEL = c.CFUNCTYPE(c.c_int, c.c_void_p)


class Gpu:
    """One device, its context current in each thread that calls."""

    def __init__(self, ordinal):
        self.cu = c.CDLL("libcuda.so.1")
        self.ordinal = ordinal
        self.is_fake = hasattr(self.cu, "hvd_fake_calls")
        self._kernels = []
        self._context, self._threads = c.c_void_p(), threading.local()
        device = c.c_int()
        self._threads.is_in = True
        self.call("cuInit", c.c_uint(0))
        self.call("cuDeviceGet", c.byref(device), c.c_int(ordinal))
        self.call("cuDevicePrimaryCtxRetain", c.byref(self._context), device)
        self._threads.is_in = False
        self.main = self.stream()

    def enter(self):
        if not getattr(self._threads, "is_in", False):
            self._threads.is_in = True
            self.call("cuCtxPushCurrent_v2", self._context)

    def call(self, name, *args):
        self.enter()
        result = getattr(self.cu, name)(*args)
        if result != 0:
            raise RuntimeError(f"{name}: CUDA error {result}")

    def stream(self):
        """A new stream that waits for no other."""
        stream = c.c_void_p()
        self.call("cuStreamCreateWithPriority", c.byref(stream), c.c_uint(1), c.c_int(0))
        return stream.value

    def finish(self, stream, timeout=60):
        """Returns when all in a stream is done."""
        deadline = time.monotonic() + timeout
        self.enter()
        while True:
            result = self.cu.cuStreamQuery(c.c_void_p(stream))
            if result == 0:
                return
            if result != NOT_READY:
                raise RuntimeError(f"cuStreamQuery: CUDA error {result}")
            if time.monotonic() > deadline:
                raise AssertionError(f"a stream was not done after {timeout} s")
            time.sleep(0.0002)

    def is_memory(self, address):
        """Does a living allocation hold this address?"""
        self.enter()
        kind = c.c_uint()  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        return self.cu.cuPointerGetAttribute(c.byref(kind), c.c_int(2), c.c_uint64(address)) == 0

    def fake_wait(self, stream, event, then=None):
        """Later work of a stream runs only after a threading.Event and a function."""

        def kernel(_):
            if not event.wait(60):
                return 999
            if then:
                then()
            return 0

        self._kernels.append(_KERNEL(kernel))
        none = c.c_uint64(0)
        args = (self._kernels[-1], c.byref(none), c.c_size_t(8))
        self.call("hvd_fake_enqueue", c.c_void_p(stream), *args)

    @staticmethod
    def fake_soon(is_so, seconds=0.2):
        """Does it become so in a time that a fake's stream needs for nothing?"""
        end = time.monotonic() + seconds
        while not is_so() and time.monotonic() < end:
            time.sleep(0.001)
        return is_so()


class Array:
    """An array on a GPU. Its memory is freed when nothing of the runtime can use it any more."""

    def __init__(self, gpu, array, stream=None):
        self.gpu, self.shape, self.dtype, self.n_bytes = gpu, array.shape, array.dtype, array.nbytes
        self._kept = np.ascontiguousarray(array)  # the copy may come late
        address = c.c_uint64()
        gpu.call(
            "cuMemAllocAsync", c.byref(address), c.c_size_t(max(1, self.n_bytes)), c.c_void_p(gpu.main)
        )
        gpu.finish(gpu.main)
        self.at = address.value
        if self.n_bytes:
            where = gpu.main if stream is None else stream
            host = c.c_void_p(self._kept.ctypes.data)
            args = (c.c_uint64(self.at), host, c.c_size_t(self.n_bytes), c.c_void_p(where))
            gpu.call("cuMemcpyHtoDAsync_v2", *args)
            if stream is None:
                gpu.finish(where)

    def numpy(self, stream=None):
        return read(self.gpu, self.at, self.shape, self.dtype, stream)

    def __del__(self):
        if getattr(self, "at", None):
            self.gpu.cu.cuMemFreeAsync(
                c.c_uint64(self.at), c.c_void_p(self.gpu.main)
            )  # waits for no stream


def read(gpu, address, shape, dtype, stream=None):
    """Device memory as it is when all in a stream is done."""
    out = np.empty(shape, dtype)
    where = gpu.main if stream is None else stream
    if out.nbytes:
        args = (c.c_void_p(out.ctypes.data), c.c_uint64(address), c.c_size_t(out.nbytes), c.c_void_p(where))
        gpu.call("cuMemcpyDtoHAsync_v2", *args)
    gpu.finish(where)
    return out


_names = itertools.count()
PENDING = {}


class Op:
    """One operation on arrays of a GPU, by way of _native; of "recv" the array gives type and shape only.

    is_on: whether the memory is on the GPU. wait() makes a stream wait, not a thread.
    """

    def __init__(
        self,
        gpu,
        kind,
        array,
        dtype=None,
        *,
        name=None,
        op=SUM,
        prescale=1.0,
        postscale=1.0,
        root=0,
        peer=-1,
        splits=None,
        process_set=0,
        in_place=False,
        group=None,
        group_size=0,
        is_held=False,
        compression=None,
        stream=None,
        is_on=True,
    ):
        self.gpu, self.kind, self.dtype = gpu, kind, dtype or array.dtype.name
        self.name = name or f"{kind}.{next(_names)}"
        self.stream = gpu.main if stream is None else stream
        self.is_on = is_on
        make = (lambda a: Array(gpu, a)) if is_on else np.ascontiguousarray
        self.source = array if isinstance(array, Array) else make(array)
        self.output = None
        if kind in ("allreduce", "broadcast", "reduce", "recv"):
            self.output = self.source if in_place else make(np.full(array.shape, 77, np_type(self.dtype)))
        where = (gpu.ordinal, self.stream) if is_on else (-1, 0)
        tensor = (
            self.name,
            self._address(self.source),
            0 if self.output is None else self._address(self.output),
            DTYPES.index(self.dtype),
            tuple(array.shape),
            group,
            group_size,
            is_held,
            *where,
        )
        scales = (op, prescale, postscale)
        args = {
            "allreduce": (*scales, process_set, compression),
            "reduce": (*scales, root, process_set),
            "reducescatter": (*scales, process_set),
            "allgather": (process_set,),
            "gather": (root, process_set),
            "alltoall": (None if splits is None else tuple(splits), process_set),
            "broadcast": (root, process_set),
            "send": (peer,),
            "recv": (peer,),
        }[kind]
        self.handle = getattr(_native, kind)(PENDING, self, tensor, *args)

    @staticmethod
    def _address(array):
        return array.at if isinstance(array, Array) else array.ctypes.data

    def poll(self):
        return _native.poll(self.handle)

    def wait_on(self, stream=None):
        """As wait(), and leaves the result where it is."""
        _native.wait_on_stream(self.handle, self.stream if stream is None else stream)

    def result(self, stream=None):
        """As numpy has it, once all in a stream is done; forgets the operation."""
        stream = self.stream if stream is None else stream
        try:
            if self.kind == "alltoall":
                self.received = _native.received_splits(self.handle)
            if self.kind == "send":
                return None
            if self.output is not None:
                return self.output.numpy(stream) if self.is_on else self.output
            address, shape = _native.result(self.handle)
            assert _native.result_device(self.handle) == (self.gpu.ordinal if self.is_on else -1)
            if self.is_on:
                return read(self.gpu, address, shape, np_type(self.dtype), stream)
            out = np.empty(shape, np_type(self.dtype))
            if out.nbytes:
                c.memmove(out.ctypes.data, address, out.nbytes)
            return out
        finally:
            self.forget()

    def wait(self, stream=None):
        if self.is_on:
            self.wait_on(stream)
        else:
            _native.wait(self.handle)
        return self.result(stream)

    def forget(self):
        del PENDING[self.handle]
        _native.release(self.handle)


def run(gpu, kind, array, *args, **options):
    """An operation to its end."""
    return Op(gpu, kind, array, *args, **options).wait()


def ordinal():
    """This rank's device: a fake has as many as there are ranks, a machine's one is shared."""
    return (
        0 if os.environ.get("CUDA_VISIBLE_DEVICES", "0") == "0" else int(os.environ["HOROVOD_LOCAL_RANK"])
    )
