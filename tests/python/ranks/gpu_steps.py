# SPDX-License-Identifier: Apache-2.0
"""What checks of horovod.torch with tensors on GPUs share: tensors, calls of _native, an optimizer's step."""

import ctypes

import horovod.torch as hvd
import numpy as np
import torch
from fake_cuda import GPU, Tensor, to_gpu

hvd.init()
R, N = hvd.rank(), hvd.size()


def same(tensor, expected):
    assert isinstance(tensor, Tensor), "it is not on the GPU"
    np.testing.assert_allclose(tensor.cpu().float().numpy(), np.asarray(expected, np.float32), rtol=1e-6)


def on_gpu(*values, dtype=torch.float32):
    return to_gpu(torch.tensor(values, dtype=dtype))


WAITS = ("wait", "wait_on_stream", "wait_many")


def is_done(which):
    GPU.enter()
    return GPU.cu.cuStreamQuery(ctypes.c_void_p(which)) == 0


def parameters(n, elements=10, gpu_from=0):
    """n of them, on the GPU from number gpu_from on; their gradients are there already, and are added to."""
    made = []
    for i in range(n):
        data = torch.zeros(elements)
        p = torch.nn.Parameter(to_gpu(data) if i >= gpu_from else data)
        p.grad = to_gpu(data) if i >= gpu_from else torch.zeros(elements)
        made.append((f"p{i}", p))
    return made


def optimizer_of(named, **options):
    base = torch.optim.SGD([p for _, p in named], lr=1.0)
    return hvd.DistributedOptimizer(base, named, op=hvd.Sum, **options)


def backward(named):
    """The gradient of parameter i is (i + 1) * (R + 1) everywhere."""
    loss = 0
    for i, (_, p) in enumerate(named):
        loss = loss + (p.as_subclass(torch.Tensor) * float((i + 1) * (R + 1))).sum()
    loss.backward()


def check_step(named):
    total = N * (N + 1) / 2
    for i, (name, p) in enumerate(named):
        got = p.detach()
        got = got.cpu() if isinstance(got, Tensor) else got
        assert np.allclose(got.numpy(), -(i + 1) * total), f"{name}: {got[:3]} not {-(i + 1) * total}"
