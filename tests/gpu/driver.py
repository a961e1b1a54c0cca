# SPDX-License-Identifier: Apache-2.0
"""As much of the CUDA driver as the tests need, by ctypes: no framework, and the fake of it will do.

Device memory is taken once and given out in pieces: cuMemFree waits for all kernels of the device, and one
of those may wait for a rank that waits likewise.
"""

from __future__ import annotations

import ctypes as c
import time

OK, NOT_READY = 0, 600


class CudaError(Exception):
    pass


class Device:
    """Device 0: its primary context is made current in the thread that makes this."""

    def __init__(self, room=1 << 30):
        self.lib = c.CDLL("libcuda.so.1")
        self.do("cuInit", 0)
        device, context = c.c_int(), c.c_void_p()
        self.do("cuDeviceGet", c.byref(device), 0)
        self.do("cuDevicePrimaryCtxRetain", c.byref(context), device)
        self.context = context
        self.enter()
        self.device = device
        self.stream = self.stream_new()
        self.free = {}  # by size: pieces that are not used
        self.next = self.end = 0
        if room:
            self.next = self.alloc(room)
            self.end = self.next + room

    def do(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result != OK:
            text = c.c_char_p()
            self.lib.cuGetErrorName(result, c.byref(text))
            raise CudaError(f"{name}: {(text.value or b'').decode()} ({result})")

    def enter(self):
        self.do("cuCtxPushCurrent_v2", self.context)

    def stream_new(self, priority=0):
        stream = c.c_void_p()
        self.do("cuStreamCreateWithPriority", c.byref(stream), 1, priority)
        return stream

    def alloc(self, size):
        p = c.c_uint64()
        self.do("cuMemAlloc_v2", c.byref(p), c.c_size_t(size))
        return p.value

    def name(self):
        text = c.create_string_buffer(96)
        self.do("cuDeviceGetName", text, 96, self.device)
        return text.value.decode()

    # --- pieces of what was taken at first ---

    def take(self, size):
        """Memory for size bytes, not on a boundary beyond 256; give() gets the same size."""
        room = 256
        while room < size:
            room *= 2
        if self.free.get(room):
            return self.free[room].pop()
        p = self.next
        if p + room > self.end:
            raise MemoryError(f"{size} bytes more than the tests have taken of the device")
        self.next = p + room
        return p

    def give(self, p, size):
        room = 256
        while room < size:
            room *= 2
        self.free.setdefault(room, []).append(p)

    # --- in the order of a stream ---

    def up(self, p, array, stream=None):
        """array: contiguous numpy. The host's memory may be used again when this returns."""
        if array.nbytes:
            stream = stream or self.stream
            self.do(
                "cuMemcpyHtoDAsync_v2",
                c.c_uint64(p),
                c.c_void_p(array.ctypes.data),
                c.c_size_t(array.nbytes),
                stream,
            )
            self.sync(stream)

    def down(self, array, p, stream=None):
        if array.nbytes:
            stream = stream or self.stream
            self.do(
                "cuMemcpyDtoHAsync_v2",
                c.c_void_p(array.ctypes.data),
                c.c_uint64(p),
                c.c_size_t(array.nbytes),
                stream,
            )
            self.sync(stream)

    def copy(self, to, p, size, stream=None):
        self.do(
            "cuMemcpyDtoDAsync_v2", c.c_uint64(to), c.c_uint64(p), c.c_size_t(size), stream or self.stream
        )

    def fill(self, p, value, size, stream=None):
        self.do("cuMemsetD8Async", c.c_uint64(p), c.c_ubyte(value), c.c_size_t(size), stream or self.stream)

    def sync(self, stream=None, timeout_s=30):
        """Waits by asking, so that it can end at a deadline."""
        end = time.monotonic() + timeout_s
        while True:
            result = self.lib.cuStreamQuery(stream or self.stream)
            if result == OK:
                return
            if result != NOT_READY:
                self.do("cuStreamQuery", stream or self.stream)
            if time.monotonic() > end:
                raise CudaError(f"a stream was not done after {timeout_s} s")
            time.sleep(0)
