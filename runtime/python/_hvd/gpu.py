# SPDX-License-Identifier: Apache-2.0
"""GPUs, without a framework: whether the runtime can use them here, and which streams wait for operations.

A framework queues work in streams and continues; so do we. An operation is submitted with the stream that
produces its inputs (ready), and a stream waits for its outputs (done). No thread waits for the GPU, unless
HOROVOD_ENABLE_ASYNC_COMPLETION=0.
"""

import contextlib
import importlib.util
import json
import os

from _hvd import _native
from _hvd.exceptions import HorovodInternalError

_problem = None


def report():
    """Returns hvd_device_report() (hvd.h) as a dict. Opens libraries."""
    return json.loads(_native.device_report())


def problem():
    """Returns why the runtime cannot use tensors on GPUs here, or "". Determined once."""
    global _problem
    if _problem is None:
        found = report()
        _problem = "" if found["can"] else found["problem"] or "it is not known why"
    return _problem


def is_missing():
    """Whether this process certainly has no NVIDIA GPU. False: it may have one.

    Checks files and variables only: once the driver is loaded, processes forked later cannot use it.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return True
    return not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")))


def nccl_version():
    """Returns NCCL's version number (22705), or 0 where the runtime cannot use tensors on GPUs."""
    found = report()
    parts = found["nccl"].split(".")
    if not found["can"] or not all(part.isdigit() for part in parts):
        return 0
    major, minor, patch = (*map(int, parts), 0, 0)[:3]
    return major * 10000 + minor * 100 + patch


def hint_at_wheel():
    """Passes the path of the NCCL in the framework's wheels to the runtime. Opens nothing."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except (ImportError, ValueError):
        return
    for folder in found.submodule_search_locations or () if found else ():
        path = os.path.join(folder, "lib", "libnccl.so.2")
        if os.path.exists(path):
            _native.device_hint(path)
            return


def is_async():
    """Whether streams wait for operations, instead of the host."""
    return os.environ.get("HOROVOD_ENABLE_ASYNC_COMPLETION", "1").strip().lower() not in (
        "0",
        "false",
        "no",
        "off",
    )


class Place:
    """The device of an operation on a GPU, and the stream that its memory belongs to.

    current: a function that returns the calling thread's stream of a device.
    """

    __slots__ = ("current", "device", "is_waited", "stream")

    def __init__(self, device, stream, current):
        self.device = device
        self.stream = stream
        self.current = current
        self.is_waited = False  # the streams wait for its end, or it has ended

    def streams(self):
        """The streams that must wait: first the one in whose order the inputs' memory is freed, last the
        one that reads the outputs, in whose order the runtime's memory is freed."""
        now = self.current(self.device)
        return (now,) if now == self.stream else (self.stream, now)

    def wait(self, handle, timeout_ms=-1):
        """Returns when the streams wait for the operation; raises what it failed with before that.

        After timeout_ms, if that is not below 0, TimeoutError.
        """
        if self.is_waited:
            return
        streams = self.streams()
        self._wait(handle, streams if is_async() else streams[1:], timeout_ms)
        self.is_waited = True

    def wait_here(self, handle, timeout_ms=-1):
        """As wait(), but only this thread's current stream waits. Until the end the memory is in use."""
        self._wait(handle, (self.current(self.device),), timeout_ms)

    def _wait(self, handle, streams, timeout_ms):
        """The last stream reads the result."""
        try:
            if not is_async():
                _native.wait(handle, timeout_ms)
            for stream in streams:
                _native.wait_on_stream(handle, stream, timeout_ms)
        except HorovodInternalError:
            with contextlib.suppress(HorovodInternalError):
                _native.wait(handle)  # until then its memory is in use
            raise
