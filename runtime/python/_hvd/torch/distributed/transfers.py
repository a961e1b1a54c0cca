# SPDX-License-Identifier: Apache-2.0
"""Send, receive and barriers. A mixin of HvdProcessGroup (group.py), which submits."""

from datetime import timedelta

import torch

from _hvd import _native, handles
from _hvd.torch.distributed.data import back, movable, submit
from _hvd.torch.distributed.operation import FromAny, Operation, names, nothing
from _hvd.torch.tensors import plain, where

_NO_TENSOR = torch.empty(0)
_BARRIER_TAG = "monitored_barrier"


def _missing(ranks, seconds):
    some = "rank" if len(ranks) == 1 else "ranks"
    listed = ", ".join(str(r) for r in ranks)
    return f"monitored_barrier: {some} {listed} did not arrive within {seconds:.3g} s"


class Transfers:
    """Transfers with one peer under one tag follow each other: they have one name.

    A receive from any rank begins when the receives of its tag before it have ended, and ends before later
    ones begin, so that none of them takes the send that it was named.
    """

    def _transfer(self, function, memory, tag, what):
        """(its name, a function that submits it with a global rank, its place)"""
        dtype, units = movable(memory, what)
        shape = (memory.numel() * units,)
        name, where_at = f"{self._label}.tag{tag}", where(memory)
        described = (memory, nothing, name, memory, memory, dtype, shape, where_at)
        return name, lambda rank: submit(function, *described, rank), where_at

    def _begin_transfer(self, function, memory, place, tag, what):
        if not 0 <= place < self.size() or place == self._place:
            raise RuntimeError(
                f"{what}: rank {place} of the group; it must be another one of its {self.size()} ranks"
            )
        name, begin, where_at = self._transfer(function, memory, tag, what)
        op = Operation(lambda: begin(self._ranks[place]), where_at)
        before = self._receives_before(name, op) if what == "recv" else ()
        return names.begin((name, what, place), op, *(b for b in before if b.may_block))

    def _receives_before(self, name, op):
        """The receives under this name that may be pending, of which op is the newest from now on."""
        with self._lock:
            if len(self._receives) > 2 * self._n_receives:  # now and then, because it looks at each of them
                self._receives = [(n, r) for n, r in self._receives if r.has_name()]
                self._n_receives = max(16, len(self._receives))
            before = [r for n, r in self._receives if n == name]
            self._receives.append((name, op))
        return before

    def send(self, tensors, place, tag=0):
        (tensor,) = tensors
        begun = self._begin_transfer(_native.send, plain(tensor), place, tag, "send")
        return self._work(f"send to rank {place}", [begun], tensors)

    def recv(self, tensors, place, tag=0):
        (tensor,) = tensors
        memory = plain(tensor)
        begun = self._begin_transfer(_native.recv, memory, place, tag, "recv")
        after = back(tensor, memory)
        return self._work(f"recv from rank {place}", [begun], tensors, after, source=place)

    def recv_anysource(self, tensors, tag=0):
        if self.size() == 1:
            raise RuntimeError("recv: from any rank of a group of 1 rank; no other rank can send")
        (tensor,) = tensors
        memory = plain(tensor)
        name, begin, where_at = self._transfer(_native.recv, memory, tag, "recv")
        begun = FromAny(name, begin, where_at)
        names.begin((name, "any"), begun, *self._receives_before(name, begun))
        after = back(tensor, memory)

        def source():
            return self._ranks.index(begun.source)

        return self._work("recv from any rank", [begun], tensors, after, source=source)

    recvAnysource = recv_anysource

    # --- barriers ------------------------------------------------------------------------------------

    def barrier(self, opts=None):
        name = self._name("barrier", _NO_TENSOR, 0)

        def begin():
            return handles.submit(_native.barrier, None, nothing, name, self._set)

        return self._work("barrier", [names.submit((self._set, name), begin, None)], [], None, opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Rank 0 waits for each rank and names those that are missing."""
        timeout = getattr(timeout, "timeout", timeout)  # options since 2.14
        seconds = timeout.total_seconds() if timeout is not None else 0
        seconds = seconds if seconds > 0 else self._timeout
        token = torch.zeros(1, dtype=torch.uint8)
        if self._place != 0:
            self._enter_monitored(token, seconds)
            return None
        late, works = [], [(p, self.recv([token.clone()], p, _BARRIER_TAG)) for p in range(1, self.size())]
        for place, work in works:
            try:
                work.wait(timedelta(seconds=seconds if not late else 0.001))
            except RuntimeError as e:
                late.append(self._ranks[place])
                if not wait_all_ranks:
                    raise RuntimeError(_missing(late, seconds)) from e
        if late:
            raise RuntimeError(_missing(late, seconds))
        for p in range(1, self.size()):
            self.send([token], p, _BARRIER_TAG).wait()
        return None

    monitoredBarrier = monitored_barrier

    def _enter_monitored(self, token, seconds):
        try:
            self.send([token], 0, _BARRIER_TAG).wait(timedelta(seconds=seconds))
            self.recv([token], 0, _BARRIER_TAG).wait(timedelta(seconds=seconds))
        except RuntimeError as e:
            raise RuntimeError(
                f"monitored_barrier: rank 0 has not let rank {self._place} pass in {seconds:.3g} s; its "
                "error names the missing ranks"
            ) from e
