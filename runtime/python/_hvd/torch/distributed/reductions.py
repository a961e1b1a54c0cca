# SPDX-License-Identifier: Apache-2.0
"""Collectives that reduce. A mixin of HvdProcessGroup (group.py), which submits."""

import torch
from torch._C._distributed_c10d import AllreduceOptions, ReduceOp

from _hvd import _native
from _hvd.torch.distributed import reduce_ops
from _hvd.torch.distributed.data import (
    Row,
    all_of,
    back,
    check,
    parts_of,
    reducible,
    same_kind,
    submit,
)
from _hvd.torch.distributed.operation import names
from _hvd.torch.tensors import plain, read_here, take, where


class Reductions:
    def _begin_allreduce(self, tensor, op, what):
        """(operations, what to do when they have ended)"""
        if tensor.layout == torch.sparse_coo:
            return self._begin_sparse(tensor, op, what)
        bits = reduce_ops.bitwise(op)
        if bits is not None:
            return self._begin_bitwise(tensor, bits, what)
        check(tensor, what)
        op, factor = reduce_ops.runtime_op(op, what)
        memory = plain(tensor)
        sent = parts_of(memory, op, what)
        dtype = reducible(sent, what)
        args = (op, factor, 1.0, self._set)
        begun = self._submit(_native.allreduce, what, sent, sent, sent, dtype, (sent.numel(),), *args)
        return [begun], back(tensor, memory)

    def _begin_bitwise(self, tensor, function, what):
        memory = plain(tensor)
        parts = memory.new_empty((self.size(), memory.numel()))
        begun = self._begin_allgather(parts, memory, what)
        place = where(parts)

        def after():
            tensor.copy_(reduce_ops.fold(function, parts).view(tensor.shape))
            read_here(parts, place)

        return [begun], after

    def _begin_sparse(self, tensor, op, what):
        """As sums of what all ranks have, gathered: their numbers of elements differ."""
        if op != ReduceOp.SUM:
            raise RuntimeError(f"{what}: of sparse tensors only the SUM is supported")
        mine = tensor.coalesce()
        parts = [mine.indices().t().contiguous(), mine.values().contiguous()]
        begun, gathered = [], []

        for i, part in enumerate(parts):
            dtype = reducible(part, what)
            name = self._name(f"{what}.sparse{i}", part, 0)
            place = where(part)

            def result(handle, part=part, dtype=dtype, place=place):
                gathered.append(take(handle, part, dtype))
                read_here(part, place)

            described = (part, result, name, part, None, dtype, tuple(part.shape), place)

            def begin(described=described):
                return submit(_native.allgather, *described, self._set)

            begun.append(names.submit((self._set, name), begin, place))

        def after():
            indices, values = gathered
            total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
            tensor.copy_(total)

        return begun, after

    def _allreduce_all(self, tensors, opts, what):
        op = opts.reduceOp if opts is not None else ReduceOp.SUM
        begun = [self._begin_allreduce(t, op, what) for t in tensors]
        operations = [o for ops, _ in begun for o in ops]
        return self._work(what, operations, tensors, all_of([after for _, after in begun]), opts)

    def allreduce(self, tensors, opts=None):
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if isinstance(opts, ReduceOp):
            op, opts = opts, AllreduceOptions()
            opts.reduceOp = op
        return self._allreduce_all(tensors, opts, "all_reduce")

    def allreduce_coalesced(self, tensors, opts=None):
        return self._allreduce_all(tensors, opts, "all_reduce_coalesced")

    def _begin_reduce(self, memory, op, place, what, output=None):
        """To the rank at a place of the group."""
        op, factor = reduce_ops.runtime_op(op, what)
        memory = parts_of(memory, op, what)
        output = None if output is None else parts_of(output, op, what)
        dtype = reducible(memory, what)
        args = (op, factor, 1.0, self._ranks[place], self._set)
        if output is None and place == self._place:
            output = memory
        keep = (memory, output)
        return self._submit(
            _native.reduce, f"{what}.{place}", keep, memory, output, dtype, (memory.numel(),), *args
        )

    def reduce(self, tensors, opts):
        (tensor,) = tensors
        memory = plain(tensor)
        begun = self._begin_reduce(memory, opts.reduceOp, opts.rootRank, "reduce")
        after = back(tensor, memory) if opts.rootRank == self._place else None
        return self._work("reduce", [begun], tensors, after, opts)

    def _begin_reduce_scatter(self, output, source, op, what):
        """Rows of source, one for each rank, summed; this rank's into output, both in one piece."""
        if source.numel() != output.numel() * self.size() or source.dtype != output.dtype:
            raise RuntimeError(
                f"{what}: the input has {source.numel()} elements of {source.dtype}, the output "
                f"{output.numel()} of {output.dtype}; with {self.size()} ranks the input must be "
                f"{output.numel() * self.size()}"
            )
        op, factor = reduce_ops.runtime_op(op, what)
        source, output = parts_of(source, op, what), parts_of(output, op, what)
        dtype = reducible(source, what)
        room = output.numel() * output.element_size()
        args = (op, factor, 1.0, self._set, room)
        shape = (self.size(), output.numel())
        return self._submit(
            _native.reducescatter, what, (source, output), source, output, dtype, shape, *args
        )

    def _reduce_scatter_one(self, output, source, op, what):
        memory = plain(output)
        begun = self._begin_reduce_scatter(memory, plain(source), op, what)
        return begun, back(output, memory)

    def reduce_scatter_single(self, output, source, opts=None):
        op = opts.reduceOp if opts is not None else ReduceOp.SUM
        begun, after = self._reduce_scatter_one(output, source, op, "reduce_scatter_tensor")
        return self._work("reduce_scatter_tensor", [begun], [output], after, opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        op = opts.reduceOp if opts is not None else ReduceOp.SUM
        what = "reduce_scatter_tensor_coalesced"
        begun = [self._reduce_scatter_one(o, i, op, what) for o, i in zip(outputs, inputs)]
        after = all_of([a for _, a in begun])
        return self._work(what, [b for b, _ in begun], outputs, after, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter_list(self, output, inputs, op):
        what = "reduce_scatter"
        first = same_kind(inputs, what)
        if len(inputs) != self.size():
            raise RuntimeError(f"{what}: {len(inputs)} inputs in a group of {self.size()} ranks")
        if output.numel() != inputs[self._place].numel():
            raise RuntimeError(
                f"{what}: the output has {output.numel()} elements, input {self._place} has "
                f"{inputs[self._place].numel()}"
            )
        memory = plain(output)
        after = back(output, memory)
        if all(t.numel() == first.numel() for t in inputs):
            source = Row(inputs, is_source=True)
            whole = source.memory.as_strided((source.numel,), (1,)) if source.numel else source.memory
            return [self._begin_reduce_scatter(memory, whole, op, what)], after
        begun = []
        for place, t in enumerate(inputs):  # of different sizes: one reduction for each rank
            out = memory if place == self._place else None
            begun.append(self._begin_reduce(plain(t), op, place, what, out))
        return begun, after

    def reduce_scatter(self, outputs, inputs, opts=None):
        op = opts.reduceOp if opts is not None else ReduceOp.SUM
        begun = [self._reduce_scatter_list(o, i, op) for o, i in zip(outputs, inputs)]
        operations = [b for ops, _ in begun for b in ops]
        return self._work("reduce_scatter", operations, outputs, all_of([a for _, a in begun]), opts)
