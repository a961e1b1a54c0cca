# SPDX-License-Identifier: Apache-2.0
"""Collectives on numpy arrays, for callers without tensors of a supported framework.

Keras on JAX reduces its gradients here, and callbacks their metrics. Arrays are copied where they do not
lie row by row. The functions that take several arrays start all operations before they wait for the first,
so that ranks never wait for each other in different orders.
"""

import contextlib

import numpy as np

from _hvd import _native, handles
from _hvd.basics import Average
from _hvd.util import split_list

# numpy dtype -> enum hvd_dtype; bfloat16 is known by its name (ml_dtypes has it)
_DTYPES = {
    "uint8": 0,
    "int8": 1,
    "uint16": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 9,
    "bfloat16": 10,
}


def _dtype_of(array):
    number = _DTYPES.get(array.dtype.name)
    if number is None:
        raise ValueError(
            f"Tensor type {array.dtype.name} is not supported; cast it, for example to float32"
        )
    return number


def _describe(array, output, name, group=None, group_size=0):
    """The description of a tensor for _native. Operations of a group are held: see start_all()."""
    to = 0 if output is None else output.ctypes.data
    is_held = group is not None
    return name, array.ctypes.data, to, _dtype_of(array), array.shape, group, group_size, is_held


def _plain(array):
    array = np.asarray(array)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def finish_all(pending):
    """Waits for all operations, also after an error, and then raises the first error."""
    results, error = [], None
    for handle in pending:
        try:
            results.append(handles.finish(handle))
        except Exception as e:
            error = error or e
    if error is not None:
        raise error
    return results


def start_all(start, names, groups=()):
    """Returns the handles of operations, one for each name, started by start(index, group's name or None,
    its size).

    groups: lists of indices; their operations are held and submitted once all of a group exist. If one
    cannot be started, the started ones are waited for and the rest of its group is dropped.
    """
    of = {i: group for group in groups for i in group}
    last = {max(group) for group in groups}
    pending, submitted = {}, set()
    try:
        for i in range(len(names)):
            group = of.get(i)
            together = (f"{names[group[0]]}.group", len(group)) if group else (None, 0)
            pending[i] = start(i, *together)
            if group is None:
                submitted.add(i)
            elif i in last:
                submitted.update(group)
                handles.submit_held([pending[j] for j in group])
    except BaseException:
        handles.drop([h for i, h in pending.items() if i not in submitted])
        with contextlib.suppress(Exception):
            finish_all([h for i, h in pending.items() if i in submitted])
        raise
    return [pending[i] for i in range(len(pending))]


def groups_of(n, groups):
    """The numbers below n as lists of groups. groups: None, a number of groups, or lists of numbers."""
    if groups is None:
        return []
    if isinstance(groups, int):
        return [g for g in split_list(list(range(n)), groups) if g]
    return groups


def allreduce_all(
    arrays, names, op=Average, prescale=1.0, postscale=1.0, set_id=0, wires=None, groups=None
):
    """Returns new arrays, each reduced over the ranks. groups: lists of indices that are reduced
    together."""
    sources = [_plain(a) for a in arrays]
    outputs = [np.empty_like(s) for s in sources]

    def start(i, group, group_size):
        tensor = _describe(sources[i], outputs[i], names[i], group, group_size)
        args = (op, prescale, postscale, set_id, wires[i] if wires else None)
        keep = (sources[i], outputs[i])
        return handles.submit(_native.allreduce, keep, lambda h: None, tensor, *args)

    finish_all(start_all(start, names, groups_of(len(sources), groups)))
    return outputs


def broadcast_all(arrays, names, root_rank, set_id=0):
    """Returns new arrays with the values of the root rank."""
    sources = [_plain(a) for a in arrays]
    outputs = [np.empty_like(s) for s in sources]

    def start(i, group, group_size):
        tensor = _describe(sources[i], outputs[i], names[i], group, group_size)
        keep = (sources[i], outputs[i])
        return handles.submit(_native.broadcast, keep, lambda h: None, tensor, root_rank, set_id)

    finish_all(start_all(start, names))
    return outputs


def _own_shape(function, array, name, *args):
    """Runs an operation whose result shape the runtime determines: allgather, reducescatter."""
    source = _plain(array)

    def result(handle):
        at, shape = _native.result(handle)
        output = np.empty(shape, source.dtype)
        if output.nbytes:
            _native.copy(output.ctypes.data, at, output.nbytes)
        return output

    tensor = (name, source.ctypes.data, 0, _dtype_of(source), source.shape)
    return handles.finish(handles.submit(function, source, result, tensor, *args))


def allgather(array, name, set_id=0):
    """Concatenates all ranks' arrays along the first dimension."""
    return _own_shape(_native.allgather, array, name, set_id)


def reducescatter(array, name, op=Average, set_id=0):
    """This rank's rows of the reduced array."""
    return _own_shape(_native.reducescatter, array, name, op, 1.0, 1.0, set_id)
