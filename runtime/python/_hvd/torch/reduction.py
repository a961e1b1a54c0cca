# SPDX-License-Identifier: Apache-2.0
"""One gradient's reduction, from the moment it is complete until p.grad is the result.

A `Reduction` is created when the gradient is complete, started soon (several together) and finished when
the optimizer needs the result. A dense gradient is reduced in place, unless a user's compressor is used; a
sparse one by gathering its rows, or as a dense one.

Invariants
 - A parameter that several optimizers share is reduced once: later requests get the same object.
 - A name is in use by one reduction at a time, because parameters have different names (parameters.py).
 - A reduction that has ended or failed is not in the table.
"""

import contextlib
import warnings

import torch

from _hvd import handles
from _hvd.basics import Average
from _hvd.exceptions import HorovodInternalError
from _hvd.process_sets import process_set_id
from _hvd.torch.compression import Compression, wire_of
from _hvd.torch.submit import sparse_allreduce_async, submit_allreduce
from _hvd.torch.tensors import follow, read_here, where

_of_parameter = {}  # id(parameter) -> its reduction that has not ended; that keeps the parameter alive

QUEUED, STARTED, ENDED = range(3)


def _warn_of_change(name):
    """Reports the change. Without it there would be a silent race between the change and the reduction."""
    warnings.warn(
        f"the gradient {name} was changed after backward(), while it was being reduced: "
        "its value is now undefined. Call optimizer.synchronize() before gradients are clipped or "
        "unscaled (GradScaler.step() unscales too), and step() inside optimizer.skip_synchronize()",
        stacklevel=5,
    )


def settle(is_left):
    """Ends pending reductions of optimizers that were dropped between backward() and step().

    All ranks create the new optimizer and so call this; reductions that only some had submitted are
    submitted on all. p.grad is the result, as after step().
    """
    left = [r for r in _of_parameter.values() if is_left(r)]
    for reduction in left:
        if reduction.world == handles.world:
            with contextlib.suppress(Exception):
                reduction.start()
    for reduction in left:
        with contextlib.suppress(Exception):
            reduction.finish()
        reduction.abandon()


class Settings:
    """How an optimizer's gradients are reduced; fixed at its creation."""

    def __init__(self, compression, op, gradient_predivide_factor, sparse_as_dense, process_set):
        self.op = op
        self.predivide = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.compression = compression
        self.wire = wire_of(compression)
        self.compresses = compression is not Compression.none and self.wire is None
        factor = gradient_predivide_factor if op == Average else 1.0
        self.prescale, self.postscale = 1.0 / factor, factor

    def same(self, other):
        return vars(self) == vars(other)


def reduction_of(p, name, settings, sparse_dims):
    """The reduction of p.grad: a new one, or that of another optimizer which has p too.

    sparse_dims: {parameter: its gradient's sparse dimensions} of those seen so far; this adds to it.
    """
    found = _of_parameter.get(id(p))
    if found is None or found.world != handles.world:
        return Reduction(p, name, settings, sparse_dims)
    if not (found.settings is settings or found.settings.same(settings)):
        raise ValueError(
            f"parameter {name} is in two optimizers that reduce its gradient in different ways (op, "
            "compression, gradient_predivide_factor, sparse_as_dense or process_set); wrap both with "
            "the same arguments"
        )
    return found


class Reduction:
    __slots__ = (
        "ctx",
        "handle",
        "name",
        "p",
        "place",
        "sent",
        "settings",
        "sparse_dims",
        "state",
        "version",
        "world",
    )

    def __init__(self, p, name, settings, sparse_dims):
        self.p, self.name, self.settings = p, name, settings
        self.world = handles.world
        self.state = QUEUED
        self.sparse_dims = sparse_dims
        self.place = where(p)  # the stream that produced the gradient
        self.handle = self.sent = self.ctx = None
        _of_parameter[id(p)] = self

    def is_gathered(self):
        """Whether it is sent as rows instead of as a whole tensor."""
        grad = self.p.grad
        is_sparse = self.p in self.sparse_dims if grad is None else grad.is_sparse
        return is_sparse and not self.settings.sparse_as_dense

    def _zeros(self):
        p, n = self.p, self.sparse_dims.get(self.p)
        if n is None:
            return torch.zeros_like(p, requires_grad=False)
        nowhere = torch.zeros((n, 0), dtype=torch.int64, device=p.device)
        nothing = torch.zeros((0, *p.shape[n:]), dtype=p.dtype, device=p.device)
        return torch.sparse_coo_tensor(nowhere, nothing, p.shape)

    def start(self, group=None, group_size=0, is_held=False):
        """Submits p.grad, zeros where there is none; nothing when it was submitted before.

        is_held: it is submitted by handles.submit_held(), unless it is gathered.
        """
        if self.state != QUEUED:
            return
        p, s = self.p, self.settings
        if self.place is not None:
            follow(self.place)  # another gradient's stream may be the present one
        grad = p.grad
        if grad is None:
            grad = p.grad = self._zeros()  # another rank may have one
            self.place = where(p)
        if grad.is_sparse:
            self.sparse_dims[p] = grad.sparse_dim()
            if not s.sparse_as_dense:
                self.handle = sparse_allreduce_async(
                    grad, name=self.name, op=s.op, process_set=s.process_set
                )
                self.state = STARTED
                return
            grad = grad.to_dense()
        self.sent = grad
        if s.compresses:
            self.sent, self.ctx = s.compression.compress(grad)
        wire = self.sent
        if wire is not grad:
            self.place = where(wire)  # the compressed copy belongs to the current stream
        self.handle = submit_allreduce(
            wire,
            wire,
            f"allreduce.{self.name}",
            s.op,
            s.prescale,
            s.postscale,
            process_set_id(s.process_set),
            compression=s.wire,
            group=group,
            group_size=group_size,
            is_held=is_held,
            place=self.place,
        )
        self.version = grad._version  # what we write does not count
        self.state = STARTED

    def recall(self):
        """Called if it was held and then not submitted."""
        if self.state == STARTED:
            self.state = QUEUED
            self.handle = self.sent = self.ctx = None

    def finish(self):
        """Waits, and sets p.grad to the result. Raises the operation's error."""
        if self.state == ENDED:
            return
        try:
            if self.world != handles.world:
                raise HorovodInternalError(
                    "the world was recreated while gradients were on their way; restore the state "
                    "of the last commit and continue from there"
                )
            self.start()
            if callable(self.handle):
                self.p.grad = self.handle()
            else:
                if self.sent is self.p.grad and self.sent._version != self.version:
                    _warn_of_change(self.name)
                handles.finish(self.handle)
                self._deliver()
        except BaseException as e:
            if self.is_under_way(e):
                raise  # of a signal handler (Ctrl-C); it may be waited for again
            self.abandon()
            raise
        self.abandon()

    def is_under_way(self, error):
        """Whether a wait ended with this error while the runtime still works on the operation."""
        if callable(self.handle):
            return isinstance(error, KeyboardInterrupt)
        return self.handle is not None and not handles.poll(self.handle)

    def _deliver(self):
        reduced, p = self.sent, self.p
        if self.settings.compresses:
            reduced = self.settings.compression.decompress(reduced, self.ctx)
        if p.grad is not None and p.grad.is_sparse:
            p.grad = reduced.to_sparse(p.grad.sparse_dim())  # what SparseAdam and its like expect
        elif p.grad is None:
            p.grad = reduced
        elif p.grad is not reduced:
            with torch.no_grad():
                p.grad.copy_(reduced)
        if p.grad is not self.sent:
            read_here(self.sent, self.place)

    def abandon(self):
        """Drops the references to it; the runtime keeps the memory of a running operation alive."""
        self.state = ENDED
        self.handle = self.sent = self.ctx = None
        if _of_parameter.get(id(self.p)) is self:
            del _of_parameter[id(self.p)]
