# SPDX-License-Identifier: Apache-2.0
"""Handles of pending operations, and the references that keep their memory alive.

A handle is the runtime's number. From submit until the operation has ended this module holds
everything whose memory the runtime reads or writes, so that a tensor may go out of scope while it
travels. ``finish`` waits, hands the operation's result on and forgets the handle.
"""

import itertools
import threading

from _hvd import _native

# handle -> (what must stay alive, function that turns the ended operation into its result)
_pending = {}
_counters = {}
_barriers = {}  # process set -> lock of its barriers


def auto_name(kind):
    """Name of an operation that the user gave none: counted per kind, thus equal on all ranks."""
    counter = _counters.setdefault(kind, itertools.count(1))
    return f"{kind}.noname.{next(counter)}"


def forget():
    """A new world begins: automatic names count from one again on every rank."""
    _counters.clear()
    _barriers.clear()
    _pending.clear()


def submit(function, keep, result, *args):
    """Starts an operation by a function of _native, and returns its handle.

    Keeps `keep` alive until finish(handle), which returns result(handle). The function itself enters
    that in _pending: between two calls a signal handler could raise, and the memory would be freed
    under the operation.
    """
    return function(_pending, (keep, result), *args)


def poll(handle):
    """True when the operation has ended, in success or failure; never blocks."""
    return _native.poll(handle)


def finish(handle):
    """Waits for the operation and returns its result. None for a handle that is not pending."""
    entry = _pending.get(handle)
    if entry is None:
        return None
    try:
        _native.wait(handle)
        return entry[1](handle)
    finally:
        # A signal handler's exception (Ctrl-C) may have ended the wait and not the operation: then
        # its tensors must live on, and the handle stays pending.
        if _native.poll(handle):
            _pending.pop(handle, None)
            _native.release(handle)


def barrier(set_id):
    """Returns when all ranks of the process set have called it.

    All barriers of a set have one name, so that the runtime knows it again (cache, plan). Those of one
    rank therefore follow each other: another thread's waits for the lock, and one whose wait was ended
    by a signal handler's exception, which is still under way, is finished first.
    """
    lock = _barriers.setdefault(set_id, threading.RLock())  # a signal handler may call again
    with lock:
        for handle in [h for h, entry in list(_pending.items()) if entry[0] is lock]:
            finish(handle)
        finish(submit(_native.barrier, lock, lambda h: None, "barrier", set_id))
