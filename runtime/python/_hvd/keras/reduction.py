# SPDX-License-Identifier: Apache-2.0
"""Reduces a list of gradients over all ranks, for each of Keras' back ends.

reducer(backend, name, settings, times) returns a function (gradients, variables) -> reduced gradients,
multiplied by `times`. None stands for a missing gradient or one that is not to be reduced. All operations
of a list are submitted before the first wait.

Values that must be the same on all ranks are part of the operations, so that a difference is an error or a
stall: `times` is a factor of each operation, and the index of the gradient, with Nones counted, is its
name.

- tensorflow: operations of TensorFlow, eager or in a graph (_hvd.tensorflow.gradients)
- torch: results are new tensors, because autograd.grad() may return one tensor as the gradient of two
  variables
- jax: inside jit one callback into this process for the whole list (io_callback, ordered), which copies
  to numpy and back; outside jit the same without the callback
"""

import functools
import sys

import numpy as np

from _hvd import arrays
from _hvd.keras.compression import ways_of
from _hvd.keras.settings import backend_variable, keys_of
from _hvd.process_sets import process_set_id
from _hvd.util import label_of_place


def reducer(backend, name, settings, times=1):
    """Returns the function that the top of this file describes; results have the gradients' shapes and
    dtypes.

    name: prefix of the operations' names. settings: a Settings. Raises ValueError for another back end than
    tensorflow, torch or jax.
    """
    if backend == "tensorflow":
        return _of_tensorflow(name, settings, times)
    make = {"torch": _of_torch, "jax": _of_jax}.get(backend)
    if make is None:
        raise ValueError(
            f"horovod.keras does not train on Keras' back end '{backend}'; use tensorflow, torch or jax "
            "(KERAS_BACKEND)"
        )
    reduce_some = make(settings, times)

    def reduce(grads, variables):
        there = [(i, v) for i, (g, v) in enumerate(zip(grads, variables)) if g is not None]
        names = [f"{name}.{label_of_place(i, v)}" for i, v in there]
        groups = _groups(settings, [v for _, v in there])
        reduced = iter(reduce_some([g for g in grads if g is not None], names, groups))
        return [None if g is None else next(reduced) for g in grads]

    return uncompiled(reduce) if backend == "torch" else reduce


def uncompiled(function):
    """Returns the function excluded from torch.compile."""
    import torch

    disable = getattr(getattr(torch, "compiler", None), "disable", None)
    return disable(function) if disable else function


def _groups(settings, variables):
    """Returns settings.groups as lists of indices into variables. A variable belongs to the first group
    that contains it."""
    groups = settings.groups
    if groups is None or isinstance(groups, int):
        return arrays.groups_of(len(variables), groups)
    left = {key: i for i, v in enumerate(variables) for key in keys_of(v)}
    found = [sorted({left.pop(k) for v in g for k in keys_of(v) if k in left}) for g in groups]
    return [g for g in found if g]


def _of_tensorflow(name, settings, times):
    from _hvd.tensorflow.compression import Compression
    from _hvd.tensorflow.gradients import _make_allreduce_grads_fn

    groups = settings.groups
    if isinstance(groups, list):
        groups = [[backend_variable(v) for v in g] for g in groups]
    function = _make_allreduce_grads_fn(
        name,
        settings.device_dense,
        settings.device_sparse,
        settings.compression or Compression.none,
        settings.sparse_as_dense or times != 1,
        settings.op,
        settings.predivide,
        groups,
        process_set=settings.process_set,
        times=times,
        label=label_of_place,
    )
    return lambda grads, variables: list(function(list(grads), [backend_variable(v) for v in variables]))


def _of_torch(settings, times):
    import torch

    from _hvd.torch.submit import submit_allreduce

    wire, own = ways_of(settings.compression)
    prescale, postscale = settings.scales(times)

    def reduce(grads, names, groups):
        set_id = process_set_id(settings.process_set)
        with torch.no_grad():
            grads = [g.to_dense() if g.is_sparse else g for g in grads]
            sent = [own.compress(g) if own else (g, None) for g in grads]

            def start(i, group, group_size):
                tensor = sent[i][0]
                return submit_allreduce(
                    tensor.detach(),
                    torch.empty_like(tensor, memory_format=torch.contiguous_format),
                    names[i],
                    settings.op,
                    prescale,
                    postscale,
                    set_id,
                    compression=wire if grads[i].is_floating_point() else None,
                    group=group,
                    group_size=group_size,
                    is_held=group is not None,
                )

            results = arrays.finish_all(arrays.start_all(start, names, groups))
            if own:
                return [own.decompress(r, ctx) for r, (_, ctx) in zip(results, sent)]
            return results

    return reduce


def _of_jax(settings, times):
    import jax
    from jax.experimental import io_callback

    wire, own = ways_of(settings.compression)
    prescale, postscale = settings.scales(times)

    def on_host(names, groups, *grads):
        sources = [np.asarray(g) for g in grads]
        sent = [own.compress(g) for g in sources] if own else [(g, None) for g in sources]
        wires = [wire if g.dtype.kind == "f" or g.dtype.name == "bfloat16" else None for g in sources]
        results = arrays.allreduce_all(
            [g for g, _ in sent],
            names,
            settings.op,
            prescale,
            postscale,
            process_set_id(settings.process_set),
            wires,
            groups,
        )
        if own:
            results = [own.decompress(r, ctx) for r, (_, ctx) in zip(results, sent)]
        return [np.asarray(r, g.dtype).reshape(g.shape) for r, g in zip(results, sources)]

    def reduce(grads, names, groups):
        function = functools.partial(on_host, names, groups)
        if not any(isinstance(g, jax.core.Tracer) for g in grads):
            return [jax.numpy.asarray(r) for r in function(*grads)]
        shapes = [jax.ShapeDtypeStruct(g.shape, g.dtype) for g in grads]
        return io_callback(function, shapes, *grads, ordered=True)

    return reduce


def reduce_gradients(run, settings, make, grads, variables, times=1):
    """Returns the list of gradients, reduced and multiplied by `times`.

    Local gradients are not reduced; they are divided by the number of ranks if settings.scales_local, but
    not after a tape that has done so. None stays None. run: the optimizer's Run. make: returns run.reduce,
    at the first call; it multiplies too.
    """
    grads = list(grads)
    if settings.is_alone():
        return [scaled(g, times) for g in grads]
    local = run.local_keys()
    is_local = [bool(local & keys_of(v)) for v in variables] if local else [False] * len(grads)
    todo = [None if mine else g for g, mine in zip(grads, is_local)]
    if any(g is not None for g in todo):
        if run.reduce is None:
            run.reduce = make()
        reduced = run.reduce(todo, variables)
        grads = [g if mine else r for g, r, mine in zip(grads, reduced, is_local)]
    if not any(is_local):
        return grads
    factor = times / settings.process_set.size() if settings.scales_local else times
    done = _divided_before(grads, is_local, settings)
    return [scaled(g, times if d else factor) if mine else g for g, mine, d in zip(grads, is_local, done)]


def _divided_before(grads, is_local, settings):
    """Returns a list of bool: which of these local gradients a distributed tape has divided or reduced."""
    marks = sys.modules.get("_hvd.tensorflow.marks")  # absent: there was no tape
    if marks is None:
        return [False] * len(grads)
    known = marks.marks_of([g if mine else None for g, mine in zip(grads, is_local)])
    set_id = process_set_id(settings.process_set)
    return [of is not None and of[0] == set_id for of in known]


def scaled(grad, factor):
    """Returns a gradient (None, a tensor or IndexedSlices) times a number."""
    if grad is None or factor == 1:
        return grad
    if hasattr(grad, "indices") and hasattr(grad, "dense_shape"):  # tf.IndexedSlices
        return type(grad)(grad.values * factor, grad.indices, grad.dense_shape)
    return grad * factor


__all__ = ["reduce_gradients", "reducer", "uncompiled"]
