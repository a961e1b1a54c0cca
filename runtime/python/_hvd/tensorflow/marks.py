# SPDX-License-Identifier: Apache-2.0
"""Which gradients have been reduced already, so that none is reduced twice and none is forgotten.

A reduction marks its results with the process set and the reducer's name. Eagerly the mark is an attribute
of the tensor, and tensors computed from it (clipped, unscaled) have none. In a graph it is an attribute of
the operation, and tensors derived from a marked gradient inherit it: `marks_of` walks back from a gradient
through tensors of its shape. So clipping, scaling, casts and sums keep the mark, and so do IndexedSlices
that become dense. A loss that depends on a marked gradient passes it to its own gradients through
elementwise operations only.

A reducer whose gradients are applied elsewhere (a tape, compute_gradients()) also stores its name with
their variables. Whether an unmarked gradient of such a variable was derived from a reduced one is unknown:
reducing it again is right except for sums, so that is done with a warning.
"""

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from _hvd.tensorflow.util import inner_variable

_MARK = "_hvd_reduced"  # of a tensor or an operation: "process set id,name"
_BY = "_hvd_reduced_by"  # of a variable: the reducer of its gradient since it was last applied


def mark(grads, set_id, name):
    """Marks the results of a reduction; None stays None."""
    for grad in grads:
        if grad is None:
            continue
        tensor = _tensor_of(grad)
        op = getattr(tensor, "op", None)  # eagerly there is none
        text = f"{set_id},{name}"
        if op is None:
            setattr(tensor, _MARK, text)
        else:
            op._set_attr(_MARK, attr_value_pb2.AttrValue(s=text.encode()))


def marks_of(grads):
    """For each gradient (process set id, reducer), or None."""
    clean = set()
    return [None if grad is None else _walk(_tensor_of(grad), clean) for grad in grads]


def remember(variables, name):
    """The gradients of these have been reduced, and are about to be applied."""
    for variable in map(inner_variable, variables):
        if isinstance(variable, tf.Variable):
            setattr(variable, _BY, name)


def reducers(variables):
    """Names of the reducers of these variables' gradients since they were last applied."""
    return {getattr(inner_variable(v), _BY, None) for v in variables} - {None}


def _tensor_of(grad):
    return grad.values if isinstance(grad, tf.IndexedSlices) else grad


def _shape(tensor):
    rank = getattr(tensor.shape, "rank", None)  # torch's have none
    return None if rank is None else tuple(tensor.shape.as_list())


def _mark_of(tensor):
    """The mark of just this tensor, or of its operation."""
    op = getattr(tensor, "op", None)
    try:
        text = getattr(tensor, _MARK, None) if op is None else op.get_attr(_MARK).decode()
    except ValueError:  # it has no such attribute
        return None
    if text is None:
        return None
    set_id, name = text.split(",", 1)
    return int(set_id), name


def _sources(tensor):
    """The inputs of a tensor of a graph; for a captured tensor, the tensor outside of the function."""
    captures = getattr(tensor.graph, "captures", None)
    if tensor.op.type == "Placeholder" and captures:
        return [outer for outer, inner in captures if inner is tensor]
    return tensor.op.inputs


def _walk(tensor, clean):
    """The mark of the tensor or of the nearest one before it; clean: tensors without a mark, by shape."""
    seen, todo = set(), [(tensor, _shape(tensor))]
    while todo:
        at, shape = todo.pop()
        found = _mark_of(at)
        if found is not None:
            return found
        op = getattr(at, "op", None)
        key = None if op is None else (id(at.graph), op.name, shape)
        if op is None or key in seen or key in clean:
            continue
        seen.add(key)
        if op.type == "UnsortedSegmentSum":  # IndexedSlices converted to dense
            todo.append((op.inputs[0], _shape(op.inputs[0])))
        todo.extend((t, shape) for t in _sources(at) if _shape(t) in (shape, None))
    clean |= seen
    return None
