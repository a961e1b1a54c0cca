# SPDX-License-Identifier: Apache-2.0
"""broadcast_object and allgather_object: any picklable object, without a framework.

Bytes travel as uint8 arrays; lengths are 64 bits wide, so objects may exceed 2 GiB.
"""

import pickle

from _hvd import _native, handles
from _hvd.pickling import dumps
from _hvd.process_sets import global_process_set, process_set_id

_UINT8 = 0
_INT64 = 5


def _broadcast(name, buffer, root_rank, set_id):
    at = _native.address(buffer)
    args = (name, at, at, _UINT8, (len(buffer),), root_rank, set_id)
    handles.finish(handles.submit(_native.broadcast, buffer, lambda h: None, *args))


def _allgather(name, buffer, dtype, shape, set_id):
    """Concatenation of all ranks' bytes as a bytearray."""
    width = 8 if dtype == _INT64 else 1

    def result(handle):
        at, full = _native.result(handle)
        out = bytearray(full[0] * width)
        _native.copy(_native.address(out), at, len(out))
        return out

    args = (name, _native.address(buffer), dtype, shape, set_id)
    return handles.finish(handles.submit(_native.allgather, buffer, result, *args))


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The root rank's obj, on every rank."""
    set_id = process_set_id(process_set)
    name = name or handles.auto_name("broadcast_object")
    is_root = _native.rank() == root_rank
    content = bytearray(dumps(obj)) if is_root else bytearray()
    length = bytearray(len(content).to_bytes(8, "little"))
    _broadcast(name + ".sz", length, root_rank, set_id)
    if not is_root:
        content = bytearray(int.from_bytes(length, "little"))
    _broadcast(name + ".data", content, root_rank, set_id)
    return obj if is_root else pickle.loads(content)


def allgather_object(obj, name=None, process_set=global_process_set):
    """List of every rank's obj, in rank order."""
    set_id = process_set_id(process_set)
    name = name or handles.auto_name("allgather_object")
    content = bytearray(dumps(obj))
    length = bytearray(len(content).to_bytes(8, "little"))
    lengths = _allgather(name + ".sz", length, _INT64, (1,), set_id)
    everything = memoryview(_allgather(name + ".data", content, _UINT8, (len(content),), set_id))
    objects = []
    start = 0
    for i in range(0, len(lengths), 8):
        end = start + int.from_bytes(lengths[i : i + 8], "little")
        objects.append(pickle.loads(everything[start:end]))
        start = end
    return objects
