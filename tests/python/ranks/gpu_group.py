# SPDX-License-Identifier: Apache-2.0
"""A group of torch.distributed with tensors on (fake) GPUs, and what its checks share."""

import horovod.torch.distributed  # noqa: F401  (makes the name known)
import torch
import torch.distributed as dist
from fake_cuda import GPU, stream, to_gpu
from gpu_steps import is_done

dist.init_process_group("hvd", init_method="hvd://")
# torch checks the types of tensors for replaced functions, so the checks call the group itself.
GROUP = dist.distributed_c10d._get_default_group()


def zeros(*shape):
    return to_gpu(torch.zeros(*shape))


def wait(work):
    assert work.wait() is True


def allreduce(x, op=dist.ReduceOp.SUM):
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return GROUP.allreduce([x], options)


def sum_of(x, first, release):
    """A sum is the first work of the stream; it runs when the stream is released."""
    with stream(first):
        GPU.fake_wait(first, release)
        return allreduce(x)


def follows_and_continues(second, release):
    """The stream second has that work before it; then the work is released."""
    assert not GPU.fake_soon(lambda: is_done(second)), "it has not waited"
    release.set()
