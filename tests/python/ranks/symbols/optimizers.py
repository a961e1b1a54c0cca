# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: its result after steps, for each argument; its methods; its errors."""

from harness import hvd, symbol, torch


def model(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def batch(i):
    return (torch.arange(12.0).reshape(4, 3) * 0.1 + hvd.rank() * 0.5 + i).sin()


MAKE = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
}


def train(opt="SGD", steps=3, passes=1, m=None, use=lambda opt: opt.step(), **arguments):
    """The parameters after some steps."""
    m = m or model()
    opt = hvd.DistributedOptimizer(
        MAKE[opt](m.parameters()), named_parameters=m.named_parameters(), **arguments
    )
    for i in range(steps):
        opt.zero_grad()
        for k in range(passes):
            m(batch(i * passes + k)).square().mean().backward()
        use(opt)
    return [p.detach() for p in m.parameters()]


@symbol("DistributedOptimizer", "horovod.torch.optimizer._DistributedOptimizer")
def optimizers_after_steps(t):
    for name in MAKE:
        t.same(name, train(name))
        t.same(f"{name} of a sum", train(name, op=hvd.Sum))
        t.same(f"{name} predivided", train(name, gradient_predivide_factor=2.0))
        t.same(f"{name} in halves", train(name, compression=hvd.Compression.fp16))
        t.same(f"{name} twice backward", train(name, backward_passes_per_step=2, passes=2))
        t.same(f"{name} in two groups", train(name, groups=2))
        t.same(f"{name} by place", train(name, process_set=hvd.global_process_set, sparse_as_dense=True))


@symbol("DistributedOptimizer")
def optimizer_groups(t):
    def lists(m):
        p = list(m.parameters())
        return [[p[0], p[2]], [p[1]]]

    m = model()
    t.same("lists", train(m=m, groups=lists(m)))
    t.same("num_groups", t.warns("warning", train, num_groups=2))
    right = train(gradient_predivide_factor=2.0, op=hvd.Average, groups=None)
    t.same(
        "predivided",
        [torch.allclose(a, b) for a, b in zip(right, train(groups=2, gradient_predivide_factor=2.0))],
    )


@symbol("DistributedOptimizer", "horovod.torch.optimizer._DistributedOptimizer")
def optimizer_methods(t):
    m = model()
    opt = hvd.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.1), m.named_parameters())
    t.same(
        "class",
        [type(opt).__name__, isinstance(opt, torch.optim.SGD), isinstance(opt, torch.optim.Optimizer)],
    )

    def clipped(opt):
        opt.synchronize()
        torch.nn.utils.clip_grad_norm_([p for g in opt.param_groups for p in g["params"]], 0.1)
        with opt.skip_synchronize():
            opt.step()

    t.same("clipped", train(use=clipped))
    m(batch(0)).sum().backward()
    t.same("synchronize", opt.synchronize())
    t.same("gradient", m[0].weight.grad)
    t.warns("step after synchronize", opt.step)
    opt.zero_grad()
    m(batch(0)).sum().backward()
    t.fails(
        "zero_grad",
        ["optimizer.zero_grad() was called after loss.backward()", "before optimizer.step()"],
        opt.zero_grad,
    )
    t.same("step", opt.step())
    opt.set_backward_passes_per_step(2)
    for i in range(2):
        m(batch(i)).sum().backward()
    opt.step()
    t.same("passes", m[0].weight)
    opt.zero_grad()
    for i in range(2):
        m(batch(i)).sum().backward()
    words = ["Gradients were computed more than backward_passes_per_step times before call"]
    t.fails("too many passes", words, lambda: m(batch(2)).sum().backward())
    opt.step()
    opt.load_state_dict(opt.state_dict())
    opt.set_backward_passes_per_step(1)
    opt.zero_grad()
    m(batch(0)).sum().backward()
    t.same("closure", opt.step(lambda: torch.tensor(2.5)))
    opt.zero_grad()
    t.same("unused", opt.step())  # all gradients are missing: zeros travel


@symbol("DistributedOptimizer")
def optimizer_with_parameters_that_one_rank_lacks(t):
    m = model()
    opt = hvd.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.1), m.named_parameters())
    (m[0](batch(0)) if hvd.rank() else m(batch(0))).sum().backward()
    opt.step()
    t.same("parameters", [p.detach() for p in m.parameters()])
    frozen = model()
    frozen[0].weight.requires_grad_(False)
    t.same("frozen", train(m=frozen))


@symbol("DistributedOptimizer", "horovod.torch.optimizer._DistributedAdasumOptimizer", "Adasum")
def optimizer_of_adasum(t):
    m = model()
    opt = hvd.DistributedOptimizer(
        torch.optim.SGD(m.parameters(), lr=0.1), m.named_parameters(), op=hvd.Adasum
    )
    t.same("class", [type(opt).__name__, isinstance(opt, torch.optim.SGD)])
    for i in range(3):
        opt.zero_grad()
        m(batch(i)).square().mean().backward()
        opt.step()
    t.same("parameters", [p.detach() for p in m.parameters()])
    t.same("synchronize", opt.synchronize())
    t.fails(
        "skip",
        ["Skipping synchronization is not supported when using Adasum"],
        lambda: opt.skip_synchronize().__enter__(),
    )
    t.same("allreduce", hvd.allreduce(torch.arange(4.0) + hvd.rank(), op=hvd.Adasum))


@symbol("DistributedOptimizer")
def optimizer_errors(t):
    def make(parameters="named", **arguments):
        m = model()
        given = {
            "named": list(m.named_parameters()),
            "plain": list(m.parameters()),
            "twice": [("same", p) for p in m.parameters()],
            "some": list(m.named_parameters())[:2],
        }[parameters]
        return hvd.DistributedOptimizer(
            torch.optim.SGD(m.parameters(), lr=0.1), named_parameters=given, **arguments
        )

    t.fails(
        "no tuples", ["named_parameters should be a sequence of tuples (name, parameter)"], make, "plain"
    )
    t.fails("duplicates", ["names in named_parameters must be unique", "same"], make, "twice")
    t.fails("unnamed", ["one or more model parameters were not named"], make, "some")
    t.fails("passes", ["backward_passes_per_step must be > 0"], make, backward_passes_per_step=0)
    words = ["gradient_predivide_factor not supported with op != Average"]
    t.fails("predivide", words, make, gradient_predivide_factor=2.0, op=hvd.Sum)
    t.fails("groups", ["groups should be a non-negative integer"], make, groups=-1)
    t.fails("groups of numbers", ["groups must consist of torch.Tensor"], make, groups=[[1]])
    p = torch.nn.Parameter(torch.ones(2))
    t.fails("groups twice", ["can only appear once in groups"], make, groups=[[p], [p]])
