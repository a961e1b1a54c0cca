# SPDX-License-Identifier: Apache-2.0
"""on_device.py SCRIPT...: scripts of tests/python/ranks that use the C API, with their tensors on the GPU.

capi.Op is replaced by one that has its memory on the device and copies results back, so that every check
that the runtime passes with host tensors is made with device tensors, against numpy as before. Of the
operations every second one is waited for by a stream instead of the thread. RM_MIXED=1: every third tensor,
by its name so that all ranks agree, stays in host memory: a job with both kinds.
"""

import os
import runpy
import sys
import zlib

RANKS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python", "ranks")
sys.path.insert(0, RANKS)

import capi  # noqa: E402
import checks  # noqa: E402
import driver  # noqa: E402
import numpy as np  # noqa: E402

MIXED = os.environ.get("RM_MIXED") == "1"
device = driver.Device()
counts = {"device": 0, "host": 0}
capi.lib.hvd_wait_on_stream.argtypes = [capi.c.c_int64, capi.c.c_void_p, capi.c.c_int64]


class DeviceOp(capi.Op):
    def place(self, t):
        self.blocks = []
        stays = self.kind in ("barrier", "join")
        if not stays and MIXED:
            stays = zlib.crc32(self.name.encode()) % 3 == 0
        counts["host" if stays else "device"] += 1
        self.on_device = not stays
        if stays:
            return
        t.device, t.stream = 0, device.stream
        in_place = self.output is not None and self.array is self.output
        if self.array is not None and self.kind != "recv":
            t.data = self.put(self.array)
        if self.output is not None and self.output.size:
            t.output = t.data if in_place else self.put(self.output)
        self.out_at = t.output
        self.given = []  # (memory of the host, of the device, bytes) of what the caller's alloc gave
        if self.alloc:
            self.callers_alloc, self.alloc = self.alloc, capi.ALLOC(self.give)

    def give(self, arg, ndim, shape, size):
        """The caller gives memory of the host, which gets a copy in the end."""
        host = self.callers_alloc(arg, ndim, shape, size)
        if not host:
            return None
        p = device.take(max(size, 1))
        self.blocks.append((p, max(size, 1)))
        self.given.append((host, p, size))
        return p

    def put(self, array):
        p = device.take(max(array.nbytes, 1))
        self.blocks.append((p, max(array.nbytes, 1)))
        device.up(p, array)
        return p

    def wait(self, timeout_ms=capi.WAIT_MS):
        if self.on_device and counts["device"] % 2:
            # what it says is said again by the wait
            capi.lib.hvd_wait_on_stream(self.handle, device.stream, timeout_ms)
        result = super().wait(timeout_ms)
        if self.on_device:
            for p, size in self.blocks:
                device.give(p, size)
        return result

    def _result(self):
        # where the runtime must not write it has to be seen, so that all of the output comes back
        if self.on_device and self.output is not None and self.out_at:
            device.down(self.output, self.out_at)
        if self.on_device and self.array is not None and self.kind != "recv" and not self.output_is_input():
            device.down(self.array, self.blocks[0][0])
        for host, p, size in self.given if self.on_device else ():
            device.down(np.ctypeslib.as_array((capi.c.c_uint8 * size).from_address(host)), p)
        return super()._result()

    def output_is_input(self):
        return self.output is self.array

    def fetch(self, out, data):
        if self.on_device:
            device.down(out, data.value)
        else:
            super().fetch(out, data)


def say_counts(rank):
    def tensors_were_on_the_device():
        assert counts["device"] > 0, counts
        assert not MIXED or counts["host"] > 0, counts

    checks.check(tensors_were_on_the_device)
    finish(rank)


finish = checks.main


def main():
    checks.main = say_counts
    capi.Op = DeviceOp
    np.seterr(all="ignore")
    script = "together.py" if len(sys.argv) > 2 else sys.argv.pop(1)
    sys.argv[0] = os.path.join(RANKS, script)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
