# SPDX-License-Identifier: Apache-2.0
"""Handles of pending operations, and the references that keep their memory alive.

A handle is the runtime's number, above zero. From submit until the operation has completed this module
holds everything whose memory the runtime reads or writes, so that a tensor may go out of scope during the
operation. ``finish`` waits, returns the operation's result and forgets the handle. For tensors on a GPU
streams wait (``gpu.Place``), also the one that the memory belongs to: later uses of the memory follow the
operation in that stream, so it need not be held longer. ``finish_aside`` makes only the thread's current
stream wait. Then the memory is held until the stream that it belongs to follows too (``let_go``), or until
the operation has ended on the GPU, which the next calls check (``sweep``).

Several operations that a user started by one call (a grouped one) have one handle for all, below zero:
a *bundle*. It ends when all of them have ended.

Threads: any thread may call anything. The tables change by single operations of dicts, which the
interpreter's lock makes atomic; the thread that removes an entry from a table owns it.
"""

import collections
import contextlib
import itertools
import threading

from _hvd import _native, gpu
from _hvd.exceptions import HorovodInternalError

# handle -> (what must stay alive, function that turns the ended operation into its result, where it is:
# a gpu.Place, or None for host memory)
_pending = {}
# Handles that finish_aside() has left pending; also some that are not pending any more.
_aside = collections.deque()
_SWEPT = 8  # how many of them one call checks: more than one call adds
_last = []  # the last handle of an operation on a GPU that is finished, for settle()
_bundles = {}
_bundle_numbers = itertools.count(-1, -1)
registered = {}  # id -> owner of memory registered with NCCL, until it is deregistered or the world ends
_counters = {}
_repeated = {}  # (name, process set) of operations that always use the same name -> their lock
_joins = 0  # number of joins of this world that have ended
world = 0  # changes with each init(): for data that is valid in one world only


def auto_name(kind, set_id=0):
    """The name of an operation for which the user gave none.

    Counted per kind and process set, so it is equal on all ranks of the set, whatever they do in other
    sets. A join resets the counts, because ranks that ran out of data have counted fewer.
    """
    counter = _counters.setdefault((kind, set_id), itertools.count(1))
    within = f"{set_id}." if set_id else ""
    since = f"join{_joins}." if _joins else ""
    return f"{kind}.noname.{within}{since}{next(counter)}"


def forget():
    """Resets the counts of automatic names for a new world."""
    global world, _joins
    world += 1
    _joins = 0
    _counters.clear()
    _repeated.clear()
    _bundles.clear()
    registered.clear()
    _aside.clear()
    while _last:
        _native.release(_last.pop())
    for handle in list(_pending):  # shutdown has ended them all
        if _pending.pop(handle, None) is not None:
            _native.release(handle)


def submit(function, keep, result, *args, place=None):
    """Starts an operation by a function of _native, and returns its handle.

    Keeps `keep` alive until finish(handle), which returns result(handle). The function itself enters
    that in _pending: between two calls a signal handler could raise, and the memory would be freed
    under the operation.
    """
    if _aside:
        sweep()
    return function(_pending, (keep, result, place), *args)


class _Bundle:
    """Handles of one call, in order; results of those that have ended; the first error."""

    def __init__(self, handles, result):
        self.handles = handles
        self.result = result
        self.results = {}
        self.error = None


def bundle(handles, result=tuple):
    """One handle for several operations, which are finished by it alone; returns result(their results)."""
    number = next(_bundle_numbers)
    _bundles[number] = _Bundle(list(handles), result)
    return number


def drop(made):
    """Drops held operations that were not submitted."""
    for handle in made:
        if _pending.pop(handle, None) is not None:
            _native.release(handle)


def submit_held(made):
    """Submits held operations: all, or with an exception none, which are then dropped."""
    _native.submit_held(_pending, tuple(made))


def group(operations, result=tuple):
    """As bundle(), of held operations that are created one after the other and submitted together.

    If only a part were submitted, because one is refused, all ranks would wait for the rest.
    """
    made = []
    try:
        for handle in operations:
            made.append(handle)
    except BaseException:
        drop(made)
        raise
    if made:
        submit_held(made)
    return bundle(made, result)


def poll(handle):
    """True when the operation has ended, in success or failure; never blocks."""
    if isinstance(handle, int) and handle < 0:
        group = _bundles.get(handle)
        return group is None or all(_native.poll(h) for h in group.handles)
    return _native.poll(handle)


def wait_for(numbers):
    """Makes streams wait for those operations that are on a GPU: once for all that were in one batch.

    Raises no failure of an operation: finish() of that operation does.
    """
    places, waits, present = [], {}, set()
    for number in numbers:
        entry = _pending.get(number)
        place = entry[2] if entry is not None else None
        if place is not None and not place.is_waited:
            places.append(place)
            streams = place.streams()
            present.add(streams[-1])
            for stream in streams:
                waits.setdefault(stream, []).append(number)
    if len(places) < 2 or not gpu.is_async():
        return
    try:
        for stream in sorted(waits, key=present.__contains__):  # the stream that reads comes last
            _native.wait_many(tuple(waits[stream]), stream)
    except HorovodInternalError:
        return
    for place in places:
        place.is_waited = True


def _finish_bundle(number, group):
    wait_for(group.handles)
    for handle in group.handles:
        if handle in group.results:
            continue  # a wait before this one was interrupted by a signal after it had ended
        try:
            group.results[handle] = finish(handle)
        except Exception as e:
            group.results[handle] = None
            group.error = group.error or e
    if _bundles.pop(number, None) is None:
        return None  # another thread's
    if group.error is not None:
        raise group.error
    return group.result(group.results[h] for h in group.handles)


def wait(handle, timeout_ms=-1):
    """Waits for the end of an operation, or until a stream waits for it. After a TimeoutError it
    continues."""
    entry = _pending.get(handle)
    place = entry[2] if entry is not None else None
    if place is None:
        _native.wait(handle, timeout_ms)
    else:
        place.wait(handle, timeout_ms)


def _release(handle, place):
    if place is None:
        _native.release(handle)
        return
    _last.append(handle)
    while len(_last) > 1:
        with contextlib.suppress(IndexError):  # another thread's
            _native.release(_last.pop(0))


def settle():
    """Waits until the last operation that a stream waits for has ended; raises its failure.

    Called before a state is saved: a stream continues after a failed operation with undefined data.
    """
    for handle in list(_aside):
        try:
            _native.wait(handle)
        except HorovodInternalError:
            if handle in _pending:
                raise
            # another thread has released it: it has ended, or is among the last
    for handle in list(_last):
        _native.wait(handle)


def finish(handle):
    """Waits for the operation and returns its result. None for a handle that is not pending."""
    group = _bundles.get(handle)
    if group is not None:
        return _finish_bundle(handle, group)
    entry = _pending.get(handle)
    if entry is None:
        return None
    place = entry[2]
    try:
        wait(handle)
        return entry[1](handle)
    except HorovodInternalError:
        if handle in _pending:
            raise
        return None  # another thread has finished it meanwhile
    finally:
        # A signal handler's exception (Ctrl-C) may have ended the wait and not the operation: then
        # its tensors must live on, and the handle stays pending.
        is_over = _native.poll(handle) if place is None or not place.is_waited else True
        if is_over and _pending.pop(handle, None) is not None:
            _release(handle, place)  # a result that owns the handle releases it


def let_go(handle):
    """Forgets an operation that has ended, or that the stream of its memory follows."""
    entry = _pending.pop(handle, None)
    if entry is not None:
        _release(handle, entry[2])


def sweep():
    """Forgets operations of finish_aside() that have ended. Checks a few, in turn."""
    for _ in range(min(_SWEPT, len(_aside))):
        try:
            handle = _aside.popleft()
        except IndexError:  # another thread's
            return
        if handle not in _pending:
            continue
        if _native.poll(handle):
            let_go(handle)
        else:
            _aside.append(handle)


def finish_aside(handle, timeout_ms=-1):
    """As finish(), for an operation on a GPU, but only this thread's current stream waits.

    The streams of the memory get no wait, so what is kept alive stays so until the operation has ended or
    let_go(). After a TimeoutError the operation is pending as before.
    """
    entry = _pending.get(handle)
    if entry is None:
        return None
    is_late = False
    try:
        entry[2].wait_here(handle, timeout_ms)
        return entry[1](handle)
    except TimeoutError:
        is_late = True
        raise
    finally:
        if not is_late:
            _aside.append(handle)
            sweep()


def finish_repeated(function, result, name, *args):
    """Runs an operation without data to its end, always under the same name.

    The same name lets the runtime recognise it (cache, plan). A rank therefore runs them one after another:
    another thread waits for the lock, and an operation whose wait was interrupted by a signal handler's
    exception is finished first.
    """
    lock = _repeated.setdefault((name, args), threading.RLock())  # a signal handler may call again
    with lock:
        for handle in [h for h, entry in list(_pending.items()) if entry[0] is lock]:
            finish(handle)
        return finish(submit(function, lock, result, name, *args))


def barrier(set_id):
    """Returns when all ranks of the process set have called it."""
    finish_repeated(_native.barrier, lambda h: None, "barrier", set_id)


def join(device=-1):
    """Returns when all ranks have called it: the last one of them. device: the GPU of its zeros."""
    last = finish_repeated(_native.join_ranks, _native.joined_last, "join", device)
    has_joined()
    return last


def has_joined():
    """Resets the automatic names after a join, as ranks that joined early have counted fewer."""
    global _joins
    _joins += 1
    _counters.clear()
