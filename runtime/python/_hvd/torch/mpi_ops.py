# SPDX-License-Identifier: Apache-2.0
"""Collectives on torch tensors (Horovod's name for this module; there is no MPI in it).

A tensor goes to the runtime as an address, a shape and a dtype; `handles` keeps it alive until the
operation has ended. Tensors that are not contiguous travel as a contiguous copy and, in place, are
written back at the end. Operations of equal name on all ranks form one collective, so automatic
names are counted per kind and agree as long as all ranks call in the same order.
"""

import torch

from _hvd import _native, handles
from _hvd.absent import absent_function
from _hvd.basics import Average, check_reduce_op, reduce_op_from
from _hvd.process_sets import global_process_set, process_set_id
from _hvd.torch.compression import Compression

# torch dtype -> enum hvd_dtype
_DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bool: 9,
    torch.bfloat16: 10,
}


def _dtype_of(tensor):
    """The runtime's number of the tensor's dtype; refuses tensors that cannot travel."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise NotImplementedError(
            "sparse tensors are not supported yet; use sparse_as_dense=True or tensor.to_dense()"
        )
    if tensor.device.type != "cpu":
        raise NotImplementedError(
            f"tensors on {tensor.device.type} are not supported yet (this one is on "
            f"{tensor.device}); move it with tensor.cpu()"
        )
    number = _DTYPES.get(tensor.dtype)
    if number is None:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    return number


def _name(kind, name):
    return handles.auto_name(kind) if name is None else f"{kind}.{name}"


def _submit_allreduce(keep, result, tensor, output, name, op, prescale, postscale, set_id):
    return handles.submit(
        _native.allreduce,
        keep,
        result,
        name,
        tensor.data_ptr(),
        output.data_ptr(),
        _dtype_of(tensor),
        tuple(tensor.shape),
        op,
        prescale,
        postscale,
        set_id,
    )


def _copy_back(destination, source):
    def result(handle):
        with torch.no_grad():
            destination.copy_(source)
        return destination

    return result


# --- allreduce -----------------------------------------------------------------------------------


def allreduce_async(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Starts averaging or summing over all ranks into a new tensor; returns a handle."""
    op = check_reduce_op(reduce_op_from(op, average))
    set_id = process_set_id(process_set)
    _dtype_of(tensor)
    source = tensor.detach().contiguous()
    output = torch.empty_like(source)
    args = (_name("allreduce", name), op, prescale_factor, postscale_factor, set_id)
    return _submit_allreduce((source, output), lambda h: output, source, output, *args)


def allreduce_async_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Starts averaging or summing over all ranks in place; returns a handle."""
    op = check_reduce_op(reduce_op_from(op, average))
    set_id = process_set_id(process_set)
    _dtype_of(tensor)
    args = (_name("allreduce", name), op, prescale_factor, postscale_factor, set_id)
    if tensor.is_contiguous():
        return _submit_allreduce(tensor, lambda h: tensor, tensor, tensor, *args)
    work = tensor.detach().contiguous()
    return _submit_allreduce((tensor, work), _copy_back(tensor, work), work, work, *args)


class HorovodAllreduce(torch.autograd.Function):
    """allreduce with a gradient: the same allreduce of the gradient."""

    @staticmethod
    def forward(ctx, tensor, average, name, op, prescale_factor, postscale_factor, process_set):
        ctx.average = average
        ctx.op = op
        ctx.prescale_factor = prescale_factor
        ctx.postscale_factor = postscale_factor
        ctx.process_set = process_set
        return synchronize(
            allreduce_async(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
        )

    @staticmethod
    def backward(ctx, grad_output):
        grad = allreduce(
            grad_output,
            average=ctx.average,
            op=ctx.op,
            prescale_factor=ctx.prescale_factor,
            postscale_factor=ctx.postscale_factor,
            process_set=ctx.process_set,
        )
        return grad, None, None, None, None, None, None


def allreduce(
    tensor,
    average=None,
    name=None,
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Average (op=Average, the default) or sum of a tensor over all ranks, as a new tensor."""
    compressed, ctx = compression.compress(tensor)
    reduced = HorovodAllreduce.apply(
        compressed, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return compression.decompress(reduced, ctx)


def allreduce_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Average or sum of a tensor over all ranks, in place."""
    return synchronize(
        allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    )


# --- allgather -----------------------------------------------------------------------------------


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts concatenating all ranks' tensors along dimension 0; returns a handle."""
    set_id = process_set_id(process_set)
    dtype = _dtype_of(tensor)
    source = tensor.detach().contiguous()

    def result(ended):
        at, shape = _native.result(ended)
        output = source.new_empty(shape)
        _native.copy(output.data_ptr(), at, output.numel() * output.element_size())
        return output

    args = (_name("allgather", name), source.data_ptr(), dtype, tuple(source.shape), set_id)
    return handles.submit(_native.allgather, source, result, *args)


class HorovodAllgather(torch.autograd.Function):
    """allgather with a gradient: this rank's rows of the averaged gradient (as Horovod)."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.dim = tensor.shape[0] if tensor.dim() else 0
        ctx.process_set = process_set
        return synchronize(allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        grad_reduced = allreduce(grad_output, op=Average, process_set=ctx.process_set)
        dims = allgather(torch.tensor([ctx.dim]), process_set=ctx.process_set).tolist()
        rank = ctx.process_set.rank()
        start = sum(dims[:rank])
        return grad_reduced.narrow(0, start, ctx.dim), None, None


def allgather(tensor, name=None, process_set=global_process_set):
    """All ranks' tensors one after the other along dimension 0, in rank order."""
    return HorovodAllgather.apply(tensor, name, process_set)


# --- broadcast -----------------------------------------------------------------------------------


def _submit_broadcast(keep, result, tensor, output, name, root_rank, set_id):
    return handles.submit(
        _native.broadcast,
        keep,
        result,
        name,
        tensor.data_ptr(),
        output.data_ptr(),
        _dtype_of(tensor),
        tuple(tensor.shape),
        root_rank,
        set_id,
    )


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts sending the root rank's tensor to all ranks, into a new tensor; returns a handle."""
    set_id = process_set_id(process_set)
    _dtype_of(tensor)
    source = tensor.detach().contiguous()
    output = torch.empty_like(source)
    args = (_name("broadcast", name), root_rank, set_id)
    return _submit_broadcast((source, output), lambda h: output, source, output, *args)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts sending the root rank's tensor to all ranks, in place; returns a handle."""
    set_id = process_set_id(process_set)
    _dtype_of(tensor)
    args = (_name("broadcast", name), root_rank, set_id)
    if tensor.is_contiguous():
        return _submit_broadcast(tensor, lambda h: tensor, tensor, tensor, *args)
    work = tensor.detach().contiguous()
    return _submit_broadcast((tensor, work), _copy_back(tensor, work), work, work, *args)


class HorovodBroadcast(torch.autograd.Function):
    """broadcast with a gradient: the averaged gradient on the root, zero elsewhere (as Horovod)."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        grad_reduced = allreduce(grad_output, op=Average, process_set=ctx.process_set)
        if _native.rank() != ctx.root_rank:
            grad_reduced = grad_reduced * 0
        return grad_reduced, None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The root rank's tensor, as a new tensor."""
    return HorovodBroadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """The root rank's tensor, in place."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


# --- the rest ------------------------------------------------------------------------------------


def barrier(process_set=global_process_set):
    """Returns when all ranks have called it."""
    handles.barrier(process_set_id(process_set))


def poll(handle):
    """True when synchronize(handle) would return at once."""
    return handles.poll(handle)


def synchronize(handle):
    """Waits for an operation and returns its output; None for a handle that is not pending."""
    return handles.finish(handle)


def _absent(name, instead=""):
    return absent_function("hvd", name, instead)


alltoall = _absent("alltoall")
alltoall_async = _absent("alltoall_async")
grouped_allgather = _absent("grouped_allgather", "call hvd.allgather for each tensor")
grouped_allgather_async = _absent("grouped_allgather_async", "call hvd.allgather_async")
grouped_allreduce = _absent("grouped_allreduce", "call hvd.allreduce for each tensor")
grouped_allreduce_ = _absent("grouped_allreduce_", "call hvd.allreduce_ for each tensor")
grouped_allreduce_async = _absent("grouped_allreduce_async", "call hvd.allreduce_async")
grouped_allreduce_async_ = _absent("grouped_allreduce_async_", "call hvd.allreduce_async_")
grouped_reducescatter = _absent("grouped_reducescatter")
grouped_reducescatter_async = _absent("grouped_reducescatter_async")
join = _absent("join")
reducescatter = _absent("reducescatter")
reducescatter_async = _absent("reducescatter_async")
sparse_allreduce_async = _absent("sparse_allreduce_async", "use tensor.to_dense()")

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]
