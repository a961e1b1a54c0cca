# SPDX-License-Identifier: Apache-2.0
"""Collectives that end before they return, and their gradients.

Gradients are Horovod's where it has them: allreduce's is the same allreduce of the gradient, those of
allgather and broadcast are averaged (the derivative of the mean of all ranks' losses), reducescatter's
with op=Sum is multiplied by the number of ranks (so that it equals allreduce's), alltoall's is sent back to
the ranks of the rows. Different: the gradient of Min, Max and Product is their derivative, where Horovod
reduces the gradient with the same operation. Operations that Horovod lacks (reduce, gather, send, recv)
have the derivative of the sum of all ranks' losses.

All ranks of the process set must run backward(), for each of these takes part in it; a rank whose loss
does not use the output has a gradient of zeros. The gradient's operations have the names of the forward
ones with ".grad", so that ranks agree on them in whatever order backward() reaches them.
"""

import torch

from _hvd import _native, handles
from _hvd.basics import Average, Max, Min, Product, Sum, reduce_op_from
from _hvd.process_sets import global_process_set, process_set_id
from _hvd.torch import submit
from _hvd.torch.compression import Compression, caster, wire_of
from _hvd.torch.submit import synchronize

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "gather",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "recv",
    "recv_",
    "reduce",
    "reducescatter",
    "send",
]


_SELECTING = (Min, Max, Product)  # operations whose gradient is not themselves


def _needs_grad(*tensors):
    return torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in tensors)


def _grad_name(kind, name, process_set):
    """Names of the operation and of its gradient, which has the same number where that is automatic."""
    if name is None:
        name = handles.auto_name(kind, process_set_id(process_set))[len(kind) + 1 :]
    return name, f"{name}.grad"


# --- allreduce -----------------------------------------------------------------------------------


def _derivative(ctx, grad, x, name):
    """Gradient of x for one allreduce with Min, Max or Product; ties share it."""
    factors = (ctx.prescale_factor, ctx.postscale_factor)
    args = {"process_set": ctx.process_set}
    grad = allreduce(grad, op=Sum, name=name, **args) * factors[0] * factors[1]
    scaled = x * factors[0]
    if ctx.op == Product:
        everyone = allgather(scaled.unsqueeze(0), name=f"{name}.all", **args)
        me = ctx.process_set.rank()
        return grad * torch.cat([everyone[:me], everyone[me + 1 :]]).prod(dim=0)
    is_mine = (scaled == allreduce(scaled, op=ctx.op, name=f"{name}.best", **args)).to(grad.dtype)
    return grad * is_mine / allreduce(is_mine, op=Sum, name=f"{name}.ties", **args)


class _Allreduce(torch.autograd.Function):
    """allreduce with a gradient. codec: the codec for the tensor and for its gradient."""

    @staticmethod
    def forward(ctx, tensor, codec, name, op, prescale_factor, postscale_factor, process_set):
        name, ctx.grad_name = _grad_name("allreduce", name, process_set)
        ctx.codec = codec
        ctx.op = op
        ctx.prescale_factor = prescale_factor
        ctx.postscale_factor = postscale_factor
        ctx.process_set = process_set
        if op in _SELECTING:
            ctx.save_for_backward(tensor)
        args = (None, name, op, prescale_factor, postscale_factor, process_set)
        return synchronize(submit.allreduce_async(tensor, *args, compression=codec))

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.op in _SELECTING:
            grad = _derivative(ctx, grad_output, *ctx.saved_tensors, ctx.grad_name)
        else:
            args = (ctx.op, ctx.prescale_factor, ctx.postscale_factor, ctx.process_set)
            grad = _Allreduce.apply(grad_output, ctx.codec, ctx.grad_name, *args)
        return grad, None, None, None, None, None, None


class HorovodAllreduce(torch.autograd.Function):
    """The same, by Horovod's name and arguments."""

    @staticmethod
    def forward(ctx, tensor, average, name, op, prescale_factor, postscale_factor, process_set):
        args = (reduce_op_from(op, average), prescale_factor, postscale_factor, process_set)
        return _Allreduce.forward(ctx, tensor, None, name, *args)

    @staticmethod
    def backward(ctx, grad_output):
        return _Allreduce.backward(ctx, grad_output)


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
    """Average (op=Average, the default), sum ... of a tensor over all ranks, as a new tensor."""
    args = (name, reduce_op_from(op, average), prescale_factor, postscale_factor, process_set)
    codec, ctx = wire_of(compression, name is not None), None
    if codec is None:
        tensor, ctx = compression.compress(tensor)
    if _needs_grad(tensor):
        reduced = _Allreduce.apply(tensor, codec, *args)
    else:
        reduced = synchronize(submit.allreduce_async(tensor, None, *args, compression=codec))
    return reduced if codec is not None else compression.decompress(reduced, ctx)


def allreduce_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """Average, sum ... of a tensor over all ranks, in place."""
    op = reduce_op_from(op, average)
    args = (None, name, op, prescale_factor, postscale_factor, process_set)
    return synchronize(submit.allreduce_async_(tensor, *args))


class _GroupedAllreduce(torch.autograd.Function):
    """grouped_allreduce with a gradient. codec: the codec for the tensors and for their gradients."""

    @staticmethod
    def forward(ctx, codec, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        name, ctx.grad_name = _grad_name("grouped_allreduce", name, process_set)
        ctx.codec = codec
        ctx.op = op
        ctx.prescale_factor = prescale_factor
        ctx.postscale_factor = postscale_factor
        ctx.process_set = process_set
        if op in _SELECTING:
            ctx.save_for_backward(*tensors)
        args = (None, name, op, prescale_factor, postscale_factor, process_set)
        return synchronize(submit.grouped_allreduce_async(tensors, *args, compression=codec))

    @staticmethod
    def backward(ctx, *grad_output):
        if ctx.op in _SELECTING:
            grads = [
                _derivative(ctx, grad, x, f"{ctx.grad_name}.{i}")
                for i, (grad, x) in enumerate(zip(grad_output, ctx.saved_tensors))
            ]
        else:
            args = (ctx.op, ctx.prescale_factor, ctx.postscale_factor, ctx.process_set)
            grads = _GroupedAllreduce.apply(ctx.codec, ctx.grad_name, *args, *grad_output)
        return (None, None, None, None, None, None, *grads)


class HorovodGroupedAllreduce(torch.autograd.Function):
    """The same, by Horovod's name and arguments."""

    @staticmethod
    def forward(ctx, average, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        args = (reduce_op_from(op, average), prescale_factor, postscale_factor, process_set)
        return _GroupedAllreduce.forward(ctx, None, name, *args, *tensors)

    @staticmethod
    def backward(ctx, *grad_output):
        return _GroupedAllreduce.backward(ctx, *grad_output)


def grouped_allreduce(
    tensors,
    average=None,
    name=None,
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """allreduce of each of a list of tensors, all or none of them; returns a list."""
    args = (name, reduce_op_from(op, average), prescale_factor, postscale_factor, process_set)
    codec = wire_of(compression, name is not None)
    tensors, contexts = list(tensors), []
    if codec is None and tensors:
        tensors, contexts = zip(*(compression.compress(x) for x in tensors))
    if _needs_grad(*tensors):
        reduced = _GroupedAllreduce.apply(codec, *args, *tensors)
    else:
        reduced = synchronize(submit.grouped_allreduce_async(tensors, None, *args, compression=codec))
    if codec is not None:
        return list(reduced)
    return [compression.decompress(x, ctx) for x, ctx in zip(reduced, contexts)]


def grouped_allreduce_(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """allreduce of each of a list of tensors in place, all or none of them; returns them."""
    op = reduce_op_from(op, average)
    args = (None, name, op, prescale_factor, postscale_factor, process_set)
    return synchronize(submit.grouped_allreduce_async_(tensors, *args))


# --- allgather, gather ---------------------------------------------------------------------------


def _rows_of_mine(ctx, grads, name):
    """This rank's rows of tensors that are concatenations of all ranks' rows; ctx.dims has their
    numbers."""
    mine = torch.tensor(ctx.dims, dtype=torch.int64).unsqueeze(0)
    everyones = allgather(mine, name=f"{name}.rows", process_set=ctx.process_set)
    starts = everyones[: ctx.process_set.rank()].sum(dim=0).tolist()
    return [grad.narrow(0, start, dim) for grad, start, dim in zip(grads, starts, ctx.dims)]


class HorovodAllgather(torch.autograd.Function):
    """allgather with a gradient: this rank's rows of the averaged gradient."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):
        name, ctx.grad_name = _grad_name("allgather", name, process_set)
        ctx.dims = [tensor.shape[0] if tensor.dim() else 0]
        ctx.process_set = process_set
        return synchronize(submit.allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        grad = allreduce(grad_output, op=Average, name=ctx.grad_name, process_set=ctx.process_set)
        return _rows_of_mine(ctx, [grad], ctx.grad_name)[0], None, None


def allgather(tensor, name=None, process_set=global_process_set):
    """All ranks' tensors one after the other along dimension 0, in rank order."""
    if _needs_grad(tensor):
        return HorovodAllgather.apply(tensor, name, process_set)
    return synchronize(submit.allgather_async(tensor, name, process_set))


class HorovodGroupedAllgather(torch.autograd.Function):
    """grouped_allgather with a gradient."""

    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        name, ctx.grad_name = _grad_name("grouped_allgather", name, process_set)
        ctx.dims = [x.shape[0] if x.dim() else 0 for x in tensors]
        ctx.process_set = process_set
        return synchronize(submit.grouped_allgather_async(tensors, name, process_set))

    @staticmethod
    def backward(ctx, *grad_output):
        grads = grouped_allreduce(grad_output, op=Average, name=ctx.grad_name, process_set=ctx.process_set)
        return (None, None, *_rows_of_mine(ctx, grads, ctx.grad_name))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather of each of a list of tensors, all or none of them; returns a tuple."""
    tensors = list(tensors)
    if _needs_grad(*tensors):
        return HorovodGroupedAllgather.apply(name, process_set, *tensors)
    return synchronize(submit.grouped_allgather_async(tensors, name, process_set))


class HorovodGather(torch.autograd.Function):
    """gather with a gradient: this rank's rows of the root's gradient."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        name, ctx.grad_name = _grad_name("gather", name, process_set)
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(submit.gather_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        mine = torch.tensor([ctx.rows])
        rows = allgather(mine, name=f"{ctx.grad_name}.rows", process_set=ctx.process_set).tolist()
        if _native.rank() != ctx.root_rank:
            rows = [0] * len(rows)
        grad, _ = alltoall(grad_output, rows, name=ctx.grad_name, process_set=ctx.process_set)
        return grad, None, None, None


def gather(tensor, root_rank, name=None, process_set=global_process_set):
    """allgather for the root rank alone; others get a tensor of no rows."""
    if _needs_grad(tensor):
        return HorovodGather.apply(tensor, root_rank, name, process_set)
    return synchronize(submit.gather_async(tensor, root_rank, name, process_set))


# --- broadcast, reduce ---------------------------------------------------------------------------


class HorovodBroadcast(torch.autograd.Function):
    """broadcast with a gradient: the averaged gradient on the root, zero elsewhere."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        name, ctx.grad_name = _grad_name("broadcast", name, process_set)
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(submit.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        grad = allreduce(grad_output, op=Average, name=ctx.grad_name, process_set=ctx.process_set)
        if _native.rank() != ctx.root_rank:
            grad = torch.zeros_like(grad)
        return grad, None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The root rank's tensor, as a new tensor."""
    if _needs_grad(tensor):
        return HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    return synchronize(submit.broadcast_async(tensor, root_rank, name, process_set))


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """The root rank's tensor, in place."""
    return synchronize(submit.broadcast_async_(tensor, root_rank, name, process_set))


class HorovodReduce(torch.autograd.Function):
    """reduce with a gradient: the root's gradient, scaled as the tensor was."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, op, prescale_factor, postscale_factor, process_set):
        name, ctx.grad_name = _grad_name("reduce", name, process_set)
        ctx.op = op
        ctx.factor = prescale_factor * postscale_factor
        ctx.shape = tensor.shape
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        args = (root_rank, name, op, prescale_factor, postscale_factor, process_set)
        return synchronize(submit.reduce_async(tensor, *args))

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.op not in (Average, Sum):
            raise NotImplementedError(
                "hvd.reduce has gradients with op=hvd.Average and hvd.Sum; use hvd.allreduce for others"
            )
        factor = ctx.factor / (ctx.process_set.size() if ctx.op == Average else 1)
        if _native.rank() != ctx.root_rank:
            grad_output = grad_output.new_zeros(ctx.shape)
        grad = broadcast(grad_output * factor, ctx.root_rank, ctx.grad_name, ctx.process_set)
        return grad, None, None, None, None, None, None


def reduce(
    tensor,
    root_rank,
    name=None,
    op=Average,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
):
    """allreduce for the root rank alone; others get an empty tensor."""
    args = (root_rank, name, op, prescale_factor, postscale_factor, process_set)
    if _needs_grad(tensor):
        return HorovodReduce.apply(tensor, *args)
    return synchronize(submit.reduce_async(tensor, *args))


# --- alltoall ------------------------------------------------------------------------------------


class HorovodAlltoall(torch.autograd.Function):
    """alltoall with a gradient: each row's is sent back to the rank of the row."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        name, ctx.grad_name = _grad_name("alltoall", name, process_set)
        output, received_splits = synchronize(submit.alltoall_async(tensor, splits, name, process_set))
        ctx.process_set = process_set
        ctx.received_splits = received_splits.tolist()
        if splits is None:
            return output
        ctx.mark_non_differentiable(received_splits)
        return output, received_splits

    @staticmethod
    def backward(ctx, grad_output, *dead_gradients):
        grad, _ = alltoall(grad_output, ctx.received_splits, ctx.grad_name, ctx.process_set)
        return grad, None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends splits[i] rows of dimension 0 to the i-th rank, and returns what came in rank order.

    splits: a list or tensor of integers, one for each rank; then the result is (tensor, received_splits).
    None: the same for all ranks, and the result is a tensor.
    """
    if _needs_grad(tensor):
        return HorovodAlltoall.apply(tensor, splits, name, process_set)
    output = synchronize(submit.alltoall_async(tensor, splits, name, process_set))
    return output[0] if splits is None else output


# --- reducescatter -------------------------------------------------------------------------------


def _scatter_factor(ctx):
    """What the gradient of a reducescatter is multiplied by: see the top of this file."""
    if ctx.op not in (Average, Sum):
        raise NotImplementedError("reducescatter has gradients with op=hvd.Average and hvd.Sum")
    return ctx.factor * (ctx.process_set.size() if ctx.op == Sum else 1)


class HorovodReducescatter(torch.autograd.Function):
    """reducescatter with a gradient: all ranks' gradients one after the other."""

    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        name, ctx.grad_name = _grad_name("reducescatter", name, process_set)
        ctx.op = op
        ctx.process_set = process_set
        ctx.factor = prescale_factor * postscale_factor
        args = (name, op, process_set, prescale_factor, postscale_factor)
        return synchronize(submit.reducescatter_async(tensor, *args))

    @staticmethod
    def backward(ctx, grad_output):
        grad = allgather(grad_output * _scatter_factor(ctx), ctx.grad_name, ctx.process_set)
        return grad, None, None, None, None, None


def reducescatter(
    tensor,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """This rank's rows (of dimension 0) of the average or sum of all ranks' tensors."""
    compressed, ctx = caster(compression, "reducescatter").compress(tensor)
    args = (name, op, process_set, prescale_factor, postscale_factor)
    if _needs_grad(compressed):
        reduced = HorovodReducescatter.apply(compressed, *args)
    else:
        reduced = synchronize(submit.reducescatter_async(compressed, *args))
    return compression.decompress(reduced, ctx)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """grouped_reducescatter with a gradient."""

    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        name, ctx.grad_name = _grad_name("grouped_reducescatter", name, process_set)
        ctx.op = op
        ctx.process_set = process_set
        ctx.factor = prescale_factor * postscale_factor
        args = (name, op, process_set, prescale_factor, postscale_factor)
        return synchronize(submit.grouped_reducescatter_async(tensors, *args))

    @staticmethod
    def backward(ctx, *grad_output):
        factor = _scatter_factor(ctx)
        grads = grouped_allgather([g * factor for g in grad_output], ctx.grad_name, ctx.process_set)
        return (None, None, None, None, None, *grads)


def grouped_reducescatter(
    tensors,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """reducescatter of each of a list of tensors, all or none of them; returns a list."""
    compression = caster(compression, "grouped_reducescatter")
    compressed = [compression.compress(x) for x in tensors]
    inputs = [x for x, _ in compressed]
    args = (name, op, process_set, prescale_factor, postscale_factor)
    if _needs_grad(*inputs):
        reduced = HorovodGroupedReducescatter.apply(*args, *inputs)
    else:
        reduced = synchronize(submit.grouped_reducescatter_async(inputs, *args))
    return [compression.decompress(x, ctx) for x, (_, ctx) in zip(reduced, compressed)]


# --- one rank to another -------------------------------------------------------------------------


class HorovodSend(torch.autograd.Function):
    """send with a gradient: what the receiver's backward() sends back."""

    @staticmethod
    def forward(ctx, tensor, dst_rank, name):
        ctx.save_for_backward(tensor)
        ctx.dst_rank = dst_rank
        ctx.grad_name = None if name is None else f"{name}.grad"
        synchronize(submit.send_async(tensor, dst_rank, name))
        return tensor.new_empty(0)

    @staticmethod
    def backward(ctx, grad_output):
        (tensor,) = ctx.saved_tensors
        return recv(tensor.detach(), ctx.dst_rank, ctx.grad_name), None, None


def send(tensor, dst_rank, name=None):
    """Sends a tensor to one rank, which calls recv under the same name; returns when it may be changed.

    See send_async. Where `tensor` requires a gradient, the result is an empty tensor whose backward()
    waits for the gradient from the receiver's backward(); add its sum() to the loss, or call backward()
    on that.
    """
    if _needs_grad(tensor):
        return HorovodSend.apply(tensor, dst_rank, name)
    synchronize(submit.send_async(tensor, dst_rank, name))
    return tensor.new_empty(0)


class HorovodRecv(torch.autograd.Function):
    """recv with a gradient, which is sent to the sender."""

    @staticmethod
    def forward(ctx, tensor, src_rank, name):
        ctx.src_rank = src_rank
        ctx.grad_name = None if name is None else f"{name}.grad"
        return synchronize(submit.recv_async(tensor, src_rank, name))

    @staticmethod
    def backward(ctx, grad_output):
        send(grad_output, ctx.src_rank, ctx.grad_name)
        return torch.zeros_like(grad_output), None, None


def recv(tensor, src_rank, name=None):
    """One rank's tensor as a new tensor, of the shape and dtype of `tensor`, whose elements do not count.

    See recv_async. Where `tensor` requires a gradient, backward() sends that of the result to the sender.
    """
    if _needs_grad(tensor):
        return HorovodRecv.apply(tensor, src_rank, name)
    return synchronize(submit.recv_async(tensor, src_rank, name))


def recv_(tensor, src_rank, name=None):
    """One rank's tensor, in place; returns `tensor`. See recv_async_."""
    return synchronize(submit.recv_async_(tensor, src_rank, name))
