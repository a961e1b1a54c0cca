# SPDX-License-Identifier: Apache-2.0
"""As much of the CUDA driver as the tests need, by ctypes: no framework, and the fake of it will do.

Device memory is taken once and given out in pieces: cuMemFree waits for all kernels of the device, and one
of those may wait for a rank that waits likewise.
"""

from __future__ import annotations

import ctypes as c
import time

OK, NOT_READY = 0, 600
ROOM = 1 << 30


def piece_size(size):
    """The size of the piece for size bytes."""
    return max(256, 1 << (size - 1).bit_length())


class CudaError(Exception):
    pass


class Device:
    """Device 0: its primary context is made current in the thread that makes this."""

    def __init__(self):
        self.lib = c.CDLL("libcuda.so.1")
        self.do("cuInit", 0)
        device, context = c.c_int(), c.c_void_p()
        self.do("cuDeviceGet", c.byref(device), 0)
        self.do("cuDevicePrimaryCtxRetain", c.byref(context), device)
        self.do("cuCtxPushCurrent_v2", context)
        self.stream = c.c_void_p()
        self.do("cuStreamCreateWithPriority", c.byref(self.stream), 1, 0)
        self.free = {}  # by size: pieces that are not used
        p = c.c_uint64()
        self.do("cuMemAlloc_v2", c.byref(p), c.c_size_t(ROOM))
        self.next, self.end = p.value, p.value + ROOM

    def do(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result != OK:
            text = c.c_char_p()
            self.lib.cuGetErrorName(result, c.byref(text))
            raise CudaError(f"{name}: {(text.value or b'').decode()} ({result})")

    # --- pieces of what was taken at first ---

    def take(self, size):
        """Memory for size bytes, not on a boundary beyond 256; give() gets the same size."""
        room = piece_size(size)
        if self.free.get(room):
            return self.free[room].pop()
        p = self.next
        if p + room > self.end:
            raise MemoryError(f"{size} bytes more than the tests have taken of the device")
        self.next = p + room
        return p

    def give(self, p, size):
        self.free.setdefault(piece_size(size), []).append(p)

    def pinned(self, n):
        """n words of 32 bits that the device sees where the host does, zeros; never given back."""
        p = c.c_void_p()
        self.do("cuMemHostAlloc", c.byref(p), c.c_size_t(4 * n), 2)  # 2: mapped for the device
        words = (c.c_uint32 * n).from_address(p.value)
        words[:] = [0] * n
        return words

    def function(self, image, name):
        """The kernel of an image (PTX as bytes)."""
        module, function = c.c_void_p(), c.c_void_p()
        self.do("cuModuleLoadData", c.byref(module), image + b"\0")
        self.do("cuModuleGetFunction", c.byref(function), module, name)
        return function

    # --- in the order of a stream ---

    def launch(self, function, *words):
        """One block of 256 threads; the kernel's one argument are these words of 64 bits."""
        argument = (c.c_uint64 * max(len(words), 1))(*words)
        arguments = (c.c_void_p * 1)(c.addressof(argument))
        self.do("cuLaunchKernel", function, 1, 1, 1, 256, 1, 1, 0, self.stream, arguments, None)

    def up(self, p, array):
        """array: contiguous numpy. The host's memory may be used again when this returns."""
        self.copy("cuMemcpyHtoDAsync_v2", c.c_uint64(p), c.c_void_p(array.ctypes.data), array.nbytes)

    def down(self, array, p):
        self.copy("cuMemcpyDtoHAsync_v2", c.c_void_p(array.ctypes.data), c.c_uint64(p), array.nbytes)

    def copy(self, call, to, p, size):
        if size:
            self.do(call, to, p, c.c_size_t(size), self.stream)
            self.sync()

    def fill(self, p, value, size):
        self.do("cuMemsetD8Async", c.c_uint64(p), c.c_ubyte(value), c.c_size_t(size), self.stream)

    def sync(self, timeout_s=30):
        """Waits by asking, so that it can end at a deadline."""
        end = time.monotonic() + timeout_s
        while (result := self.lib.cuStreamQuery(self.stream)) != OK:
            if result != NOT_READY:
                self.do("cuStreamQuery", self.stream)
            if time.monotonic() > end:
                raise CudaError(f"a stream was not done after {timeout_s} s")
            time.sleep(0)
