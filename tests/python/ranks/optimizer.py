# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: n ranks with their shares equal one rank with the joined batch."""

import contextlib
import warnings
from collections import namedtuple

import horovod.torch as hvd
import torch
from checks import check, expect_error, main
from references import adam, close, plain, reference, same_everywhere, same_weights, sgd, trained, wrap
from training import N, R, batch, joined, loss_of, model, train

Pair = namedtuple("Pair", "a b")


@check
def parameter_names_are_where_scripts_look_for_horovods():
    m = model()
    numbered = hvd.DistributedOptimizer(sgd(m.parameters()))._parameter_names
    assert list(numbered) == list(m.parameters()) and len(set(numbered.values())) == len(numbered)
    same_everywhere(list(numbered.values()))
    named = hvd.DistributedOptimizer(sgd(m.parameters()), named_parameters=m.named_parameters())
    assert named._parameter_names == {p: name for name, p in m.named_parameters()}


@check
def parameter_groups_added_later_are_reduced():
    m = model()
    first, last = list(m[0].parameters()), list(m[2].parameters())
    optimizer = hvd.DistributedOptimizer(plain(first))
    optimizer.add_param_group({"params": last})
    train(m, optimizer, 1)
    close(m, reference(1, plain))


@check
def the_class_is_the_users_and_its_state_is_kept():
    m = model()
    base = adam(m.parameters())
    train(m, base, 1, joined)
    optimizer = hvd.DistributedOptimizer(base, named_parameters=m.named_parameters())
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert len(optimizer.state_dict()["state"]) == 4
    expect_error(ValueError, ["already", "once"], hvd.DistributedOptimizer, optimizer)


@check
def a_users_own_optimizer_class_with_arguments_works():
    class Own(torch.optim.SGD):
        def __init__(self, params, must_be_given):
            super().__init__(params, lr=must_be_given)

    trained(1, lambda params: Own(params, 0.1))


@check
def wrong_arguments_are_refused():
    """Those that the original accepts; its own errors: symbols/optimizers.py."""
    m = model()
    wrapped = hvd.DistributedOptimizer
    expect_error(
        ValueError, ["hvd.Average, hvd.Sum or hvd.Adasum"], wrapped, sgd(m.parameters()), op=hvd.Min
    )
    for groups in (0, (1, 2)):
        expect_error(ValueError, ["groups should be"], wrapped, sgd(m.parameters()), groups=groups)
    expect_error(TypeError, ["torch.optim.Optimizer, not Linear"], wrapped, m[0])
    lbfgs = torch.optim.LBFGS(m.parameters())
    expect_error(ValueError, ["LBFGS cannot be distributed"], wrapped, lbfgs)


@check
def an_unused_optimizer_has_gradients_after_the_broadcast():
    p, frozen = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2), requires_grad=False)
    hvd.broadcast_optimizer_state(torch.optim.SGD([p, frozen], lr=0.1, weight_decay=0.5), root_rank=0)
    assert p.grad.tolist() == [0, 0, 0] and frozen.grad is None and p.tolist() == [1, 1, 1]


@check
def optimizer_state_keeps_the_roots_types():
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    master = torch.full((3,), 0.1234567)
    if R == 0:
        optimizer.state[p] = {"momentum_buffer": master, "nothing": None, "step": 3}
        optimizer.state["of no parameter"] = 4
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.state[p]["momentum_buffer"].dtype == torch.float32
    assert torch.equal(optimizer.state[p]["momentum_buffer"], master)
    assert optimizer.state[p]["nothing"] is None and optimizer.state[p]["step"] == 3
    assert optimizer.state["of no parameter"] == 4


@check
def optimizer_state_keeps_the_roots_layout():
    """Fused optimizers refuse state that lies otherwise than its parameter."""
    p = torch.nn.Parameter(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    values = torch.arange(120.0).view(2, 3, 4, 5)
    if R == 0:
        row = torch.ones(4).expand(3, 4)
        optimizer.state[p] = {"momentum_buffer": torch.empty_like(p).copy_(values), "row": row}
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    got = optimizer.state[p]["momentum_buffer"]
    assert got.stride() == p.stride() and torch.equal(got, values), got.stride()
    if R > 0:
        assert optimizer.state[p]["row"].is_contiguous()
    assert torch.equal(optimizer.state[p]["row"], torch.ones(3, 4))


@check
def a_gradient_that_is_changed_under_way_warns():
    """As GradScaler.step() does when synchronize() was not called."""
    for is_early in (False, True):
        m = model()
        optimizer = wrap(m)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            loss_of(m, batch(0, R)).backward()
            if not is_early:
                optimizer.synchronize()
            for p in m.parameters():
                p.grad.mul_(1.0)
            with contextlib.nullcontext() if is_early else optimizer.skip_synchronize():
                optimizer.step()
        told = [str(w.message) for w in seen if "changed after backward()" in str(w.message)]
        assert len(told) == (len(list(m.parameters())) if is_early and N > 1 else 0), told
        assert all("skip_synchronize" in text for text in told)


@check
def named_tuples_in_state_and_options_travel():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.1)
    if R == 0:
        optimizer.param_groups[0]["pair"] = Pair(1, None)
        optimizer.state[p] = {"pair": Pair(torch.full((2,), 5.0), [torch.tensor(7)])}
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["pair"] == Pair(1, None)
    got = optimizer.state[p]["pair"]
    assert isinstance(got, Pair), type(got)
    assert got.a.tolist() == [5.0, 5.0] and got.b[0].item() == 7, got


@check
def a_fresh_root_empties_the_other_ranks_state_and_options():
    m = model()
    optimizer = adam(m.parameters())
    if R != 0:
        train(m, optimizer, 1, joined)
        optimizer.param_groups[0].update(lr=9.0, betas=(0.5, 0.5), only_here=1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert not optimizer.state_dict()["state"], "state of its own is left"
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"]) == (0.01, (0.9, 0.999)), group
    assert "only_here" not in group
    assert group["params"][0] is m[0].weight


@check
def all_options_of_all_groups_are_the_roots():
    m = model()
    groups = [{"params": m[0].parameters(), "lr": 0.5}, {"params": m[2].parameters(), "betas": (0.7, 0.8)}]
    optimizer = torch.optim.Adam(groups, lr=0.01 * (R + 1), weight_decay=0.1 * R, amsgrad=R == 1)
    if R == 0:
        optimizer.param_groups[1]["extra"] = None
        train(m, optimizer, 1, joined)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    rows = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    same_everywhere(rows)
    assert rows[0]["lr"] == 0.5 and rows[1]["lr"] == 0.01 and rows[1]["betas"] == (0.7, 0.8)
    assert rows[1]["extra"] is None and rows[0]["weight_decay"] == 0.0
    same_everywhere([float(s["exp_avg_sq"].sum()) for s in optimizer.state_dict()["state"].values()])
    if R != 0:  # momentum continues from the root's: the next step is the same everywhere
        loss_of(m, joined(0)).backward()
    hvd.broadcast_parameters(m.state_dict(), 0)
    optimizer.step()
    same_weights(m)


@check
def optimizers_that_differ_are_an_error():
    m = model()
    optimizer = sgd(m.parameters() if R == 0 else m[0].parameters())
    if R == 0:
        hvd.broadcast_optimizer_state(optimizer, 0)
    else:
        words = ["[2] parameters", "[4]", "same optimizer on every rank"]
        expect_error(ValueError, words, hvd.broadcast_optimizer_state, optimizer, 0)


main(R)
