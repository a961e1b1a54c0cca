# SPDX-License-Identifier: Apache-2.0
"""libhvd.so as its C API, by ctypes: numpy arrays in, numpy arrays out.

For tests of the runtime below any framework. `submit` starts an operation and returns an Op, whose
wait() returns the result or raises Failed with the status and the error text.
"""

from __future__ import annotations

import collections
import ctypes as c
import itertools
import os
import sys

import checks
import numpy as np

OK, IN_PROGRESS = 0, 1
NOT_INITIALIZED, INVALID_ARGUMENT, PRECONDITION, ABORTED, TIMEOUT, NO_MEMORY = range(-1, -7, -1)
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
OP_NAMES = ["AVERAGE", "SUM", "ADASUM", "MIN", "MAX", "PRODUCT"]
INTEGERS = ["uint8", "int8", "uint16", "int16", "int32", "int64"]
DTYPES = [*INTEGERS, "float16", "float32", "float64", "bool", "bfloat16"]
WAIT_MS = 60000

ALLOC = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_int, c.POINTER(c.c_int64), c.c_size_t)
DONE = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)


class Tensor(c.Structure):
    _fields_ = [
        ("size_bytes", c.c_size_t),
        ("name", c.c_char_p),
        ("data", c.c_void_p),
        ("output", c.c_void_p),
        ("dtype", c.c_int),
        ("ndim", c.c_int),
        ("shape", c.POINTER(c.c_int64)),
        ("device", c.c_int),
        ("ready_event", c.c_void_p),
        ("done", DONE),
        ("done_arg", c.c_void_p),
        ("group", c.c_char_p),
        ("group_size", c.c_int),
        ("compression", c.c_char_p),
        ("is_held", c.c_int),
        ("stream", c.c_void_p),
    ]


class Config(c.Structure):
    _fields_ = [
        ("size_bytes", c.c_size_t),
        ("start_timeout_ms", c.c_uint64),
        ("n_sets", c.c_int),
        ("set_sizes", c.POINTER(c.c_int)),
        ("set_ranks", c.POINTER(c.c_int)),
    ]


def _load():
    if os.environ.get("CAPI_LIBRARY"):  # not that of the Python packages
        return c.CDLL(os.environ["CAPI_LIBRARY"])
    for directory in sys.path:
        path = os.path.join(directory, "_hvd", "libhvd.so")
        if os.path.exists(path):
            return c.CDLL(path)
    raise ImportError("libhvd.so is on no path")


lib = _load()
lib.hvd_last_error.restype = c.c_char_p
_scales = [c.c_int, c.c_double, c.c_double]
_alloc = [ALLOC, c.c_void_p]
_FUNCTIONS = {
    "allreduce": _scales,
    "reduce": [*_scales, c.c_int],
    "reducescatter": [*_scales, *_alloc],
    "allgather": _alloc,
    "gather": [c.c_int, *_alloc],
    "alltoall": [c.POINTER(c.c_int64), c.c_int, *_alloc],
    "broadcast": [c.c_int],
    "barrier": [],
}
KINDS = list(_FUNCTIONS)
for _kind, _args in _FUNCTIONS.items():
    getattr(lib, f"hvd_{_kind}_async").argtypes = [c.POINTER(Tensor), *_args, c.c_int, c.POINTER(c.c_int64)]
for _kind in ("send", "recv"):
    getattr(lib, f"hvd_{_kind}_async").argtypes = [c.POINTER(Tensor), c.c_int, c.POINTER(c.c_int64)]
lib.hvd_join_async.argtypes = [c.POINTER(Tensor), c.POINTER(c.c_int64)]
lib.hvd_poll.argtypes = lib.hvd_release.argtypes = lib.hvd_joined_last.argtypes = [c.c_int64]
lib.hvd_wait.argtypes = [c.c_int64, c.c_int64]
lib.hvd_result.argtypes = [c.c_int64, c.POINTER(c.c_void_p), c.POINTER(c.c_int), c.POINTER(c.c_int64)]
lib.hvd_received_splits.argtypes = [c.c_int64, c.POINTER(c.c_int64), c.c_int]


class Failed(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def must(status):
    """Returns status, or raises Failed with the calling thread's error text if it is negative."""
    if status < 0:
        raise Failed(status, lib.hvd_last_error().decode())
    return status


def np_type(dtype):
    """How numpy holds it: bfloat16 as its bits."""
    return np.dtype({"bfloat16": "uint16", "bool": "bool"}.get(dtype, dtype))


def init(sets=(), **options):
    config = Config(size_bytes=c.sizeof(Config), n_sets=len(sets), **options)
    flat = [rank for s in sets for rank in s]
    config.set_sizes = (c.c_int * len(sets))(*map(len, sets))
    config.set_ranks = (c.c_int * len(flat))(*flat)
    must(lib.hvd_init(c.byref(config)))


def shutdown():
    must(lib.hvd_shutdown())


def rank():
    return must(lib.hvd_rank())


def size():
    return must(lib.hvd_size())


# Names by check and count, for each process set its own: its members submit equally many, others none.
# So a check that fails on one rank alone does not spoil the next one.
_counters = collections.defaultdict(itertools.count)
_under_way = set()  # what the runtime still points at, though the test has lost it


class Op:
    """One operation under way. Keeps everything that the runtime points at until it has ended.

    For a "recv" only dtype and shape of the array are used.
    """

    def __init__(
        self,
        kind,
        array=None,
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
        output=None,
        alloc=None,
        group=None,
        group_size=0,
        compression=None,
    ):
        self.kind, self.array, self.output, self.peer = kind, array, output, peer
        check = checks.running
        self.name = name or f"{check}.{kind}.{process_set}.{next(_counters[check, process_set])}"
        t = Tensor(size_bytes=c.sizeof(Tensor), name=self.name.encode(), device=-1)
        if array is not None:
            assert array.flags.c_contiguous
            self.dtype = dtype or array.dtype.name
            self.shape = (c.c_int64 * array.ndim)(*array.shape)
            t.dtype, t.ndim, t.shape = DTYPES.index(self.dtype), array.ndim, self.shape
            t.data = array.ctypes.data
        if kind in ("allreduce", "broadcast", "reduce", "recv") and output is None:
            self.output = np.full_like(array, 77)
        if self.output is not None:
            t.output = self.output.ctypes.data
        if group is not None:
            t.group, t.group_size = group.encode(), group_size
        if compression is not None:
            t.compression = compression.encode()
        self.tensor = t
        self.alloc = alloc or ALLOC()
        self.place(t)
        h = c.c_int64()
        args = [c.byref(t)]
        if kind in ("allreduce", "reduce", "reducescatter"):
            args += [op, prescale, postscale]
        if kind in ("reduce", "broadcast", "gather"):
            args += [root]
        if kind == "alltoall":
            self.splits = None if splits is None else (c.c_int64 * len(splits))(*splits)
            args += [self.splits, 0 if splits is None else len(splits)]
        if kind in ("reducescatter", "allgather", "gather", "alltoall"):
            args += [self.alloc, None]
        if kind in ("send", "recv"):
            args += [peer]
        elif kind != "join":
            args += [process_set]
        must(getattr(lib, f"hvd_{kind}_async")(*args, c.byref(h)))
        self.handle = h.value
        _under_way.add(self)

    def place(self, t):
        """Where the data is to be; tests/gpu/on_device.py has another place."""

    def poll(self):
        return must(lib.hvd_poll(self.handle))

    def wait(self, timeout_ms=WAIT_MS):
        """Waits and returns the result; the handle is released at the end."""
        status = lib.hvd_wait(self.handle, timeout_ms)
        text = lib.hvd_last_error().decode()
        if status == TIMEOUT:
            raise Failed(status, text)
        _under_way.discard(self)
        try:
            if status < 0:
                raise Failed(status, text)
            return self._result()
        finally:
            must(lib.hvd_release(self.handle))

    def _result(self):
        if self.kind == "alltoall":
            splits = (c.c_int64 * 64)()
            n = must(lib.hvd_received_splits(self.handle, splits, 64))
            self.received = list(splits[:n])
        if self.kind == "join":
            return must(lib.hvd_joined_last(self.handle))
        if self.kind in ("reducescatter", "allgather", "gather", "alltoall"):
            data, ndim, shape = c.c_void_p(), c.c_int(), (c.c_int64 * 8)()
            must(lib.hvd_result(self.handle, c.byref(data), c.byref(ndim), shape))
            out = np.empty(tuple(shape[: ndim.value]), np_type(self.dtype))
            if out.nbytes:
                self.fetch(out, data)
            return out
        return self.output

    def fetch(self, out, data):
        """The result at an address."""
        c.memmove(out.ctypes.data, data, out.nbytes)


def run(kind, *args, **options):
    """An operation to its end."""
    return Op(kind, *args, **options).wait()


def set_add(ranks):
    id_ = c.c_int()
    must(lib.hvd_process_set_add((c.c_int * len(ranks))(*ranks), len(ranks), c.byref(id_)))
    return id_.value


def set_remove(id_):
    must(lib.hvd_process_set_remove(id_))


def set_ids():
    ids = (c.c_int * 64)()
    return list(ids[: must(lib.hvd_process_set_ids(ids, 64))])


def set_ranks(id_):
    ranks = (c.c_int * 64)()
    return list(ranks[: must(lib.hvd_process_set_ranks(id_, ranks, 64))])


# --- for checks ---


def refused(words, function, *args, status=INVALID_ARGUMENT, **options):
    """function must fail with this status and all words in its error text; returns the text."""
    try:
        function(*args, **options)
    except Failed as e:
        missing = [w for w in words if w not in str(e)]
        assert not missing, f"lacks {missing}: {e}"
        assert e.status == status, f"status {e.status}: {e}"
        return str(e)
    raise AssertionError(f"nothing was refused; expected {words}")


def the_world_still_works():
    n = size()
    assert run("allreduce", np.full(3, rank() + 1.0)).tolist() == [n * (n + 1) / 2] * 3
