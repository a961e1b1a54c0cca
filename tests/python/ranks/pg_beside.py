# SPDX-License-Identifier: Apache-2.0
"""The back end "hvd" of torch.distributed and horovod.torch in one process: what they must not do together."""

import gc
import weakref

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401  (makes the name known)
import torch
import torch.distributed as dist
from _hvd.process_sets import ids_and_ranks
from checks import check, check_if, expect_error, main
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("hvd")
torch.set_num_threads(1)
R, N = dist.get_rank(), dist.get_world_size()
BOTH = ["DistributedDataParallel and hvd.DistributedOptimizer would both reduce", "use the plain optimizer"]


def net():
    torch.manual_seed(7)
    return torch.nn.Linear(3, 2, bias=False)


def wrap(model, **options):
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    return hvd.DistributedOptimizer(sgd, model.named_parameters(), **options)


def step(model, optimizer):
    """The gradient is 1 on rank 0, 2 on rank 1..."""
    optimizer.zero_grad()
    (model(torch.ones(1, 3)) * (R + 1)).sum().backward()
    optimizer.step()


def changes_by_the_mean(model, optimizer):
    before = [p.detach().clone() for p in model.parameters()]
    step(model, optimizer)
    for p, q in zip(model.parameters(), before):
        assert torch.allclose(q - p, torch.full_like(p, (N + 1) / 2)), (p, q)


@check_if(N > 1)
def an_optimizer_of_a_ddp_model_is_refused():
    model = DDP(net())
    text = expect_error(ValueError, BOTH, wrap, model)
    assert "module.weight" in text
    expect_error(ValueError, BOTH, wrap, model, op=hvd.Adasum)
    changes_by_the_mean(model, torch.optim.SGD(model.parameters(), lr=1.0))


@check_if(N > 1)
def ddp_of_a_model_with_an_optimizer_is_refused_at_the_first_backward():
    """Accelerate's prepare() wraps in this order."""
    for options in ({}, {"op": hvd.Adasum}, {"backward_passes_per_step": 2}):
        model = net()
        optimizer = wrap(model, **options)
        text = expect_error(ValueError, BOTH, step, DDP(model), optimizer)
        assert "of weight" in text
        dist.barrier()  # DDP of the other rank has ended its reduction


@check_if(N > 1)
def parameters_added_to_an_optimizer_are_looked_at_too():
    plain, model = net(), DDP(net())
    optimizer = wrap(plain)
    group = {"params": list(model.parameters())}
    expect_error(ValueError, BOTH, optimizer.add_param_group, group)


@check
def ddp_of_other_models_is_fine():
    other, model = DDP(net()), net()
    optimizer = wrap(model)
    for _ in range(2):
        changes_by_the_mean(model, optimizer)
        changes_by_the_mean(other, torch.optim.SGD(other.parameters(), lr=1.0))


@check
def parameters_that_ddp_ignores_are_fine():
    both = torch.nn.ModuleList([net(), net()])
    DDP._set_params_and_buffers_to_ignore_for_model(both, ["1.weight"])
    kept = DDP(both)
    changes_by_the_mean(both[1], wrap(both[1]))
    del kept


@check
def a_dropped_ddp_model_is_fine():
    gc.collect()
    gc.disable()
    try:
        model = net()
        wrapped = DDP(model)
        wrapped.itself = wrapped  # only a collection frees it
        reference = weakref.ref(wrapped)
        del wrapped
        assert reference() is not None
        changes_by_the_mean(model, wrap(model))
    finally:
        gc.enable()


@check_if(N > 2)
def a_group_and_a_process_set_of_equal_ranks_are_two_sets():
    ranks = [0, 1]
    before = ids_and_ranks()

    def sums(group, inside, name):
        if R in ranks:
            x = torch.full((2,), float(R + 1))
            handle = hvd.allreduce_async(x, op=hvd.Sum, process_set=inside, name=name) if inside else None
            dist.all_reduce(x.clone() if inside else x, group=group)
            assert (hvd.synchronize(handle) if inside else x).tolist() == [3.0] * 2

    for is_group_first in (True, False):
        group = dist.new_group(ranks) if is_group_first else None
        inside = hvd.add_process_set(ranks)
        group = group if is_group_first else dist.new_group(ranks)
        sums(group, inside, "both")
        assert ids_and_ranks() == {**before, inside.process_set_id: ranks}, "a group's set is listed"
        expect_error(ValueError, ["duplicate process set"], hvd.add_process_set, ranks)
        assert hvd.remove_process_set(inside)
        sums(group, None, "the group alone")
        again = hvd.add_process_set(ranks)
        if R in ranks:
            dist.destroy_process_group(group)
        sums(dist.new_group(ranks), again, "again")
        assert hvd.remove_process_set(again)
    expect_error(ValueError, ["duplicate process set"], hvd.add_process_set, list(range(N)))


@check
def the_end():
    dist.barrier()
    dist.destroy_process_group()


main(R)
