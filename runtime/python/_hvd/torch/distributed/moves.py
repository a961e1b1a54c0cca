# SPDX-License-Identifier: Apache-2.0
"""Collectives that move tensors. A mixin of HvdProcessGroup (group.py), which submits."""

import torch

from _hvd import _native
from _hvd.torch.distributed.data import (
    Row,
    all_of,
    back,
    check,
    movable,
    same_kind,
    submit,
)
from _hvd.torch.distributed.operation import names
from _hvd.torch.tensors import plain, where


class Moves:
    def broadcast(self, tensors, opts):
        begun, afters = [], []
        for tensor in tensors:
            dtype, units = movable(tensor, "broadcast")
            memory = plain(tensor)
            shape = (memory.numel() * units,)
            args = (self._ranks[opts.rootRank], self._set)
            kind = f"broadcast.{opts.rootRank}"
            begun.append(self._submit(_native.broadcast, kind, memory, memory, memory, dtype, shape, *args))
            afters.append(back(tensor, memory))
        return self._work("broadcast", begun, tensors, all_of(afters), opts)

    def _begin_allgather(self, output, source, what):
        """output: memory in one piece for all ranks' elements, in the order of the group."""
        dtype, units = movable(source, what)
        room = source.numel() * source.element_size() * self.size()
        shape = (source.numel() * units,)
        keep = (source, output)
        return self._submit(_native.allgather, what, keep, source, output, dtype, shape, self._set, room)

    def _allgather_list(self, outputs, source, what):
        same_kind([*outputs, source], what)
        if len(outputs) != self.size():
            raise RuntimeError(f"{what}: {len(outputs)} outputs in a group of {self.size()} ranks")
        if any(t.numel() != source.numel() for t in outputs):
            sizes = [t.numel() for t in outputs]
            raise RuntimeError(f"{what}: outputs of {sizes} elements for an input of {source.numel()}")
        row = Row(outputs, is_source=False)
        begun = self._begin_allgather(row, plain(source), what)
        return begun, None if row.is_own else row.write_back

    def allgather(self, outputs, inputs, opts=None):
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        begun = [self._allgather_list(o, i, "all_gather") for o, i in zip(outputs, inputs)]
        after = all_of([a for _, a in begun])
        flat = [t for o in outputs for t in o]
        return self._work("all_gather", [b for b, _ in begun], flat, after, opts)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs: for each rank its tensors."""
        what = "all_gather_coalesced"
        lists = [[mine[i] for mine in outputs] for i in range(len(inputs))]
        begun = [self._allgather_list(o, i, what) for o, i in zip(lists, inputs)]
        flat = [t for o in outputs for t in o]
        return self._work(what, [b for b, _ in begun], flat, all_of([a for _, a in begun]), opts)

    def _allgather_single(self, output, source, what):
        check(output, what)
        if output.numel() != source.numel() * self.size() or output.dtype != source.dtype:
            raise RuntimeError(
                f"{what}: the output has {output.numel()} elements of {output.dtype}, the input "
                f"{source.numel()} of {source.dtype}; with {self.size()} ranks it must be "
                f"{source.numel() * self.size()}"
            )
        memory = plain(output)
        return self._begin_allgather(memory, plain(source), what), back(output, memory)

    def all_gather_single(self, output, source, opts=None):
        begun, after = self._allgather_single(output, source, "all_gather_into_tensor")
        return self._work("all_gather_into_tensor", [begun], [output], after, opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        what = "all_gather_into_tensor_coalesced"
        begun = [self._allgather_single(o, i, what) for o, i in zip(outputs, inputs)]
        return self._work(what, [b for b, _ in begun], outputs, all_of([a for _, a in begun]), opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _begin_gather(self, row, source, root):
        dtype, units = movable(source, "gather")
        shape = (source.numel() * units,)
        args = [self._ranks[root], self._set]
        if row is not None:
            args.append(row.size_bytes)
        kind = f"gather.{root}"
        return self._submit(_native.gather, kind, (source, row), source, row, dtype, shape, *args)

    def gather(self, outputs, inputs, opts):
        (source,) = inputs
        outputs = outputs[0] if outputs else []
        row = None
        if self._place == opts.rootRank:
            same_kind([*outputs, source], "gather")
            if len(outputs) != self.size() or any(t.numel() != source.numel() for t in outputs):
                sizes = [t.numel() for t in outputs]
                raise RuntimeError(
                    f"gather: outputs of {sizes} elements for {self.size()} inputs of {source.numel()}"
                )
            row = Row(outputs, is_source=False)
        begun = self._begin_gather(row, plain(source), opts.rootRank)
        after = None if row is None or row.is_own else row.write_back
        return self._work("gather", [begun], list(outputs), after, opts)

    def gather_single(self, output, source, opts):
        row, memory = None, None
        if self._place == opts.rootRank:
            memory = plain(output)
            row = Row([memory], is_source=False)
        begun = self._begin_gather(row, plain(source), opts.rootRank)
        after = back(output, memory) if row is not None else None
        return self._work("gather", [begun], [output], after, opts)

    gather_into_tensor = gather_single

    def _begin_alltoall(self, row_out, row_in, splits_in, splits_out, kind, numel):
        """The rows' memory, and the numbers of elements sent to and received from each rank."""
        dtype, units = movable(row_in.memory, kind)
        shape = (row_in.numel * units,)
        splits = tuple(n * units for n in splits_in)
        expected = tuple(n * units for n in splits_out)
        name = self._name(kind, row_in.memory, numel)
        place = where(row_in.memory)

        def result(handle):
            came = _native.received_splits(handle)
            if tuple(came) != expected:
                raise RuntimeError(
                    f"{kind}: the other ranks sent {[n // units for n in came]} elements, this rank "
                    f"expected {list(splits_out)}"
                )

        described = ((row_in, row_out), result, name, row_in, row_out, dtype, shape, place)
        args = (splits, self._set, row_out.size_bytes)
        return names.submit((self._set, name), lambda: submit(_native.alltoall, *described, *args), place)

    def scatter(self, outputs, inputs, opts):
        """An all-to-all in which only the root sends."""
        (output,) = outputs
        root, splits = opts.rootRank, [0] * self.size()
        if self._place == root:
            given = inputs[0]
            same_kind([*given, output], "scatter")
            if len(given) != self.size() or any(t.numel() != output.numel() for t in given):
                sizes = [t.numel() for t in given]
                raise RuntimeError(
                    f"scatter: inputs of {sizes} elements for {self.size()} outputs of {output.numel()}"
                )
            source, splits = Row(given, is_source=True), [output.numel()] * self.size()
        else:
            source = Row([output.new_empty(0)], is_source=True)
        memory = plain(output)
        expected = [output.numel() if p == root else 0 for p in range(self.size())]
        row = Row([memory], is_source=False)
        kind = f"scatter.{root}"
        begun = self._begin_alltoall(row, source, splits, expected, kind, output.numel())
        return self._work("scatter", [begun], outputs, back(output, memory), opts)

    def alltoall(self, outputs, inputs, opts=None):
        what = "all_to_all"
        same_kind([*outputs, *inputs], what)
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise RuntimeError(f"{what}: {len(outputs)} outputs, {len(inputs)} inputs, {self.size()} ranks")
        source, row = Row(inputs, is_source=True), Row(outputs, is_source=False)
        splits = [t.numel() for t in inputs]
        expected = [t.numel() for t in outputs]
        begun = self._begin_alltoall(row, source, splits, expected, what, 0)
        return self._work(what, [begun], outputs, None if row.is_own else row.write_back, opts)

    def _rows_of(self, tensor, splits, what):
        """Elements for each rank, from splits in rows of dimension 0."""
        n_rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if n_rows % self.size():
                raise RuntimeError(f"{what}: {n_rows} rows cannot be shared evenly by {self.size()} ranks")
            splits = [n_rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != n_rows or min(splits) < 0:
            raise RuntimeError(f"{what}: splits {list(splits)} of {n_rows} rows for {self.size()} ranks")
        row = tensor.numel() // n_rows if n_rows else 0
        return [n * row for n in splits]

    def all_to_all_single(self, output, source, output_splits=(), input_splits=(), opts=None):
        what = "all_to_all_single"
        same_kind([output, source], what)
        memory = plain(output)
        rows = Row([memory], is_source=False), Row([plain(source)], is_source=True)
        splits = self._rows_of(source, input_splits, f"{what}, input")
        expected = self._rows_of(output, output_splits, f"{what}, output")
        begun = self._begin_alltoall(*rows, splits, expected, what, 0)
        return self._work(what, [begun], [output], back(output, memory), opts)

    alltoall_base = all_to_all_single
