# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks of a process set.

Forward: each rank's count, mean and sum of squared distances for every channel are exchanged by one
allgather and combined in rank order by Chan's formula, in the statistics' dtype (float64 for
float64 inputs, float32 otherwise), so all ranks get the same bits and nothing cancels as in
E[x^2] - E[x]^2. Backward: one allreduce exchanges the two sums that the gradient of the input needs.
Gradients of weight and bias are this rank's part, as of every other parameter.

Statistics are small, so they are sent from host memory: inputs may be on any device.

Names: a layer gets its number when it first meets the other ranks of its process set in a world, so
ranks may have built different models before. The order of these first meetings is the same on all ranks
by necessity. Each set counts for itself, because a rank may be in several.
"""

import sys
import weakref

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from _hvd import handles
from _hvd.basics import Sum
from _hvd.process_sets import global_process_set, process_set_id
from _hvd.torch.mpi_ops import allgather
from _hvd.torch.submit import op_name, submit_allreduce
from _hvd.torch.tensors import can_send

_names = weakref.WeakKeyDictionary()  # layer -> ((world, process set), its name there)


def _name_of(layer):
    set_id = process_set_id(layer.process_set)
    where, name = _names.get(layer, (None, None))
    if where != (handles.world, set_id):
        where, name = (handles.world, set_id), handles.auto_name("sync_batch_norm", set_id)
        _names[layer] = where, name
    return name


def _statistics_dtype(tensor):
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _per_channel(vector, like):
    """A vector of channels in a shape that spreads over (N, C, ...)."""
    return vector.view(1, -1, *[1] * (like.dim() - 2))


def _own_row(x):
    """count, mean and sum of squared distances of x in one row; zeros for an empty batch."""
    channels = x.shape[1]
    row = torch.zeros(1, 1 + 2 * channels, dtype=x.dtype, device=x.device)
    count = x.numel() // channels
    if count:
        variance, mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], unbiased=False)
        row[0, 0] = count
        row[0, 1 : 1 + channels] = mean
        row[0, 1 + channels :] = variance * count
    return row


def _combined(rows, channels):
    """Total count, mean and sum of squared distances of all rows."""
    counts = rows[:, :1]
    means, squares = rows[:, 1 : 1 + channels], rows[:, 1 + channels :]
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    return total, mean, (squares + counts * (means - mean) ** 2).sum(0)


def _sendable(tensor):
    return tensor if can_send(tensor) else tensor.cpu()


def _sum_of_all(tensor, name, process_set):
    """In place; HVD_COMPRESSION is for gradients of weights, and loses nothing of this."""
    set_id = process_set_id(process_set)
    args = (op_name("allreduce", name, set_id), Sum, 1.0, 1.0, set_id)
    return handles.finish(submit_allreduce(tensor, tensor, *args, compression="none"))


class _SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, eps, momentum, name, process_set):
        channels = x.shape[1]
        wide = x.to(_statistics_dtype(x))
        row = _sendable(_own_row(wide))
        rows = allgather(row, name=f"{name}.forward", process_set=process_set)
        total, mean, squares = (s.to(x.device) for s in _combined(rows, channels))
        # If the total is one, no rank has two: a rank with more need not wait for its GPU to check.
        if x.numel() // channels <= 1 and total.item() <= 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {list(x.shape)} "
                f"and {total.item():.0f} on all ranks together"
            )
        variance = squares / total
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
        if running_var is not None:
            unbiased = (squares / (total - 1)).to(running_var.dtype)
            running_var.mul_(1 - momentum).add_(unbiased, alpha=momentum)
        invstd = torch.rsqrt(variance + eps)
        ctx.save_for_backward(x, weight, mean, invstd, total)
        ctx.name, ctx.process_set = name, process_set
        if not x.numel():
            return torch.empty_like(x)
        affine = [None if p is None else p.to(wide.dtype) for p in (weight, bias)]
        return F.batch_norm(wide, mean, variance, *affine, False, 0.0, eps).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, weight, mean, invstd, total = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        dims = [d for d in range(x.dim()) if d != 1]
        dy = grad_output.to(mean.dtype)
        distance = x.to(mean.dtype) - _per_channel(mean, x)
        sum_dy = dy.sum(dims)
        sum_dy_distance = (dy * distance).sum(dims)
        grad_weight = sum_dy_distance * invstd if need_weight else None
        grad_bias = sum_dy.clone() if need_bias else None
        if not need_x:
            return None, grad_weight, grad_bias, None, None, None, None, None, None
        sums = _sendable(torch.stack([sum_dy, sum_dy_distance]))
        sums = _sum_of_all(sums, f"{ctx.name}.backward", ctx.process_set)
        mean_dy, mean_dy_distance = sums.to(x.device) / total
        grad = dy - _per_channel(mean_dy, x) - distance * _per_channel(mean_dy_distance * invstd**2, x)
        scale = invstd if weight is None else invstd * weight.to(invstd.dtype)
        grad_x = (grad * _per_channel(scale, x)).to(x.dtype)
        return grad_x, grad_weight, grad_bias, None, None, None, None, None, None


def _synchronised(layer, x, mean, var, momentum):
    """The layer's communication, outside of the graphs of torch.compile.

    The compiler is imported only if it is in use: that takes seconds.
    """
    if layer.process_set.size() == 1 and layer.process_set.rank() == 0:  # ValueError outside the set
        return F.batch_norm(x, mean, var, layer.weight, layer.bias, True, momentum, layer.eps)
    dynamo = sys.modules.get("torch._dynamo")
    apply = dynamo.disable(_SyncBatchNorm.apply) if dynamo else _SyncBatchNorm.apply
    args = (layer.weight, layer.bias, mean, var, layer.eps, momentum, _name_of(layer), layer.process_set)
    return apply(x, *args)


_synchronised._torchdynamo_disable = True  # the mark that the compiler itself sets


class SyncBatchNorm(_BatchNorm):
    """BatchNorm of (N, C, ...) inputs with the statistics of all ranks' batches.

    Arguments as torch.nn.BatchNorm2d's; process_set: the ranks among which statistics are shared. Its
    state_dict() is that of torch.nn.BatchNorm and torch.nn.SyncBatchNorm. Ranks may have batches of
    different sizes, empty ones too, as long as all call forward and backward. In evaluation no rank
    needs other ranks unless track_running_stats is False.
    """

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        process_set=global_process_set,
        **options,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)
        self.process_set = process_set

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm expected {self.num_features} channels in dimension 1 (got {input.shape[1]})"
            )
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")
        if not input.dtype.is_floating_point:
            raise ValueError(f"SyncBatchNorm expected floating point input (got {input.dtype})")

    def _momentum_now(self):
        """The weight of the new batch; counts the batch."""
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain mean of all batches
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    def forward(self, input):
        self._check_input_dim(input)
        momentum = self._momentum_now()
        uses_batch = self.training or (self.running_mean is None and self.running_var is None)
        updates = self.training and self.track_running_stats
        mean = self.running_mean if updates or not uses_batch else None
        var = self.running_var if updates or not uses_batch else None
        if uses_batch:
            return _synchronised(self, input, mean, var, momentum)
        return F.batch_norm(input, mean, var, self.weight, self.bias, False, momentum, self.eps)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_set=global_process_set):
        """Replaces each BatchNorm layer in module by a SyncBatchNorm with the same parameters.

        Call it before or after creating the optimizer: parameters stay the same objects. Returns module, or
        the new layer if module itself is a BatchNorm.
        """
        return _converted(cls, module, process_set, {})


def _converted(cls, module, process_set, done):
    if module in done:  # one layer in two places stays one
        return done[module]
    done[module] = new = _one_converted(cls, module, process_set)
    for name, child in list(module._modules.items()):
        if child is None:
            continue
        converted = _converted(cls, child, process_set, done)
        if converted is not child:
            new.add_module(name, converted)
    return new


def _one_converted(cls, module, process_set):
    if not isinstance(module, _BatchNorm):
        return module
    if any(isinstance(t, torch.nn.parameter.UninitializedTensorMixin) for t in _tensors(module)):
        raise ValueError(
            f"convert_sync_batchnorm: a {type(module).__name__} does not know its number of channels yet; "
            f"run one batch through the model first"
        )
    new = cls(
        module.num_features,
        module.eps,
        module.momentum,
        affine=False,
        track_running_stats=module.track_running_stats,
        process_set=process_set,
    )
    new.affine = module.affine
    new.weight, new.bias = module.weight, module.bias
    new.running_mean, new.running_var = module.running_mean, module.running_var
    new.num_batches_tracked = module.num_batches_tracked
    new.training = module.training
    if hasattr(module, "qconfig"):
        new.qconfig = module.qconfig
    return new


def _tensors(module):
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]


def convert_sync_batchnorm(module, process_set=global_process_set):
    """SyncBatchNorm.convert_sync_batchnorm() as a function."""
    return SyncBatchNorm.convert_sync_batchnorm(module, process_set)
