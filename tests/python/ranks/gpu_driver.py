# SPDX-License-Identifier: Apache-2.0
"""A GPU of the fake driver (tests/fakes/cuda): streams, and work that a test holds back."""

from __future__ import annotations

import ctypes as c
import os
import threading
import time

NOT_READY = 600
_KERNEL = c.CFUNCTYPE(c.c_int, c.c_void_p)


class Gpu:
    """One device, its context current in each thread that calls."""

    def __init__(self, ordinal):
        self.cu = c.CDLL("libcuda.so.1")
        self.ordinal = ordinal
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

    def n_waits(self, stream):
        """How often a stream was made to wait for an event."""
        self.enter()
        count = self.cu.hvd_fake_n_waits
        count.restype = c.c_ulong
        return count(c.c_void_p(stream))

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
        """Does it become so within the time? A stream of the fake that need not wait takes far less."""
        end = time.monotonic() + seconds
        while not is_so() and time.monotonic() < end:
            time.sleep(0.001)
        return is_so()


def ordinal():
    """This rank's device."""
    return int(os.environ["HOROVOD_LOCAL_RANK"])
