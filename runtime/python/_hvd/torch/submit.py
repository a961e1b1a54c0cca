# SPDX-License-Identifier: Apache-2.0
"""Starting collectives: the functions that return a handle, and those that end it.

Operations of equal name on all ranks form one collective, so automatic names are counted per kind and
agree as long as all ranks call in the same order. The tensors of a grouped call share a group of the
runtime: all or none are reduced, in one batch if they fit.
"""

import operator

import torch

from _hvd import _native, handles
from _hvd.basics import Adasum, Average, Sum, check_reduce_op, reduce_op_from
from _hvd.process_sets import global_process_set, integers, process_set_id
from _hvd.torch import tensors as t

__all__ = [
    "allgather_async",
    "allreduce_async",
    "allreduce_async_",
    "alltoall_async",
    "barrier",
    "broadcast_async",
    "broadcast_async_",
    "gather_async",
    "grouped_allgather_async",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "recv_async",
    "recv_async_",
    "reduce_async",
    "reducescatter_async",
    "send_async",
    "sparse_allreduce_async",
    "synchronize",
]


def op_name(kind, name, set_id):
    return handles.auto_name(kind, set_id) if name is None else f"{kind}.{name}"


def _group(kind, name, tensors, set_id):
    """The tensors of a grouped call as a list, and the names that they and their group have."""
    tensors = list(tensors)
    for tensor in tensors:
        t.dtype_of(tensor)  # before any of them is submitted
    base = op_name(kind, name, set_id)
    return tensors, base, [f"{base}_{i + 1}of{len(tensors)}" for i in range(len(tensors))]


def synchronize(handle):
    """Waits for an operation and returns its output; None for a handle that is not pending.

    A grouped operation's output is a tuple, alltoall's is (tensor, received_splits).
    """
    return handles.finish(handle)


def poll(handle):
    """True when synchronize(handle) would return at once."""
    return handles.poll(handle)


# --- allreduce -----------------------------------------------------------------------------------


def submit_allreduce(
    tensor,
    output,
    name,
    op,
    prescale,
    postscale,
    set_id,
    *,
    compression=None,
    group=None,
    group_size=0,
    is_held=False,
    place=None,
):
    """Starts an allreduce of one dense tensor into another, or itself; returns a handle.

    Private to _hvd. output is what synchronize(handle) returns. compression: the runtime's name of it
    ("int8"). group, group_size, is_held: hvd_tensor's. place: t.where(tensor) when it was created, if not
    now.
    """
    dtype = t.dtype_of(tensor)
    if output is tensor and t.is_plain(tensor):  # the path of every gradient, so the shortest one
        source = work = keep = tensor
        place = place or t.where(tensor)
    else:
        source = t.plain(tensor)
        if output is tensor:
            t.check_writable(output)
            work = source
        else:
            work = output if t.is_plain(output) else torch.empty_like(source)
        keep = (source, work)
        place = t.where(tensor)  # copies run in the current stream
    result = (lambda h: output) if work is output else t.copy_back(output, work, place)
    return _native.allreduce(
        handles._pending,
        (keep, result, place),
        t.describe(source, work, dtype, name, place, group, group_size, is_held),
        op,
        prescale,
        postscale,
        set_id,
        compression,
    )


def allreduce_async(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    *,
    compression=None,
):
    """Starts reducing a tensor over all ranks into a new tensor; returns a handle.

    compression: the runtime's name of a codec ("int8"), the same on all ranks.
    """
    op = check_reduce_op(reduce_op_from(op, average))
    t.check_complex(tensor, op)
    set_id = process_set_id(process_set)
    t.dtype_of(tensor)
    source = t.plain(tensor.detach())
    args = (op_name("allreduce", name, set_id), op, prescale_factor, postscale_factor, set_id)
    return submit_allreduce(source, torch.empty_like(source), *args, compression=compression)


def allreduce_async_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Starts reducing a tensor over all ranks in place; returns a handle."""
    op = check_reduce_op(reduce_op_from(op, average))
    t.check_complex(tensor, op)
    set_id = process_set_id(process_set)
    args = (op_name("allreduce", name, set_id), op, prescale_factor, postscale_factor, set_id)
    return submit_allreduce(tensor, tensor, *args)


def _grouped_allreduce(
    tensors, outputs_of, name, op, prescale_factor, postscale_factor, process_set, compression=None
):
    set_id = process_set_id(process_set)
    tensors, base, names = _group("grouped_allreduce", name, tensors, set_id)
    for tensor in tensors:
        t.check_complex(tensor, op)
    outputs = outputs_of(tensors)
    return handles.group(
        submit_allreduce(
            tensor.detach() if output is not tensor else tensor,
            output,
            one,
            op,
            prescale_factor,
            postscale_factor,
            set_id,
            compression=compression,
            group=base,
            group_size=len(tensors),
            is_held=True,
        )
        for tensor, output, one in zip(tensors, outputs, names)
    )


def grouped_allreduce_async(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    *,
    compression=None,
):
    """Starts reducing a list of tensors, all or none, into new tensors; returns one handle."""
    op = check_reduce_op(reduce_op_from(op, average))

    def outputs_of(tensors):
        return [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in tensors]

    args = (name, op, prescale_factor, postscale_factor, process_set, compression)
    return _grouped_allreduce(tensors, outputs_of, *args)


def grouped_allreduce_async_(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Starts reducing a list of tensors, all or none, in place; returns one handle."""
    op = check_reduce_op(reduce_op_from(op, average))

    def outputs_of(tensors):
        for tensor in tensors:
            t.check_writable(tensor)
        return tensors

    args = (name, op, prescale_factor, postscale_factor, process_set)
    return _grouped_allreduce(tensors, outputs_of, *args)


def sparse_allreduce_async(tensor, name=None, op=None, process_set=global_process_set):
    """Starts adding or averaging a sparse tensor over all ranks.

    Returns a function, as Horovod does, which waits and returns the sparse result: the indices and
    values of all ranks one after the other (not coalesced).
    """
    op = Average if op is None else op
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"sparse_allreduce_async has op=hvd.Average and hvd.Sum, not {op!r}; use tensor.to_dense()"
        )
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        what = getattr(tensor, "layout", type(tensor).__name__)
        raise ValueError(f"sparse_allreduce_async takes a tensor of layout torch.sparse_coo, not {what}")
    set_id = process_set_id(process_set)
    base = op_name("sparse_allreduce", name, set_id)
    rows = tensor._indices().t()
    pending = handles.group(
        _submit_gathered(_native.allgather, part, f"{base}.{what}", set_id, base, 2)
        for part, what in ((rows, "indices"), (tensor._values(), "values"))
    )
    n_ranks = process_set.size()

    def wait():
        indices, values = handles.finish(pending)
        if op == Average:
            values = values / n_ranks
        return torch.sparse_coo_tensor(indices.t(), values, tensor.size(), dtype=tensor.dtype)

    return wait


# --- results that the runtime allocates ------------------------------------------------------------


def _submit_gathered(function, tensor, name, set_id, group=None, group_size=0, between=()):
    """Starts an operation whose result is as long as the runtime finds; returns a handle.

    One of a group is held: see handles.group().
    """
    dtype = t.dtype_of(tensor)
    t.check_rows(tensor, name)
    source = t.plain(tensor.detach())
    place = t.where(source)
    return handles.submit(
        function,
        source,
        lambda h: t.take(h, source, dtype),
        t.describe(source, None, dtype, name, place, group, group_size, group is not None),
        *between,
        set_id,
        place=place,
    )


def _submit_group(function, kind, tensors, name, process_set, between=()):
    set_id = process_set_id(process_set)
    tensors, base, names = _group(kind, name, tensors, set_id)
    for tensor in tensors:
        if tensor.dim() == 0:
            raise ValueError(f'tensor "{base}": {kind} of a rank-zero tensor is not supported')
    return handles.group(
        _submit_gathered(function, tensor, one, set_id, base, len(tensors), between)
        for tensor, one in zip(tensors, names)
    )


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts concatenating all ranks' tensors along dimension 0; returns a handle."""
    set_id = process_set_id(process_set)
    return _submit_gathered(_native.allgather, tensor, op_name("allgather", name, set_id), set_id)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Starts an allgather of each of a list of tensors, all or none; returns one handle."""
    return _submit_group(_native.allgather, "grouped_allgather", tensors, name, process_set)


def _check_scatter_op(op, tensors):
    if op == Adasum:
        raise NotImplementedError("reducescatter does not support op=hvd.Adasum; use hvd.allreduce")
    for tensor in tensors:
        t.check_complex(tensor, op)
    return check_reduce_op(op)


def reducescatter_async(
    tensor,
    name=None,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """Starts reducing a tensor of which each rank gets its rows of dimension 0; returns a handle.

    The first dim0 % size ranks get one row more.
    """
    between = (_check_scatter_op(op, [tensor]), prescale_factor, postscale_factor)
    set_id = process_set_id(process_set)
    name = op_name("reducescatter", name, set_id)
    return _submit_gathered(_native.reducescatter, tensor, name, set_id, between=between)


def grouped_reducescatter_async(
    tensors,
    name=None,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """Starts a reducescatter of each of a list of tensors, all or none; returns one handle."""
    tensors = list(tensors)
    between = (_check_scatter_op(op, tensors), prescale_factor, postscale_factor)
    return _submit_group(
        _native.reducescatter, "grouped_reducescatter", tensors, name, process_set, between
    )


def gather_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts an allgather whose result only the root rank gets, others one of no rows; returns a handle."""
    set_id = process_set_id(process_set)
    return _submit_gathered(
        _native.gather, tensor, op_name("gather", name, set_id), set_id, between=(root_rank,)
    )


def splits_from(splits):
    """Rows for each rank as a tuple of ints, and the dtype that received_splits will have."""
    if splits is None:
        return None, torch.int32
    dtype = torch.int32
    if isinstance(splits, torch.Tensor):
        dtype = splits.dtype
        if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
            raise ValueError(f"alltoall expects splits to contain 32-bit integer elements, not {dtype}")
        splits = splits.tolist()
    splits = tuple(splits) if hasattr(splits, "__iter__") else (splits,)
    rows = integers(splits)
    if rows is None:
        raise ValueError(f"alltoall expects splits to contain integer elements, not {list(splits)!r}")
    return rows, dtype


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Starts sending splits[i] rows of dimension 0 to the i-th rank; returns a handle.

    splits: a list or tensor of integers, one for each rank; None: even. synchronize(handle) returns
    (tensor, received_splits): what came, in the order of ranks, and how many rows each has sent.
    """
    set_id = process_set_id(process_set)
    rows, splits_dtype = splits_from(splits)
    splits_device = splits.device if isinstance(splits, torch.Tensor) else None
    dtype = t.dtype_of(tensor)
    t.check_rows(tensor, name or "alltoall")
    source = t.plain(tensor.detach())
    place = t.where(source)

    def result(handle):
        received = _native.received_splits(handle)
        output = t.take(handle, source, dtype)
        if output is None:
            return None
        return output, torch.tensor(received, dtype=splits_dtype, device=splits_device)

    description = t.describe(source, None, dtype, op_name("alltoall", name, set_id), place)
    return handles.submit(_native.alltoall, source, result, description, rows, set_id, place=place)


# --- one rank to others --------------------------------------------------------------------------


def _submit_into(function, tensor, output, name, *args):
    """Starts an operation that writes output, which may be the tensor itself; returns a handle."""
    dtype = t.dtype_of(tensor)
    source = t.plain(tensor)
    place = t.where(source)
    if output is tensor and source is not tensor:
        t.check_writable(output)
        work, result = source, t.copy_back(output, source, place)
    else:
        work, result = output, lambda h: output
    description = t.describe(source, work, dtype, name, place)
    return handles.submit(function, (source, work), result, description, *args, place=place)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts sending the root rank's tensor to all ranks, into a new tensor; returns a handle."""
    set_id = process_set_id(process_set)
    t.dtype_of(tensor)
    source = t.plain(tensor.detach())
    args = (op_name("broadcast", name, set_id), root_rank, set_id)
    return _submit_into(_native.broadcast, source, torch.empty_like(source), *args)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts sending the root rank's tensor to all ranks, in place; returns a handle."""
    set_id = process_set_id(process_set)
    return _submit_into(
        _native.broadcast, tensor, tensor, op_name("broadcast", name, set_id), root_rank, set_id
    )


def reduce_async(
    tensor,
    root_rank,
    name=None,
    op=Average,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Starts an allreduce for the root rank alone; others get an empty tensor. Returns a handle."""
    op = check_reduce_op(op)
    t.check_complex(tensor, op)
    set_id = process_set_id(process_set)
    t.dtype_of(tensor)
    source = t.plain(tensor.detach())
    output = torch.empty_like(source) if _native.rank() == root_rank else source.new_empty(0)
    args = (op_name("reduce", name, set_id), op, prescale_factor, postscale_factor, root_rank, set_id)
    return _submit_into(_native.reduce, source, output, *args)


def _p2p_name(tensor, src, dst, name, is_written=False):
    """Automatic names count the transfers of one direction between two ranks: both see those alone.

    What is refused here is not counted, or the two ranks would disagree from then on.
    """
    t.dtype_of(tensor)
    if is_written:
        t.check_writable(tensor)
    src, dst = operator.index(src), operator.index(dst)
    return handles.auto_name(f"p2p.{src}.{dst}") if name is None else f"p2p.{name}"


def send_async(tensor, dst_rank, name=None):
    """Starts sending a tensor to one rank, which calls recv under the same name; returns a handle.

    tensor: dense, of any shape and any dtype that allreduce takes; it must not be changed before
    synchronize(handle). dst_rank: another rank of the world (process sets have no ranks of their own
    here). name: without one, the n-th send to a rank meets its n-th recv from this rank.

    A rank may have any number of sends and receives pending, in any order. In host memory those with
    different ranks move at the same time; those with one rank follow each other.

    ValueError: dst_rank is this rank itself or not in the world. HorovodInternalError from
    synchronize: the receiver's shape, dtype or device type differs ("Mismatched ..."; it gets the same
    error, and the world continues), or a rank was lost.
    """
    name = _p2p_name(tensor, _native.rank(), dst_rank, name)
    return _submit_into(_native.send, tensor.detach(), None, name, dst_rank)


def recv_async_(tensor, src_rank, name=None):
    """Starts receiving one rank's tensor of this shape and dtype, in place; returns a handle.

    tensor: also one that is not contiguous, or a parameter. The rest is as in send_async.
    """
    name = _p2p_name(tensor, src_rank, _native.rank(), name, is_written=True)
    return _submit_into(_native.recv, tensor, tensor, name, src_rank)


def recv_async(tensor, src_rank, name=None):
    """Starts receiving one rank's tensor of tensor's shape and dtype into a new one; returns a handle.

    The rest is as in send_async.
    """
    t.dtype_of(tensor)
    output = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return recv_async_(output, src_rank, name)


# --- without data --------------------------------------------------------------------------------


def barrier(process_set=global_process_set):
    """Returns when all ranks of the process set have called it."""
    handles.barrier(process_set_id(process_set))


def join(device=-1):
    """For a rank without more data: until all have joined it takes part in allreduces with zeros.

    Returns the rank that joined last. device: the GPU for the zeros of a rank that has had no tensors on
    one; default: the GPU of its local rank.
    """
    return handles.join(device)
