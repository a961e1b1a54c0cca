# SPDX-License-Identifier: Apache-2.0
"""torch.compile() of DDP models over the back end "hvd". The compilers used here need none of C++."""

import sys

import horovod.torch.distributed  # noqa: F401  (makes the name known)
import torch
import torch.distributed as dist
from checks import check, main
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("hvd")
torch.set_num_threads(1)
R, N = dist.get_rank(), dist.get_world_size()


@check
def the_compiler_is_not_imported_before_it_is_used():
    assert "torch._dynamo.trace_rules" not in sys.modules


def net():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def train(model, run):
    """run: the model, compiled or not. Returns parameters and buffers."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    made = torch.Generator().manual_seed(R)
    for _ in range(3):
        optimizer.zero_grad()
        run(torch.randn(5, 6, generator=made)).pow(2).mean().backward()
        optimizer.step()
    return [t.detach().clone() for t in (*model.parameters(), *model.buffers())]


def is_as_without(got):
    model = net()
    for a, b in zip(got, train(model, DDP(model)), strict=True):
        assert torch.allclose(a, b, atol=1e-6), (a, b)


@check
def compiled_ddp_models_with_batch_norm_train():
    """Each forward pass broadcasts the buffers, by a call of C++ inside of the compiled region."""
    for backend in ("eager", "aot_eager"):
        model = net()
        is_as_without(train(model, torch.compile(DDP(model), backend=backend)))


@check
def ddp_of_compiled_models_trains():
    model = net()
    is_as_without(train(model, DDP(torch.compile(model, backend="aot_eager"))))


@check
def compiled_functions_call_collectives():
    @torch.compile(backend="eager")
    def mean_plus_one(x):
        y = x * 2
        dist.all_reduce(y)
        return y / N + 1

    mean = (N - 1) / 2
    assert mean_plus_one(torch.full((2,), float(R))).tolist() == [2 * mean + 1] * 2


@check
def the_end():
    dist.barrier()
    dist.destroy_process_group()


main(R)
