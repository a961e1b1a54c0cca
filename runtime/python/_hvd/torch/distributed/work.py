# SPDX-License-Identifier: Apache-2.0
"""What a collective returns: torch.distributed.Work over operations of the runtime.

wait() waits in the runtime. get_future() is for later continuations (DDP's reducer, comm hooks): a thread
waits for it. Both may be used on one Work; the first one finishes it, under its lock.

Invariants
 - Memory of pending operations is kept by `_hvd.handles` until they have ended: a Work that is dropped
   is finished by a thread.
 - For tensors on a GPU streams wait. Every stream in which a Work is waited for follows it, also after
   another stream did (State.follow), and so does every continuation of a future.
 - A thread that finishes a Work makes no stream of the caller wait (aside): the caller may still put work
   into them that runs beside the operation, as DDP's backward pass does. A stream of the thread waits and
   makes the copies; the streams of consumers follow it. The memory is kept until the operation has ended on
   the GPU, or until a consumer calls wait(): then the stream that submitted follows too.
 - wait() raises an error unchanged, a future as torch's RuntimeError; it is an error for C++ too
   (Future.set_exception would be a value there, and DDP would continue).
 - torch before 2.9 keeps only the C++ half of a Work of Python, and waiting for that would never end. So
   the last Works are kept here, without their tensors once ended.
"""

import contextlib
import sys
import threading
import time
import weakref
from datetime import timedelta

import torch
from torch._C._distributed_c10d import ProcessGroup, Work

from _hvd.exceptions import HorovodInternalError
from _hvd.torch.distributed.operation import watchers
from _hvd.torch.tensors import Mark, own_streams, used_here


class _Kept:
    """The last works. Those that nothing else in Python refers to are kept for C++, without tensors."""

    N, LOOKED_AT = 1024, 8

    def __init__(self):
        self._works = [None] * self.N
        self._at = self._looks = 0
        self._lock = threading.Lock()

    def _weaken(self, i):
        work = self._works[i % self.N]
        if work is not None and sys.getrefcount(work) <= 3:  # here: the list, `work`, the argument
            work._state.weaken()

    def add(self, work):
        with self._lock:
            for i in range(self.LOOKED_AT // 2):
                self._weaken(self._at - 1 - i)
                self._weaken(self._looks + i)
            self._looks = (self._looks + self.LOOKED_AT // 2) % self.N
            self._works[self._at] = work
            self._at = (self._at + 1) % self.N


_kept = None if hasattr(ProcessGroup, "merge_remote_group") else _Kept()


class State:
    """What a Work is about; several Works and threads may hold it."""

    def __init__(self, what, operations, outputs, after, timeout):
        self.what = what
        self.error = None
        self.is_over = False
        self._operations = operations
        self._beside = ()  # operations whose submitting streams do not follow yet
        self._outputs = outputs
        self.devices = {o.device.index for o in outputs if o.is_cuda}.union(
            *(op.devices() for op in operations)
        )
        self._after = after
        self._timeout = timeout
        self._mark = None
        self._lock = threading.Lock()
        self._future_lock = threading.Lock()
        self._future = None

    def outputs(self):
        found = [o() if isinstance(o, weakref.ref) else o for o in self._outputs]
        return [o for o in found if o is not None]

    def is_completed(self):
        """Never blocks."""
        if self.is_over:
            return self._has_ended()
        if not all(op.is_over() for op in self._operations):
            return False
        if not self._lock.acquire(blocking=False):  # another thread finishes it
            return self.is_over and self._has_ended()
        try:
            self._finish_locked(None, False)
        finally:
            self._lock.release()
        return self._has_ended()

    def _has_ended(self):
        """After a thread has finished it aside: whether it has ended on the GPU as well."""
        if not all(op.is_over() for op in self._beside):
            return False
        if self._beside:
            self.follow()
        return True

    def finish(self, timeout=None, aside=False):
        """Returns when all has ended, with self.error set if it went wrong; TimeoutError as wait().

        Of operations on a GPU the present streams wait for the end, and those that submitted, unless aside.
        """
        timeout = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        if not self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            raise self._late(timeout)
        try:
            self._finish_locked(deadline, aside)
        except TimeoutError:
            raise self._late(timeout) from None
        finally:
            self._lock.release()

    def _late(self, timeout):
        return HorovodInternalError(
            f"{self.what} has not ended after {timeout:.3g} s, the timeout of its process group: another "
            "rank has not called it; see the stall report on rank 0 (HOROVOD_STALL_CHECK_TIME_SECONDS)"
        )

    def _finish_locked(self, deadline, aside):
        if self.is_over:
            return
        error = None
        for op in self._operations:
            try:
                op.wait(deadline, aside)
            except TimeoutError:
                raise
            except MemoryError as e:
                error = error or HorovodInternalError(f"{self.what}: ranks have different sizes, or {e}")
            except Exception as e:
                error = error or e
        if error is None:
            try:
                self._run_after(aside)
                self._mark = Mark(self.devices)
                self._beside = self._operations if aside else ()
            except Exception as e:
                error = e
        self.error = error
        self._operations = ()
        self._after = None
        self.is_over = True

    def _run_after(self, aside):
        if self._after is None:
            return
        with torch.no_grad():
            self._after()
        if aside:
            for output in self.outputs():
                used_here(output)

    def follow_here(self):
        """After the end: makes this thread's streams follow it if other streams have waited."""
        if self._mark is None or not self.devices:
            return
        self._mark.wait()
        for output in self.outputs():
            if output.is_sparse:  # its parts were allocated in the stream that made them
                used_here(output)

    def follow(self):
        """The same, and the streams that submitted it follow too, so that its memory is free."""
        self.follow_here()
        beside, self._beside = self._beside, ()
        for op in beside:
            op.let_go(self._mark)

    def weaken(self):
        """Drops the references to the tensors."""
        if self.is_over:
            self._outputs = [weakref.ref(t) for t in self.outputs()]
            self._future = None

    def get_future(self):
        with self._future_lock:
            if self._future is None:
                devices = list({o.device for o in self.outputs() if o.is_cuda})
                begin = torch.futures.Future(devices=devices) if devices else torch.futures.Future()
                self._future = begin.then(self._value)
                if self.is_over:
                    self._complete(begin)
                else:
                    watchers.run(lambda: self._complete(begin))
            return self._future

    def _value(self, _):
        """Runs in a callback of torch, which turns an exception into the future's error."""
        if self.error is not None:
            raise self.error
        return self.outputs()

    def _complete(self, begin):
        """Completes the future; its continuations follow this thread's streams on the result's devices.

        After an error it has no tensors: torch would record events on their devices, which fails when the
        error is one of CUDA, and the future would never end.
        """
        outputs = []
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(own_streams(self.devices))
                self.finish(aside=True)
                self.follow_here()
                outputs = self.outputs() if self.error is None else []
            except Exception as e:  # reported through the future
                self.error = e
            begin.set_result(outputs if any(o.is_cuda for o in outputs) else None)


class HvdWork(Work):
    """A pending collective."""

    def __init__(self, state, source=None):
        super().__init__()
        self._state = state
        self._source = source
        if _kept is not None:
            _kept.add(self)

    def wait(self, timeout=None):
        """Returns True at the end or raises; timeout: a timedelta, 0 and None are the group's."""
        state = self._state
        if not state.is_over:
            seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
            state.finish(seconds or None)
        if state.error is not None:
            raise state.error
        state.follow()
        return True

    synchronize = wait

    def is_completed(self):
        return self._state.is_completed()

    def is_success(self):
        return self._state.is_completed() and self._state.error is None

    def exception(self):
        """The error that it ended with, or None."""
        return self._state.error if self._state.is_completed() else None

    def result(self):
        """The tensors it has written."""
        self.wait()
        return self._state.outputs()

    def get_future(self):
        return self._state.get_future()

    def source_rank(self):
        if self._source is None:
            raise RuntimeError("source_rank() is of a recv only")
        if callable(self._source):  # of any rank: known when it has begun
            self.wait()
            return self._source()
        return self._source

    _source_rank = source_rank

    def __del__(self):
        state = getattr(self, "_state", None)
        if state is not None and not state.is_over and state._future is None:
            watchers.run(lambda: _finish_quietly(state))


def _finish_quietly(state):
    try:
        with own_streams(state.devices):
            state.finish(aside=True)
    except Exception:  # the result has no receiver
        return
