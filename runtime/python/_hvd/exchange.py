# SPDX-License-Identifier: Apache-2.0
"""Bytes from ranks to ranks, some MiB at a time, so that a training's collectives pass between them.

All ranks know who sends how many bytes to whom (`sizes`), so they do the same number of rounds; a round is
an alltoall in which each pair of ranks has its next piece. In a background (start()) a thread does the
rounds, each of them when the one before has ended. Collectives of the training are submitted meanwhile in
any order: the runtime pairs operations by name. So one of them waits for at most one round.

Invariant: a thread never submits to a later world than its own. It submits under a lock and only while
not stopped; stop() sets that before the world ends. Called by sharded.py.

What arrives are parcels, which are verified as soon as all have arrived, in their own world.
"""

import threading

from _hvd import _native, handles, parcels

_UINT8 = 0
ROUND_BYTES = 4 << 20  # of a pair of ranks
_NAME = "elastic.copy"


class Stream:
    """The bytes from one rank to another: buffers one after the other."""

    def __init__(self, buffers):
        self.buffers = buffers
        self.size = sum(map(len, buffers))

    def pieces(self, start, n):
        """(buffer, offset, bytes) of this range."""
        for buffer in self.buffers:
            here = max(0, min(n, len(buffer) - start))
            if here:
                yield buffer, start, here
                n -= here
            start = max(0, start - len(buffer)) if not here else 0
            if not n:
                return


class Exchange:
    """One exchange on this rank, in the global set.

    sends, receives: {rank: [parcel in a bytearray]}; the rank that sends and the one
    that receives have buffers of the same lengths.
    longest: the bytes of the longest stream between any two ranks, the same on all of them.
    """

    def __init__(self, sends, receives, longest, name=_NAME):
        self.name = name
        self._sends = {rank: Stream(buffers) for rank, buffers in sends.items()}
        self._receives = {rank: Stream(buffers) for rank, buffers in receives.items()}
        self._rounds = -(-longest // ROUND_BYTES)
        self._size = _native.size()
        self._lock = threading.Lock()
        self._is_stopped = False
        self.is_done = False  # all has arrived and is verified
        self._thread = self._error = None

    @staticmethod
    def _range(stream, number):
        start = number * ROUND_BYTES
        return start, max(0, min(ROUND_BYTES, stream.size - start))

    def _outgoing(self, number):
        """(what must stay alive, address, splits) of a round."""
        splits, pieces = [0] * self._size, []
        for rank in sorted(self._sends):
            start, n = self._range(self._sends[rank], number)
            splits[rank] = n
            pieces += self._sends[rank].pieces(start, n)
        if len(pieces) == 1:
            buffer, start, _ = pieces[0]
            return buffer, _native.address(buffer) + start, tuple(splits)
        joined = bytearray().join(memoryview(b)[start : start + n] for b, start, n in pieces)
        return joined, _native.address(joined), tuple(splits)

    def _take(self, address, number):
        for rank in sorted(self._receives):
            start, n = self._range(self._receives[rank], number)
            for buffer, offset, here in self._receives[rank].pieces(start, n):
                _native.copy(_native.address(buffer) + offset, address, here)
                address += here

    def _round(self, number):
        keep, address, splits = self._outgoing(number)
        tensor = (f"{self.name}.{number}", address, 0, _UINT8, (sum(splits),))

        def result(handle):
            at, _ = _native.result(handle)
            self._take(at, number)
            return True

        with self._lock:
            if self._is_stopped:
                return False
            handle = handles.submit(_native.alltoall, keep, result, tensor, splits, 0)
        return handles.finish(handle)  # None: the world has ended

    def run(self):
        """All rounds, now. A collective of all ranks."""
        for number in range(self._rounds):
            if not self._round(number):
                return
        for stream in self._receives.values():
            for buffer in stream.buffers:
                parcels.verify(buffer)
        self.is_done = True

    def _work(self):
        try:
            self.run()
        except Exception as e:
            self._error = e

    def start(self):
        """All rounds, by a thread."""
        self._thread = threading.Thread(target=self._work, name="hvd-copy", daemon=True)
        self._thread.start()
        return self

    def wait(self):
        """Until the thread has done all; raises its failure."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def stop(self):
        """No further round; does not wait for the one that runs."""
        with self._lock:
            self._is_stopped = True
