# SPDX-License-Identifier: Apache-2.0
"""hvd.progress(): how far the program is, for the status of the job."""

from _hvd import _native


def progress(step=None, total=None, epoch=None, epochs=None, samples=None, metrics=None):
    """Reports how far this program is, for the job's status. Never waits, and takes about a microsecond.

    step, epoch: as the program counts. total, epochs: how many there will be. samples: how many the whole
    job has processed so far, all ranks together; samples per second are made of it. metrics: a dict of at
    most 16 names and numbers. What is not given keeps its last value, also each metric.

    One rank is enough; of several the lowest one counts. Any thread, after init().

    A metric may be a scalar of numpy, PyTorch, TensorFlow or JAX that is in host memory. One on a GPU is a
    TypeError, because reading it waits for the GPU: pass loss.item() in the steps in which that is wanted.
    """
    if metrics is not None:
        metrics = {name: v if type(v) is float else _number(name, v) for name, v in _items(metrics)}
    _native.progress(step, total, epoch, epochs, samples, metrics)


def _items(metrics):
    try:
        return metrics.items()
    except AttributeError:
        raise TypeError(f"metrics: a {type(metrics).__name__} is not a dict of names and numbers") from None


def _number(name, value):
    place = _place_of(value)
    if place is not None:
        raise TypeError(
            f'metrics: "{name}" is on {place}, and reading it waits for that device; pass its .item() '
            "where you want to wait"
        )
    shape = getattr(value, "shape", ())
    if tuple(shape):
        raise TypeError(f'metrics: "{name}" has the shape {list(shape)}, it must be one number')
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        if hasattr(value, "item"):  # of numpy, PyTorch, JAX
            return float(value.item())
        return float(value.numpy() if hasattr(value, "numpy") else value)
    except Exception:  # of the framework: a tensor inside a graph, for one
        raise TypeError(f'metrics: "{name}" is a {type(value).__name__}, not a number') from None


def _place_of(value):
    """The device of a framework's tensor that is not in host memory; else None."""
    device = getattr(value, "device", None)
    if callable(device):
        device = device()
    kind = getattr(device, "type", None) or getattr(device, "platform", None) or str(device or "cpu")
    return None if "cpu" in kind.lower() else device
