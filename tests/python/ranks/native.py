# SPDX-License-Identifier: Apache-2.0
"""The extension itself, _hvd._native: references, memory, handles and exceptions."""

import ctypes
import gc
import sys
import threading

import horovod.torch as hvd
import torch
from _hvd import _native
from checks import check, expect_error, main
from torch.utils.dlpack import from_dlpack

hvd.init()
torch.set_num_threads(1)
N = hvd.size()
F32, SUM = 7, 1
ROOM = torch.empty(4 * N)
PENDING = {}


def tensor(name, data, output=None, *more):
    return (name, data.data_ptr(), (data if output is None else output).data_ptr(), F32, data.shape, *more)


def submissions(x, entry):
    """(what begins an operation, does it bring a result?), by name."""
    p, e = PENDING, entry
    room = ROOM.numel() * 4
    yield "allreduce", lambda n: _native.allreduce(p, e, tensor(n, x), SUM, 1.0, 1.0, 0), False
    yield "fp16", lambda n: _native.allreduce(p, e, tensor(n, x), SUM, 1.0, 1.0, 0, "fp16"), False
    yield "group", lambda n: _native.allreduce(p, e, tensor(n, x, x, "g", 1), SUM, 1.0, 1.0, 0), False
    yield "reduce", lambda n: _native.reduce(p, e, tensor(n, x), SUM, 1.0, 1.0, 0, 0), False
    yield "broadcast", lambda n: _native.broadcast(p, e, tensor(n, x), 0, 0), False
    yield "allgather", lambda n: _native.allgather(p, e, tensor(n, x), 0), True
    yield "in room", lambda n: _native.allgather(p, e, tensor(n, x, ROOM), 0, room), False
    yield "gather", lambda n: _native.gather(p, e, tensor(n, x), 0, 0), True
    yield "alltoall", lambda n: _native.alltoall(p, e, tensor(n, x), None, 0), True
    yield "splits", lambda n: _native.alltoall(p, e, tensor(n, x), (4 // N,) * N, 0), True
    yield "reducescatter", lambda n: _native.reducescatter(p, e, tensor(n, x), SUM, 1.0, 1.0, 0), True
    yield "barrier", lambda n: _native.barrier(p, e, n, 0), False


def end(handle, brings, taken):
    _native.wait(handle)
    assert _native.poll(handle)
    if brings and taken:
        from_dlpack(_native.take(PENDING, handle, F32))
        return
    if brings:
        _native.result(handle)
    del PENDING[handle]
    _native.release(handle)


@check
def what_is_passed_is_counted_as_before():
    x, entry = torch.ones(4), object()
    for kind, begin, brings in submissions(x, entry):
        name = f"counted {kind}"
        things = (entry, name, PENDING, x, None)
        before = [sys.getrefcount(thing) for thing in things]
        for i in range(20):
            end(begin(name), brings, taken=i % 2)
        after = [sys.getrefcount(thing) for thing in things]
        # None is everybody's: another thread of torch's may hold a few
        assert after[:4] == before[:4] and after[4] - before[4] < 15, f"{kind}: {before} {after}"
    assert not PENDING


@check
def what_is_refused_leaves_nothing_behind():
    x, entry = torch.ones(4), object()
    deep, many = (1,) * 99, ("x", 2)
    bad = [
        (TypeError, lambda: _native.allreduce([], entry, tensor("x", x), SUM, 1.0, 1.0, 0)),
        (ValueError, lambda: _native.allreduce(PENDING, entry, tensor("a\0b", x), SUM, 1.0, 1.0, 0)),
        (ValueError, lambda: _native.allreduce(PENDING, entry, ("x", 0, 0, F32, deep), SUM, 1.0, 1.0, 0)),
        (TypeError, lambda: _native.allreduce(PENDING, entry, ("x", 0, 0, F32, many), SUM, 1.0, 1.0, 0)),
        (ValueError, lambda: _native.allreduce(PENDING, entry, tensor("x", x), 99, 1.0, 1.0, 0)),
        (ValueError, lambda: _native.allgather(PENDING, entry, tensor("x", x), 77, 16)),
        (TypeError, lambda: _native.alltoall(PENDING, entry, tensor("x", x), [4], 0)),
        (TypeError, lambda: _native.alltoall(PENDING, entry, tensor("x", x), ("4",), 0)),
        (ValueError, lambda: _native.alltoall(PENDING, entry, tensor("x", x), (9,) * N, 0, 16)),
        (TypeError, lambda: _native.set_add(("0",))),
        (ValueError, lambda: _native.set_meet((0, 0, 0))),
        (ValueError, lambda: _native.set_meet((-1,))),
        (ValueError, lambda: _native.set_ranks(77)),
        (TypeError, lambda: _native.address("x")),
    ]
    things = (entry, deep, many, PENDING, x)
    before = [sys.getrefcount(thing) for thing in things]
    for error, call in bad:
        for _ in range(20):
            expect_error(error, [], call)
    assert [sys.getrefcount(thing) for thing in things] == before
    assert not PENDING


class Mallinfo(ctypes.Structure):
    """Of which only the bytes in use are read."""

    _fields_ = [
        ("before", ctypes.c_size_t * 7),
        ("uordblks", ctypes.c_size_t),
        ("after", ctypes.c_size_t * 2),
    ]


@check
def not_one_block_of_a_submission_is_lost():
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None or N > 1:
        return  # not glibc, or an old one; with others memory comes and goes at their pace
    mallinfo.restype = Mallinfo
    x, room, rounds = torch.ones(4), ROOM.numel() * 4, 1000
    kinds = {
        kind: lambda n, b=begin, r=brings: end(b(n), r, True)
        for kind, begin, brings in submissions(x, None)
    }
    splits = [1] * 100  # more than what Python takes from pools of its own

    def refused(function, *args):
        expect_error(ValueError, [], function, PENDING, None, *args)

    kinds["refused room"] = lambda n: refused(_native.allgather, tensor(n, x, ROOM), 77, room)
    kinds["refused splits"] = lambda n: refused(_native.alltoall, tensor(n, x), (*splits, 9), 0)
    kinds["wrong splits"] = lambda n: expect_error(
        TypeError, [], _native.alltoall, PENDING, None, tensor(n, x), (*splits, "9"), 0
    )
    kinds["wrong ranks"] = lambda n: expect_error(TypeError, [], _native.set_meet, (*splits, "1"))
    kinds["refused ranks"] = lambda n: expect_error(ValueError, [], _native.set_meet, tuple(splits))
    for kind, call in kinds.items():
        for _ in range(rounds // 10):
            call(f"block {kind}")
        gc.collect()
        before = mallinfo().uordblks
        for _ in range(rounds):
            call(f"block {kind}")
        gc.collect()
        more = mallinfo().uordblks - before
        # the smallest block has 24 bytes; caches and other threads have theirs
        assert more < rounds * 12, f"{kind}: {more} bytes in {rounds} calls"


@check
def a_sentence_cut_in_a_character_is_the_error_it_is():
    x = torch.ones(1)
    name = "a" + "\u00e4" * 110  # this message quotes 200 bytes of a name
    handle = _native.allreduce(PENDING, None, tensor(name, x), SUM, 1.0, 1.0, 0)
    _native.wait(handle)
    said = expect_error(hvd.HorovodInternalError, ["has no result"], _native.result, handle)
    assert "\u00e4\ufffd" in said, said
    end(handle, False, False)


@check
def a_capsule_is_taken_once():
    for dies_in in ("this thread", "another thread", "another thread, untaken"):
        mine = torch.ones(2)
        handle = _native.allgather(PENDING, None, tensor("once", mine), 0)
        _native.wait(handle)
        held = [_native.take(PENDING, handle, F32)]
        assert not PENDING
        if "untaken" not in dies_in:
            taken = from_dlpack(held[0])
            expect_error((RuntimeError, BufferError), [], from_dlpack, held[0])
            assert taken.tolist() == [1.0] * 2 * N
            held = [taken]
            del taken
        assert _native.poll(handle) and _native.result(handle)  # its memory is there
        if dies_in == "this thread":
            held.clear()
        else:
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()
        expect_error(hvd.HorovodInternalError, ["unknown or released"], _native.result, handle)


@check
def a_dtype_that_is_none_keeps_the_result():
    mine = torch.ones(2)
    handle = _native.allgather(PENDING, None, tensor("none", mine), 0)
    _native.wait(handle)
    for dtype in (-1, 99):
        expect_error(ValueError, ["not a value of enum hvd_dtype"], _native.take, PENDING, handle, dtype)
    assert handle in PENDING
    end(handle, True, True)


@check
def a_result_of_another_size_has_no_room():
    x = torch.ones(4)
    handle = _native.allgather(PENDING, None, tensor("room", x, ROOM), 0, 4)
    expect_error((hvd.HorovodInternalError, MemoryError), [], _native.wait, handle)
    end_failed = PENDING.pop(handle)
    _native.release(handle)
    assert end_failed is None
    empty = torch.ones(0)
    handle = _native.allgather(PENDING, None, tensor("no room", empty, empty), 0, 0)
    end(handle, False, False)


main(hvd.rank())
