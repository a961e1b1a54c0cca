# SPDX-License-Identifier: Apache-2.0
"""One submission to the runtime, and threads that wait.

The runtime matches operations by name, and a name serves one pending operation at a time. Names follow the
order of a group's collectives (group.py), which all its ranks share, and are reused, so that the runtime
recognises the operations of the next step (response cache, plan). An operation whose name is still pending
starts when that one has ended; the caller does not wait.
"""

import functools
import itertools
import queue
import threading
import time

from _hvd import _native, basics, handles


def nothing(_):
    """The result of an operation that has written its own output."""


class Watchers:
    """Threads that wait for operations; as many as there are jobs at once, kept for later ones.

    They wait in the runtime without the interpreter's lock; a waiting thread runs the collectives, so that
    futures complete during the backward pass.

    When the interpreter ends no thread may be in torch's C++ (a callback or the end of a future): a thread
    is stopped where it next takes the interpreter's lock, and in C++ that aborts the process. So the exit
    waits for jobs, which the shutdown before it has made short. A thread without a job is in C only.
    """

    EXIT_S = 5
    _numbers = itertools.count(1)

    def __init__(self):
        self._jobs = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._n_threads = self._n_idle = 0
        self._has_ended = False

    def run(self, job):
        """Calls job() on a thread of its own; after end() it is dropped."""
        with self._changed:
            if self._has_ended:
                return
            if self._n_idle > 0:
                self._n_idle -= 1
            else:
                name = f"hvd-torch-{next(self._numbers)}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._n_threads += 1
        self._jobs.put(job)

    def _serve(self):
        while True:
            job = self._jobs.get()
            job()
            del job  # and what it holds
            with self._changed:
                self._n_idle += 1
                self._changed.notify_all()

    def end(self):
        """Returns when no thread has a job, at the latest after EXIT_S."""
        with self._changed:
            self._changed.wait_for(lambda: self._n_idle == self._n_threads, self.EXIT_S)
            self._has_ended = True


watchers = Watchers()
basics.at_exit(watchers.end)


class Operation:
    """A submission: begun, or waiting for its turn under its name. place: a gpu.Place, or None."""

    __slots__ = ("_error", "_handle", "_is_posted", "_submit", "_turn", "place")
    may_block = False  # begin() waits for another rank

    def __init__(self, submit, place=None):
        self.place = place
        self._submit = submit
        self._handle = None
        self._turn = None
        self._error = None
        self._is_posted = False  # or has ended

    def begin(self):
        self._handle = self._submit()
        self._submit = None

    def begin_after(self, *before):
        """Begins on a thread, when those have ended."""
        self._turn = threading.Event()
        try:
            watchers.run(lambda: self._follow(before))
        except RuntimeError as e:  # no thread: later ones of this name must not wait for it
            self._error = e
            self._turn.set()
            raise

    def _follow(self, before):
        for one in before:
            one.settle()
        try:
            self.begin()
        except Exception as e:
            self._error = e
        self._turn.set()

    def is_over(self):
        if self._turn is not None and not self._turn.is_set():
            return False
        return self._handle is None or _native.poll(self._handle)

    def has_name(self):
        """Whether it still uses its name. On a GPU it does until it is on its way there."""
        return not self._is_posted and not self.is_over()

    def settle(self):
        """Returns when it has ended, well or not, and leaves the result to wait()."""
        if self._turn is not None:
            self._turn.wait()
        if self._handle is not None:
            try:
                _native.wait(self._handle)
            except Exception:  # wait() raises it where it matters
                return

    def wait(self, deadline, aside=False):
        """Returns at its end or raises. TimeoutError at the deadline (time.monotonic); the operation
        continues. On a GPU streams wait; aside: only this thread's current one, until let_go()."""
        if self._turn is not None and not self._turn.wait(_left(deadline)):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        timeout_ms = -1 if deadline is None else int(_left(deadline) * 1000)
        if aside and self.place is not None:
            handles.finish_aside(self._handle, timeout_ms)
            self._is_posted = True
            return
        if deadline is not None:
            try:
                handles.wait(self._handle, timeout_ms)
            except TimeoutError:
                raise
            except Exception:
                pass  # finish() raises it again, and forgets the handle
        handles.finish(self._handle)
        self._is_posted = True

    def devices(self):
        return () if self.place is None else (self.place.device,)

    def let_go(self, mark):
        """After wait(aside=True): the stream of its memory follows the mark, so the memory is free."""
        if self.place is not None:
            mark.wait_in(self.place)
            handles.let_go(self._handle)


class FromAny(Operation):
    """A receive from any rank: the runtime names the rank of the oldest send, and the receive begins."""

    __slots__ = ("_name", "_receive", "source")
    may_block = True

    def __init__(self, name, receive, place):
        super().__init__(None, place)
        self._name = name
        self._receive = receive
        self.source = None  # global rank

    def begin(self):
        probe = handles.submit(_native.probe, None, _native.probed_rank, self._name)
        self.source = handles.finish(probe)
        self._submit, self._receive = functools.partial(self._receive, self.source), None
        super().begin()


def _left(deadline):
    return None if deadline is None else min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)


class Names:
    """Which operation was submitted last under each name."""

    LIMIT = 4096

    def __init__(self):
        self._lock = threading.Lock()
        self._last = {}

    def submit(self, key, submit, place):
        """Begins an operation under a name; key is the name with its process set."""
        return self.begin(key, Operation(submit, place))

    def begin(self, key, op, *before):
        """Begins the operation under its name, and after those before it that have not ended."""
        with self._lock:
            before = [b for b in (self._last.get(key), *before) if b is not None and b.has_name()]
            self._last[key] = op
            if len(self._last) > self.LIMIT:
                self._last = {k: o for k, o in self._last.items() if o is op or o.has_name()}
        if before or op.may_block:
            op.begin_after(*before)
        else:
            op.begin()
        return op


names = Names()
