# SPDX-License-Identifier: Apache-2.0
"""Training by torch's own data parallel classes over the back end "hvd", against one process alone."""

import contextlib
import copy

import horovod.torch.distributed  # noqa: F401  (makes the name known)
import torch
import torch.distributed as dist
from checks import check, check_if, main
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("hvd")
torch.set_num_threads(1)
R, N = dist.get_rank(), dist.get_world_size()
STEPS, BATCH = 4, 4


class Net(nn.Module):
    def __init__(self, uses_both=True):
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.second = nn.Linear(16, 16)
        self.spare = nn.Linear(16, 16)
        self.last = nn.Linear(16, 3)
        self.uses_both = uses_both

    def forward(self, x, skips=False):
        x = torch.tanh(self.second(torch.tanh(self.first(x))))
        return self.last(x if skips or not self.uses_both else torch.tanh(self.spare(x)))


def net(**options):
    torch.manual_seed(7)
    return Net(**options)


def data():
    """STEPS batches of all ranks' rows together."""
    made = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        x = torch.randn(BATCH * N, 6, generator=made)
        yield x, torch.randn(BATCH * N, 3, generator=made)


def part(x):
    return x[R * BATCH : (R + 1) * BATCH]


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model, mine, optimizer=None, around=contextlib.nullcontext, **options):
    """mine: this rank's rows only. Returns the parameters."""
    optimizer = optimizer or optimizer_of(model)
    for x, y in data():
        x, y = (part(x), part(y)) if mine else (x, y)
        optimizer.zero_grad()
        with around():
            nn.functional.mse_loss(model(x, **options), y).backward()
        optimizer.step()
    return [p.detach().clone() for p in getattr(model, "module", model).parameters()]


def alone(**options):
    return train(net(**{k: v for k, v in options.items() if k == "uses_both"}), False)


def near(got, expected, tolerance=1e-5):
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert torch.allclose(a, b, atol=tolerance, rtol=1e-4), (a - b).abs().max()


@check
def ddp_equals_one_process():
    for options in (
        {},
        {"bucket_cap_mb": 0.0005},
        {"static_graph": True},
        {"gradient_as_bucket_view": True},
    ):
        near(train(DDP(net(), **options), True), alone())


class Phases(nn.Module):
    """Complex parameters among others, as in models of signals."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(6, 4)
        self.turn = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))
        self.wide = nn.Parameter(torch.randn(3, dtype=torch.complex128))

    def forward(self, x):
        return (self.first(x).to(torch.complex64) @ self.turn * self.wide).abs().float()


@check
def ddp_of_complex_parameters_equals_one_process():
    for options in ({}, {"bucket_cap_mb": 0.00001}):
        torch.manual_seed(R)
        near(train(DDP(Phases(), **options), True), train(Phases(), False))


@check
def ddp_with_unused_parameters():
    model = DDP(net(), find_unused_parameters=True)
    reference = net()
    near(train(model, True, skips=True), train(reference, False, skips=True))
    # of which a part is used by one rank only
    optimizer = optimizer_of(model)
    x, y = next(data())
    optimizer.zero_grad()
    nn.functional.mse_loss(model(part(x), skips=R == 0), part(y)).backward()
    assert model.module.spare.weight.grad is not None


@check
def ddp_comm_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for hook, tolerance in ((default_hooks.allreduce_hook, 1e-5), (default_hooks.fp16_compress_hook, 0.02)):
        model = DDP(net())
        model.register_comm_hook(None, hook)
        near(train(model, True), alone(), tolerance)
    model = DDP(net())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, True)
    everyone = [None] * N
    dist.all_gather_object(everyone, [p.sum().item() for p in model.parameters()])
    assert all(e == everyone[0] for e in everyone)


@check
def ddp_joins_uneven_inputs():
    from torch.distributed.algorithms.join import Join

    model = DDP(net())
    optimizer = optimizer_of(model)
    n = 0
    with Join([model]):
        for x, y in list(data())[: 2 + R % 2]:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(part(x)), part(y)).backward()
            optimizer.step()
            n += 1
    assert n == 2 + R % 2
    dist.barrier()


@check
def ddp_broadcasts_weights_and_buffers():
    torch.manual_seed(R)
    model = DDP(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)))
    model(part(next(data())[0]))
    seen = [torch.empty(4) for _ in range(N)]
    model._sync_buffers()
    dist.all_gather(seen, model.module[1].running_mean)
    assert all(torch.equal(s, seen[0]) for s in seen)
    torch.manual_seed(0)
    near(list(model.module[0].parameters()), list(nn.Linear(6, 4).parameters()))


@check
def ddp_reduces_sparse_gradients():
    torch.manual_seed(1)
    model = nn.EmbeddingBag(10, 4, mode="sum", sparse=True)
    reference = copy.deepcopy(model)
    model = DDP(model)
    rows = torch.arange(N * 2).view(N, 2) % 10
    model(rows[R : R + 1]).sum().backward()
    reference(rows).sum().div(N).backward()
    near([model.module.weight.grad.to_dense()], [reference.weight.grad.to_dense()])


@check
def ddp_in_groups_of_ranks():
    half = max(N // 2, 1)
    groups = [dist.new_group(list(range(i, min(i + half, N)))) for i in range(0, N, half)]
    model = DDP(net(), process_group=groups[R // half])
    model(torch.full((2, 6), float(R // half))).sum().backward()
    total = model.module.last.bias.grad.clone()
    dist.all_reduce(total, group=groups[R // half])
    near([total / min(half, N)], [model.module.last.bias.grad])


@check
def zero_redundancy_optimizer_equals_one_process():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(net())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1, momentum=0.9
    )
    near(train(model, True, optimizer), alone())


IS_NEW = hasattr(dist, "_functional_collectives")  # FSDP of torch 1.13 is for GPUs alone


@check_if(IS_NEW)
def fsdp_equals_one_process():
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = optimizer_of(model)
    train(model, True, optimizer)
    with FullyShardedDataParallel.summon_full_params(model):
        near([p.detach().clone() for p in model.parameters()], alone())


@check_if(IS_NEW)
def fully_shard_equals_one_process():
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (N,))
    model = net()
    for layer in (model.first, model.second, model.spare, model.last):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, True)
    near([p.full_tensor().detach() for p in model.parameters()], alone())


@check
def device_mesh_and_dtensor():
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    except ImportError:
        return
    shape = (2, N // 2) if N % 2 == 0 and N > 2 else (1, N)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("outer", "inner"))
    x = torch.arange(float(N * 8)).view(N * 2, 4)
    sharded = distribute_tensor(x, mesh["inner"], [Shard(0)])
    assert torch.equal(sharded.full_tensor(), x)
    assert torch.equal((sharded * 2).redistribute(mesh["inner"], [Replicate()]).to_local(), x * 2)
    assert torch.equal(sharded.redistribute(mesh["inner"], [Shard(1)]).full_tensor(), x)
    y = torch.ones(2)
    dist.all_reduce(y, group=mesh.get_group("outer"))
    assert y.tolist() == [float(shape[0])] * 2


@check
def the_end():
    dist.barrier()  # a rank that shuts down ends what others still do in their groups
    dist.destroy_process_group()


main(R)
