# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer among other people's code: schedulers, scalers, hooks, copies, Lightning, Accelerate."""

import copy
import gc
import inspect
import io
import pickle
import warnings
import weakref

import horovod.torch as hvd
import torch
from _hvd.torch import parameters, reduction
from checks import check, main
from references import adam, close, compare, reference, same_everywhere, same_weights, sgd, trained, wrap
from training import N, R, batch, closure_of, joined, loss_of, mine, model, train


@check
def schedulers_before_and_after_wrapping_change_the_rate_without_a_warning():
    def run(m, optimizer, data, scheduler=None):
        scheduler = scheduler or scheduler_of(optimizer)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train(m, optimizer, 3, data, scheduler.step)
        optimizer.load_state_dict(optimizer.state_dict())
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**4, optimizer.param_groups[0]["lr"]

    scheduler_of = lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5)  # noqa: E731
    compare(run)
    m, other = model(), model()
    early = sgd(m.parameters())
    scheduler = scheduler_of(early)
    optimizer = hvd.DistributedOptimizer(early, named_parameters=m.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0] is early.param_groups[0]
    run(m, optimizer, mine, scheduler)
    run(other, sgd(other.parameters()), joined)
    close(m, other)


@check
def a_warm_up_and_a_cyclic_schedule_that_sets_momentum_work():
    def run(m, optimizer, data):
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5)
        train(m, optimizer, 4, data, scheduler.step)

    compare(run)


@check
def state_dicts_go_to_and_fro():
    m, optimizer = trained(2, adam)
    other = model()
    base = adam(other.parameters())
    train(other, base, 1, joined)
    base.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    again = wrap(m, adam)
    again.load_state_dict(copy.deepcopy(base.state_dict()))
    train(m, again, (2, 3))
    close(m, reference(4, adam))


@check
def load_state_dict_drops_what_is_pending():
    m = model()
    optimizer = wrap(m, backward_passes_per_step=2)
    loss_of(m, batch(0, R)).backward()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    for step in range(2):
        (loss_of(m, batch(step, R)) / 2).backward()
    optimizer.step()
    same_weights(m)


@check
def load_state_dict_ends_what_is_on_its_way():
    """Its names and its memory are used again at once."""
    m = torch.nn.Linear(600, 600)
    hvd.broadcast_parameters(m.state_dict(), 0)
    optimizer = wrap(m, lambda params: torch.optim.SGD(params, lr=1.0))
    for _ in range(20):
        m(torch.randn(2, 600)).pow(2).mean().backward()
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.zero_grad(set_to_none=False)
    before = m.bias.detach().clone()
    (m(torch.zeros(1, 600)) * (R + 1)).sum().backward()
    optimizer.step()
    assert torch.allclose(before - m.bias, torch.full((600,), (N + 1) / 2), atol=1e-5)


@check
def weights_loaded_between_backward_and_an_adasum_step_stay():
    m = model()
    optimizer = wrap(m, op=hvd.Adasum)
    for _ in range(10):  # the names of the dropped changes are used again at once
        before = copy.deepcopy(m.state_dict())
        loss_of(m, batch(0, R)).backward()
        assert all(torch.equal(m.state_dict()[name], value) for name, value in before.items())
        optimizer.load_state_dict(optimizer.state_dict())
        assert all(torch.equal(m.state_dict()[name], value) for name, value in before.items())
        optimizer.zero_grad()
    loss_of(m, batch(0, R)).backward()
    loaded = {name: torch.full_like(value, 5.0) for name, value in before.items()}
    m.load_state_dict(loaded)
    optimizer.step()
    optimizer.zero_grad()
    for p in m.parameters():
        assert (p - 5.0).abs().max() < 1 and not torch.equal(p, torch.full_like(p, 5.0)), p
    same_weights(m)


@check
def copies_train_on_their_own_parameters():
    m, optimizer = trained(2, adam)
    m2, second = copy.deepcopy((m, optimizer))
    assert type(second) is type(optimizer) and second.param_groups[0]["params"][0] is m2[0].weight
    train(m2, second, (2, 3))
    close(m2, reference(4, adam))
    close(m, reference(2, adam))
    third = copy.copy(optimizer)
    train(m, third, [2])
    close(m, reference(3, adam))


@check
def pickled_optimizers_continue():
    m = model()
    optimizer = wrap(m, adam, backward_passes_per_step=2, gradient_predivide_factor=2.0)
    (loss_of(m, batch(0, R)) / 2).backward()
    (loss_of(m, batch(0, R)) / 2).backward()
    optimizer.step()
    m2, second = pickle.loads(pickle.dumps((m, optimizer)))
    assert second.backward_passes_per_step == 2 and second.gradient_predivide_factor == 2.0
    assert second.op == hvd.Average and second.process_set is hvd.global_process_set
    second.zero_grad()
    (loss_of(m2, batch(1, R)) / 2).backward()
    (loss_of(m2, batch(1, R)) / 2).backward()
    second.step()
    close(m2, reference(2, adam))
    file = io.BytesIO()
    torch.save({"optimizer": optimizer, "model": m}, file)
    file.seek(0)
    more = {"weights_only": False} if "weights_only" in inspect.signature(torch.load).parameters else {}
    loaded = torch.load(file, **more)
    assert type(loaded["optimizer"]) is type(optimizer)
    assert loaded["optimizer"].param_groups[0]["params"][0] is loaded["model"][0].weight


class AcceleratedOptimizer(torch.optim.Optimizer):
    """As Accelerate 1.x wraps: holds the optimizer, patches its step under a scaler, looks at zero_grad."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.called = False
        self.original = optimizer.step
        self.patched = self.patch(optimizer.step)

    def patch(self, method):
        def patched_step(*args, **kwargs):
            self.called = True
            return method(*args, **kwargs)

        return patched_step

    @property
    def state(self):
        return self.optimizer.state

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def defaults(self):
        return self.optimizer.defaults

    def state_dict(self):
        return self.optimizer.state_dict()

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state)

    def zero_grad(self, set_to_none=None):
        assert "set_to_none" in inspect.signature(self.optimizer.zero_grad).parameters
        self.optimizer.zero_grad(set_to_none=True if set_to_none is None else set_to_none)

    def step(self, closure=None):
        self.optimizer.step = self.patched
        self.optimizer.step(closure)  # by GradScaler.step()
        self.optimizer.step = self.original


@check
def accelerates_way_of_wrapping_works():
    def run(m, inner, data):
        scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
        optimizer = AcceleratedOptimizer(inner)
        train(m, optimizer, 3, data, scheduler.step)
        assert optimizer.called
        optimizer.load_state_dict(optimizer.state_dict())

    compare(run, make=adam)


class LightningOptimizer:
    """As Lightning 1.x and 2.x wrap: a class made on the fly, a copy of __dict__."""

    def __init__(self, optimizer):
        self.__dict__ = {k: v for k, v in optimizer.__dict__.items() if k not in ("step", "__del__")}
        bases = (type(self), type(optimizer))
        if hasattr(optimizer, "skip_synchronize"):  # Lightning 1.x, for Horovod
            bases = (type(self), type(optimizer).__bases__[0])
            self.skip_synchronize = optimizer.skip_synchronize
            self.synchronize = optimizer.synchronize
        self.__class__ = type("Lightning" + type(optimizer).__name__, bases, {})
        self._optimizer = optimizer

    def step(self, closure=None, **kwargs):
        return self._optimizer.step(closure, **kwargs)


@check
def lightnings_way_of_wrapping_works():
    m = model()
    optimizer = LightningOptimizer(wrap(m, adam))
    assert isinstance(optimizer, torch.optim.Adam) and type(optimizer).__name__ == "LightningAdam"
    for step in range(2):
        assert optimizer.step(closure_of(m, optimizer, batch(step, R))) is not None
    optimizer.zero_grad()
    loss_of(m, batch(2, R)).backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    close(m, reference(3, adam))
    assert optimizer.state_dict()["state"]


@check
def a_subclass_of_its_class_works():
    m = model()
    first = wrap(m)

    class Further(type(first)):
        def step(self, closure=None):
            self.steps = getattr(self, "steps", 0) + 1
            return super().step(closure)

    first.__class__ = Further
    train(m, first, 2)
    assert first.steps == 2
    close(m, reference(2, sgd))


@check
def step_hooks_and_the_profile_come_once_and_see_reduced_gradients():
    m = model()
    optimizer = wrap(m)
    seen = []
    if hasattr(optimizer, "register_step_pre_hook"):
        optimizer.register_step_pre_hook(lambda o, a, k: seen.append(m[0].weight.grad.sum().item()))
        optimizer.register_step_post_hook(lambda o, a, k: seen.append("after"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        train(m, optimizer, 1)
    names = [event.name for event in profile.events() if event.name.startswith("Optimizer.step#")]
    assert names == ["Optimizer.step#SGD.step"], names
    if seen:
        assert seen[1:] == ["after"], seen
        same_everywhere(seen)
    optimizer.load_state_dict(optimizer.state_dict())  # torch 2 looks for its patch of step here
    del seen[:]
    train(m, optimizer, [1])
    assert len(seen) in (0, 2), seen
    close(m, reference(2, sgd))


@check
def foreach_and_fused_optimizers_work():
    for option in ("foreach", "fused"):
        try:
            torch.optim.Adam(model().parameters(), **{option: True})
        except (TypeError, RuntimeError):
            continue  # not in this torch, or not on CPUs
        make = lambda params, option=option: torch.optim.Adam(params, lr=0.01, **{option: True})  # noqa: E731
        trained(3, make)


def scaler_of():
    """A GradScaler that works on CPUs; None before torch 2.3."""
    try:
        return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    except (AttributeError, TypeError):
        return None


@check
def a_grad_scaler_unscales_after_synchronize():
    scaler = scaler_of()
    if scaler is None:
        return
    m = model().float()
    optimizer = wrap(m)
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(m, batch(step, R).float())
        if step == 1 and R == N - 1:
            loss = loss * float("inf")  # one rank overflows: no rank steps
        before = [p.detach().clone() for p in m.parameters()]
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1e9)
        with optimizer.skip_synchronize(), warnings.catch_warnings():
            warnings.simplefilter("error")
            scaler.step(optimizer)
        scaler.update()
        moved = any(not torch.equal(p, q) for p, q in zip(m.parameters(), before))
        assert moved == (step != 1), step
    same_everywhere((scaler.get_scale(), [p.sum().item() for p in m.parameters()]))
    assert scaler.get_scale() == 512.0


@check
def a_dropped_optimizer_and_its_hooks_are_gone():
    m = model()
    optimizer = wrap(m)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # closes a circle of references
    train(m, optimizer, 1)
    m = model()
    for _ in range(3):
        optimizer = wrap(m)
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
    train(m, optimizer, 2)
    close(m, reference(2, sgd))
    alive = weakref.ref(optimizer._hvd), weakref.ref(m[0].weight)
    gone = id(m[0].weight)
    del m, optimizer
    gc.collect()
    assert [r() for r in alive] == [None, None], "the optimizer or a parameter lives on"
    assert gone not in parameters._names, "a name of a parameter lives on"


@check
def one_that_was_dropped_before_its_step_leaves_nothing():
    for set_to_none in (True, False):
        for circle, options in ((False, {"op": hvd.Sum}), (True, {})):
            m = model()
            optimizer = wrap(m, **options)
            if circle:
                torch.optim.lr_scheduler.StepLR(optimizer, 1)
            loss_of(m, batch(7, R)).backward()  # an exception comes, or the notebook's cell is run again
            optimizer = wrap(m)
            optimizer.zero_grad(set_to_none=set_to_none)
            train(m, optimizer, 2)
            close(m, reference(2, sgd))
            assert not reduction._of_parameter, "parameters are kept"


main(R)
