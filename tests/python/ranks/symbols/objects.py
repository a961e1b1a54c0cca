# SPDX-License-Identifier: Apache-2.0
"""Pickled objects, parameters and optimizer states."""

import collections
import threading

from harness import hvd, symbol, torch


@symbol("broadcast_object")
def broadcast_object(t):
    r = hvd.rank()
    for obj in ({"a": [r, 2.5]}, None, (r, "x"), [], "text" * (r + 1)):
        t.same(f"{type(obj).__name__}", hvd.broadcast_object(obj, 0))
    t.same("root 1", hvd.broadcast_object(r, root_rank=1, name="named"))


@symbol("broadcast_object")
def broadcast_function(t):
    t.needs("cloudpickle")
    t.same("a function", hvd.broadcast_object(lambda: 5, 0)())


@symbol("allgather_object")
def allgather_object(t):
    t.same("uneven", hvd.allgather_object({"rank": "x" * hvd.rank()}, name="objects"))
    t.same("none", hvd.allgather_object(None))
    t.same("type", type(hvd.allgather_object(1)).__name__)


@symbol("broadcast_object", "allgather_object", ours=True)
def objects_that_cannot_be_pickled(t):
    """Every rank gets the error; with the original the other ranks wait forever."""
    lock, r = threading.Lock(), hvd.rank()
    wrong = ((hvd.broadcast_object, lock if r == 0 else 1), (hvd.allgather_object, lock if r == 1 else 1))
    for function, obj in wrong:
        try:
            function(obj)
        except Exception as e:
            assert "pickle" in str(e), e
        else:
            raise AssertionError(f"{function.__name__} returned")
    t.equal(hvd.allgather_object(r), [0, 1])


def model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))


@symbol("broadcast_parameters")
def broadcast_parameters(t):
    m = model(hvd.rank())
    t.same("returns", hvd.broadcast_parameters(m.state_dict(), root_rank=0))
    t.equal(m[0].weight, model(0)[0].weight.detach())
    for kind in ("named", "plain"):
        m = model(hvd.rank())
        hvd.broadcast_parameters(list(m.named_parameters() if kind == "named" else m.parameters()), 1)
        for a, b in zip(m.parameters(), model(1).parameters()):
            t.equal(a, b.detach())
    hvd.broadcast_parameters(collections.OrderedDict(), 0)
    t.fails("a number", ["invalid params of type"], hvd.broadcast_parameters, 5, 0)


@symbol("broadcast_parameters")
def broadcast_parameters_of_a_generator(t):
    def work():
        m = model(hvd.rank())
        hvd.broadcast_parameters(m.named_parameters(), root_rank=0)
        return m[0].weight

    t.fixed("generator", "its own docstring invites to this", work, model(0)[0].weight)


OPTIMIZERS = {
    "SGD": lambda p, r: torch.optim.SGD(p, lr=0.1 * (r + 1), momentum=0.5),
    "Adam": lambda p, r: torch.optim.Adam(p, lr=0.1 * (r + 1), betas=(0.5, 0.9 - 0.1 * r)),
    "Adagrad": lambda p, r: torch.optim.Adagrad(p, lr=0.1 * (r + 1)),
}


def stepped(make, steps):
    """An optimizer that has taken steps, other ones on each rank."""
    torch.manual_seed(0)
    m = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    opt = make(m.parameters(), hvd.rank())
    for i in range(steps):
        opt.zero_grad()
        m(torch.arange(6.0).reshape(2, 3) + hvd.rank() + i).square().sum().backward()
        opt.step()
    return m, opt


def state_of(opt):
    """What must be the same on all ranks."""
    d = opt.state_dict()
    groups = [
        {k: v for k, v in g.items() if k in ("lr", "momentum", "betas", "params")}
        for g in d["param_groups"]
    ]
    state = {str(k): {n: v for n, v in sorted(s.items()) if v is not None} for k, s in d["state"].items()}
    return {"groups": groups, "state": state}


@symbol("broadcast_optimizer_state")
def broadcast_optimizer_state(t):
    for name, make in OPTIMIZERS.items():
        m, opt = stepped(make, 2)
        t.same(f"{name} returns", hvd.broadcast_optimizer_state(opt, root_rank=0))
        t.same(name, state_of(opt))
        m, opt = stepped(make, 1 + hvd.rank())
        hvd.broadcast_optimizer_state(opt, 1, model=m)
        t.same(f"{name} from 1", state_of(opt))
    m, opt = stepped(lambda p, r: torch.optim.LBFGS(p), 0)
    t.fails("LBFGS", ["cannot broadcast torch.optim.LBFGS state"], hvd.broadcast_optimizer_state, opt, 0)
