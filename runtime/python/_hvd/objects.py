# SPDX-License-Identifier: Apache-2.0
"""broadcast_object and allgather_object: any picklable object, without a framework.

Each rank that sends an object first sends a *record*: the number of its bytes, and a MAC of that; then the
bytes, and their MAC. MACs are made by the runtime from the job token (hvd_mac in hvd.h). Unpickling runs
code that the bytes choose, so nothing is unpickled, and no memory is reserved for it, before its MAC has
been verified. A MAC is valid for one sender, operation, name and process set.

Bytes are sent as uint8 arrays; lengths are 64 bits wide, so objects may exceed 2 GiB.
"""

import hmac
import itertools
import pickle

from _hvd import _native, handles
from _hvd.exceptions import HorovodInternalError
from _hvd.pickling import dumps
from _hvd.process_sets import global_process_set, process_set_id

_UINT8 = 0
_FAILED = b"\xff" * 8  # in place of a number of bytes
_MAC_BYTES = 32
_RECORD_BYTES = 8 + _MAC_BYTES


def broadcast_bytes(name, buffer, root_rank, set_id):
    at = _native.address(buffer)
    tensor = (name, at, at, _UINT8, (len(buffer),))
    handles.finish(handles.submit(_native.broadcast, buffer, lambda h: None, tensor, root_rank, set_id))


def allgather_bytes(name, buffer, set_id):
    """Concatenation of all ranks' bytes as a bytearray."""

    def result(handle):
        at, full = _native.result(handle)
        out = bytearray(full[0])
        _native.copy(_native.address(out), at, len(out))
        return out

    tensor = (name, _native.address(buffer), 0, _UINT8, (len(buffer),))
    return handles.finish(handles.submit(_native.allgather, buffer, result, tensor, set_id))


class _Sender:
    """One rank's part in one operation: makes and verifies its MACs."""

    def __init__(self, operation, name, rank, set_id):
        self.operation, self.name, self.rank = operation, name, rank
        self._about = f"{operation}, rank {rank}, process set {set_id}, {name}"

    def _mac(self, what, buffer, start, n):
        return _native.mac(f"{what} of {self._about}", _native.address(buffer) + start, n)

    def seal(self, buffer, what):
        """Appends the MAC of the bytes."""
        buffer += self._mac(what, buffer, 0, len(buffer))

    def content(self, buffer, start, n, what):
        """The bytes of buffer[start : start + n] without their MAC, which is verified."""
        end = start + n - _MAC_BYTES
        has_all = start <= end and end + _MAC_BYTES <= len(buffer)
        mac = self._mac(what, buffer, start, end - start) if has_all else b""
        if not hmac.compare_digest(mac, bytes(buffer[end : end + _MAC_BYTES])):
            raise HorovodInternalError(
                f"{self.operation} {self.name}: the {what} from rank {self.rank} does not match its MAC; "
                "it was changed on its way, or the rank has another job token. It was not unpickled"
            )
        return memoryview(buffer)[start:end]

    def pickled(self, obj):
        """(record, bytes, None), or where obj cannot be pickled (record of FAILED, nothing, why).

        The record reports the failure to the other ranks, so they do not wait for bytes that never come.
        """
        try:
            content, failure = bytearray(dumps(obj)), None
            record = bytearray((len(content) + _MAC_BYTES).to_bytes(8, "little"))
            self.seal(content, "object")
        except Exception as e:
            record, content, failure = bytearray(_FAILED), bytearray(), e
        self.seal(record, "length")
        return record, content, failure

    def length(self, records, start):
        """The number of bytes in a record; raises if the rank could not pickle its object."""
        length = bytes(self.content(records, start, _RECORD_BYTES, "length"))
        if length == _FAILED:
            raise RuntimeError(
                f"{self.operation}: rank {self.rank} could not pickle its object; its error says why"
            )
        return int.from_bytes(length, "little")


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The root rank's obj, on every rank."""
    set_id = process_set_id(process_set)
    name = name or handles.auto_name("broadcast_object", set_id)
    root = _Sender("broadcast_object", name, root_rank, set_id)
    is_root = _native.rank() == root_rank
    record, content, failure = root.pickled(obj) if is_root else (bytearray(_RECORD_BYTES), None, None)
    broadcast_bytes(name + ".sz", record, root_rank, set_id)
    if failure:
        raise failure
    if not is_root:
        content = bytearray(root.length(record, 0))
    broadcast_bytes(name + ".data", content, root_rank, set_id)
    return obj if is_root else pickle.loads(root.content(content, 0, len(content), "object"))


def allgather_object(obj, name=None, process_set=global_process_set):
    """List of every rank's obj, in rank order."""
    set_id = process_set_id(process_set)
    name = name or handles.auto_name("allgather_object", set_id)
    senders = [_Sender("allgather_object", name, rank, set_id) for rank in process_set.ranks]
    mine = _Sender("allgather_object", name, _native.rank(), set_id)
    record, content, failure = mine.pickled(obj)
    records = allgather_bytes(name + ".sz", record, set_id)
    if failure:
        raise failure
    lengths = [sender.length(records, i * _RECORD_BYTES) for i, sender in enumerate(senders)]
    everything = allgather_bytes(name + ".data", content, set_id)
    ends = itertools.accumulate(lengths)
    contents = [
        sender.content(everything, end - n, n, "object") for sender, end, n in zip(senders, ends, lengths)
    ]
    return [pickle.loads(content) for content in contents]
