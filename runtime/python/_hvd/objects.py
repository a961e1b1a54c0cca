# SPDX-License-Identifier: Apache-2.0
"""broadcast_object and allgather_object: any picklable object, without a framework.

Bytes are sent as uint8 arrays; lengths are 64 bits wide, so objects may exceed 2 GiB.
"""

import pickle

from _hvd import _native, handles
from _hvd.pickling import dumps
from _hvd.process_sets import global_process_set, process_set_id

_UINT8 = 0
_INT64 = 5
_FAILED = b"\xff" * 8  # in place of a number of bytes


def _broadcast(name, buffer, root_rank, set_id):
    at = _native.address(buffer)
    tensor = (name, at, at, _UINT8, (len(buffer),))
    handles.finish(handles.submit(_native.broadcast, buffer, lambda h: None, tensor, root_rank, set_id))


def _allgather(name, buffer, dtype, shape, set_id):
    """Concatenation of all ranks' bytes as a bytearray."""
    width = 8 if dtype == _INT64 else 1

    def result(handle):
        at, full = _native.result(handle)
        out = bytearray(full[0] * width)
        _native.copy(_native.address(out), at, len(out))
        return out

    tensor = (name, _native.address(buffer), 0, dtype, shape)
    return handles.finish(handles.submit(_native.allgather, buffer, result, tensor, set_id))


def _pickled(obj):
    """(bytes, their number as 8 bytes, None), or where obj cannot be pickled (nothing, FAILED, why).

    The number reports the failure to the other ranks, so they do not wait for bytes that are never sent.
    """
    try:
        content = bytearray(dumps(obj))
        return content, bytearray(len(content).to_bytes(8, "little")), None
    except Exception as e:
        return bytearray(), bytearray(_FAILED), e


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The root rank's obj, on every rank."""
    set_id = process_set_id(process_set)
    name = name or handles.auto_name("broadcast_object", set_id)
    is_root = _native.rank() == root_rank
    content, length, failure = _pickled(obj) if is_root else (bytearray(), bytearray(8), None)
    _broadcast(name + ".sz", length, root_rank, set_id)
    if failure:
        raise failure
    if length == _FAILED:
        raise RuntimeError(
            f"broadcast_object: rank {root_rank} could not pickle its object; its error says why"
        )
    if not is_root:
        content = bytearray(int.from_bytes(length, "little"))
    _broadcast(name + ".data", content, root_rank, set_id)
    return obj if is_root else pickle.loads(content)


def allgather_object(obj, name=None, process_set=global_process_set):
    """List of every rank's obj, in rank order."""
    set_id = process_set_id(process_set)
    name = name or handles.auto_name("allgather_object", set_id)
    content, length, failure = _pickled(obj)
    lengths = _allgather(name + ".sz", length, _INT64, (1,), set_id)
    if failure:
        raise failure
    if any(lengths[i : i + 8] == _FAILED for i in range(0, len(lengths), 8)):
        raise RuntimeError("allgather_object: a rank could not pickle its object; its error says why")
    everything = memoryview(_allgather(name + ".data", content, _UINT8, (len(content),), set_id))
    objects = []
    start = 0
    for i in range(0, len(lengths), 8):
        end = start + int.from_bytes(lengths[i : i + 8], "little")
        objects.append(pickle.loads(everything[start:end]))
        start = end
    return objects
