# SPDX-License-Identifier: Apache-2.0
"""Send, receive and barriers. A mixin of HvdProcessGroup (group.py), which submits."""

from datetime import timedelta

import torch

from _hvd import _native, handles
from _hvd.torch.distributed.data import as_contiguous, back, movable, submit
from _hvd.torch.distributed.operation import Operation, names, nothing
from _hvd.torch.tensors import where

_NO_TENSOR = torch.empty(0)
_BARRIER_TAG = "monitored_barrier"


def _missing(ranks, seconds):
    some = "rank" if len(ranks) == 1 else "ranks"
    listed = ", ".join(str(r) for r in ranks)
    return f"monitored_barrier: {some} {listed} did not arrive within {seconds:.3g} s"


class Transfers:
    def _begin_transfer(self, function, memory, place, tag, what):
        if not 0 <= place < self.size() or place == self._place:
            raise RuntimeError(
                f"{what}: rank {place} of the group; it must be another one of its {self.size()} ranks"
            )
        dtype, units = movable(memory, what)
        shape = (memory.numel() * units,)
        name, where_at = f"{self._label}.tag{tag}", where(memory)
        described = (memory, nothing, name, memory, memory, dtype, shape, where_at)
        # The runtime keeps the order of transfers under one name, so none has to wait here.
        op = Operation(lambda: submit(function, *described, self._ranks[place]), where_at)
        op.begin()
        return op

    def send(self, tensors, place, tag=0):
        (tensor,) = tensors
        begun = self._begin_transfer(_native.send, as_contiguous(tensor), place, tag, "send")
        return self._work(f"send to rank {place}", [begun], tensors)

    def recv(self, tensors, place, tag=0):
        (tensor,) = tensors
        memory = as_contiguous(tensor)
        begun = self._begin_transfer(_native.recv, memory, place, tag, "recv")
        after = back(tensor, memory)
        return self._work(f"recv from rank {place}", [begun], tensors, after, source=place)

    def recv_anysource(self, tensors, tag=0):
        raise RuntimeError('recv: from any rank is not supported by the back end "hvd"; name src')

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
