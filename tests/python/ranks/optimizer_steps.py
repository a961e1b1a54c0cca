# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer from step to step: closures, changing parameters, several optimizers, errors, and
the overlap of communication and backward()."""

import copy
import json
import os
import threading
import time

import horovod.torch as hvd
import torch
from _hvd.torch import reducer
from checks import check, check_if, expect_error, main
from references import close, compare, reference, same_everywhere, same_weights, sgd, trained, wrap
from training import N, R, batch, closure_of, joined, loss_of, mine, model, train


@check
def a_closure_that_computes_gradients_has_them_reduced():
    m = model()
    optimizer = wrap(m)
    for step in range(3):
        assert optimizer.step(closure_of(m, optimizer, batch(step, R))).item() > 0
    close(m, reference(3, sgd))
    optimizer.zero_grad()
    loss_of(m, batch(3, R)).backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():  # clipped gradients, and a closure that only measures
        optimizer.step(lambda: torch.tensor(1.0))
    close(m, reference(4, sgd))


class Twice(torch.optim.SGD):
    """An optimizer that calls its closure two times a step, as those with a line search do."""

    def step(self, closure):
        super().step(closure)
        return super().step(closure)


@check
def a_closure_that_is_called_twice_is_reduced_twice():
    compare(
        lambda m, optimizer, data: optimizer.step(closure_of(m, optimizer, data(0))),
        make=lambda params: Twice(params, lr=0.1),
    )


@check
def gradients_are_kept_or_set_to_none():
    for to_none in (True, False):
        m = model()
        optimizer = wrap(m)
        for step in range(3):
            optimizer.zero_grad(set_to_none=to_none)
            assert step == 0 or all((p.grad is None) == to_none for p in m.parameters())
            loss_of(m, batch(step, R)).backward()
            before = [p.grad.data_ptr() for p in m.parameters()]
            optimizer.synchronize()
            assert before == [p.grad.data_ptr() for p in m.parameters()], "the result is not in place"
            with optimizer.skip_synchronize():
                optimizer.step()
        close(m, reference(3, sgd))


@check
def a_gradient_the_user_replaces_is_the_one_that_is_reduced():
    def run(m, optimizer, data):
        loss_of(m, data(0)).backward()
        for p in m.parameters():
            p.grad = p.grad.clone() * 2
        optimizer.step()

    compare(run, backward_passes_per_step=2)  # so that nothing is on its way yet


@check
def parameters_may_be_frozen_and_unfrozen():
    def run(m, optimizer, data):
        for step in range(6):
            m[0].requires_grad_(step % 3 != 0)
            m[2].bias.requires_grad_(step % 2 == 0)
            optimizer.zero_grad(set_to_none=True)
            loss_of(m, data(step)).backward()
            optimizer.step()

    def partly_frozen():
        m = model()
        m[0].requires_grad_(False)
        return m

    compare(run, partly_frozen)


@check
def a_generator_and_a_discriminator_of_equal_names_train():
    def run(gen, disc, gen_opt, disc_opt, data):
        for step in range(4):
            trains_gen = step % 2 == 0
            gen.requires_grad_(trains_gen)
            disc.requires_grad_(step % 4 != 2 or not trains_gen)
            gen_opt.zero_grad()
            disc_opt.zero_grad()
            loss_of(disc, gen(data(step))).backward()
            if trains_gen:
                gen_opt.step()
            if step % 4 != 2:
                disc_opt.step()

    nets = [torch.nn.Linear(5, 5).double() for _ in range(4)]
    for net in nets[1:]:
        net.load_state_dict(nets[0].state_dict())
    for net in nets:
        hvd.broadcast_parameters(net.state_dict(), 0)
    gen, disc, gen2, disc2 = nets
    run(gen, disc, wrap(gen), wrap(disc), mine)
    run(gen2, disc2, sgd(gen2.parameters()), sgd(disc2.parameters()), joined)
    close(gen, gen2)
    close(disc, disc2)


def nets_of(kind):
    """A generator and a discriminator of equal names and, but for their numbers of layers, equal shapes."""
    torch.manual_seed(3)
    layers = [[torch.nn.Linear(5, 5).double() for _ in range(n)] for n in (1, 2)]
    gen, disc = (torch.nn.Sequential(*some) for some in layers)
    if kind == "equal shapes":
        disc = disc[:1]
    return gen, disc


def train_gan(gen, disc, gen_opt, disc_opt, data, is_late=False):
    """As printed in most tutorials: the generator's loss fills the discriminator's gradients too.

    is_late: these are zeroed before the generator's step, not after it.
    """
    for step in range(4):
        disc_opt.zero_grad()
        fake = gen(data(step))
        (loss_of(disc, data(step + 100)) + loss_of(disc, fake.detach())).backward()
        disc_opt.step()
        gen_opt.zero_grad()
        loss_of(disc, fake).backward()
        if is_late:
            disc_opt.zero_grad()
        gen_opt.step()


@check
def a_gan_zeroes_the_gradients_that_the_other_loss_has_left():
    def named(net, params):
        return hvd.DistributedOptimizer(sgd(params), named_parameters=net.named_parameters())

    def unnamed(net, params):
        return hvd.DistributedOptimizer(sgd(params))

    def in_groups(net, params):
        return hvd.DistributedOptimizer(sgd(params), groups=1)

    for make in (named, unnamed, in_groups):
        for kind in ("equal shapes", "other shapes"):
            for is_late in (False, True):
                pairs = [nets_of(kind), nets_of(kind)]
                opts = [make(net, net.parameters()) for net in pairs[0]]
                train_gan(*pairs[0], *opts, mine, is_late)
                train_gan(*pairs[1], *(sgd(net.parameters()) for net in pairs[1]), joined, is_late)
                for net, other in zip(*pairs):
                    close(net, other)
                    same_weights(net)


@check_if(N > 1)
def a_gan_that_zeroes_by_its_modules_gets_a_sentence():
    gen, disc = nets_of("equal shapes")
    gen_opt, disc_opt = (hvd.DistributedOptimizer(sgd(net.parameters())) for net in (gen, disc))
    loss_of(disc, gen(batch(0, R))).backward()
    gen_opt.step()
    disc.zero_grad()
    words = ["more than backward_passes_per_step times", "by optimizer.zero_grad(), not module.zero_grad()"]
    expect_error(AssertionError, words, loss_of(disc, batch(1, R)).backward)
    disc_opt.zero_grad()
    loss_of(disc, batch(1, R)).backward()
    disc_opt.step()
    same_weights(disc)


@check
def two_optimizers_without_names_combine_by_adasum():
    gen, disc = nets_of("equal shapes")
    opts = [hvd.DistributedOptimizer(sgd(net.parameters()), op=hvd.Adasum) for net in (gen, disc)]
    for step in range(2):
        for opt in opts:
            opt.zero_grad()
        loss_of(disc, gen(batch(step, R))).backward()
        for opt in opts:
            opt.step()
    same_weights(gen)
    same_weights(disc)


@check_if(N > 1)
def zero_grad_alone_between_backward_and_step_is_refused():
    m, other = model(), model()
    optimizer = wrap(m)
    beside = wrap(other)
    train(other, beside, 1)
    loss_of(m, batch(0, R)).backward()
    expect_error(AssertionError, ["zero_grad() was called after"], optimizer.zero_grad)
    optimizer.step()
    close(m, reference(1, sgd))


@check
def gradients_of_optimizers_without_names_stay_apart_where_ranks_compute_others():
    heads = [torch.nn.Linear(2, 1, bias=False) for _ in range(3)]
    for head in heads:
        torch.nn.init.ones_(head.weight)
    opts = [hvd.DistributedOptimizer(torch.optim.SGD(head.parameters(), lr=1.0)) for head in heads]
    for step in range(3):
        own = (R + step) % 3  # this rank's batch has samples of one task only
        for opt in opts:
            opt.zero_grad()
        (heads[own](torch.ones(1, 2)) * (own + 1)).sum().backward()
        before = [head.weight.detach().clone() for head in heads]
        for opt in opts:
            opt.step()
        for i, (head, was) in enumerate(zip(heads, before)):
            mean = (i + 1) * sum((r + step) % 3 == i for r in range(N)) / N
            assert torch.allclose(was - head.weight, torch.full((1, 2), mean)), (step, i, was, head.weight)


@check
def optimizers_of_other_lengths_may_be_made_in_another_order():
    nets = [torch.nn.Sequential(*[torch.nn.Linear(2, 2, bias=False) for _ in range(n)]) for n in (1, 2)]
    opts = {}
    for i in (0, 1) if R == 0 else (1, 0):
        opts[i] = hvd.DistributedOptimizer(torch.optim.SGD(nets[i].parameters(), lr=1.0))
    before = [[p.detach().clone() for p in net.parameters()] for net in nets]
    for i in (0, 1):
        for p in nets[i].parameters():
            (p * (i + 1) * (R + 1)).sum().backward()
        opts[i].step()
    for i in (0, 1):
        for p, was in zip(nets[i].parameters(), before[i]):
            assert torch.allclose(was - p, torch.full((2, 2), (i + 1) * (N + 1) / 2)), (i, was - p)


@check_if(N > 1)
def optimizers_of_equal_lengths_in_another_order_are_an_error():
    nets = [torch.nn.Linear(2, n, bias=False) for n in (2, 3)]
    opts = {}
    for i in (0, 1) if R == 0 else (1, 0):
        opts[i] = hvd.DistributedOptimizer(torch.optim.SGD(nets[i].parameters(), lr=1.0))
    for net in nets:
        net(torch.ones(1, 2)).sum().backward()
    for i in (0, 1):
        expect_error(hvd.HorovodInternalError, ["noname", "shape", "[2, 2]", "[3, 2]"], opts[i].step)


@check
def a_parameter_of_two_optimizers_is_reduced_once():
    def run(m, first, second, data):
        for step in range(3):
            m.zero_grad()
            loss_of(m, data(step)).backward()
            first.step()
            second.step()

    for op, scale in ((hvd.Average, 1), (hvd.Sum, N)):
        m, other = model(), model()
        first = hvd.DistributedOptimizer(sgd(m.parameters()), m.named_parameters(), op=op)
        second = hvd.DistributedOptimizer(sgd(m[0].parameters()), m[0].named_parameters(), op=op)
        run(m, first, second, mine)
        make = lambda params, scale=scale: torch.optim.SGD(params, lr=0.1 * scale, momentum=0.9)  # noqa: E731
        run(other, make(other.parameters()), make(other[0].parameters()), joined)
        close(m, other, 1e-10)
    if N > 1:
        m = model()
        first = wrap(m)
        second = wrap(m, op=hvd.Sum)
        text = ["two optimizers that reduce its gradient in different ways"]
        expect_error(ValueError, text, lambda: loss_of(m, batch(0, R)).backward())
        first.synchronize()
        second.synchronize()


@check
def an_optimizer_that_takes_over_from_another_works():
    def run(m, first, data):
        train(m, first, 2, data)
        make = lambda params: torch.optim.SGD(params, lr=0.05)  # noqa: E731
        second = wrap(m, make) if data is mine else make(m.parameters())
        train(m, second, (2, 3), data)  # the first one lives on

    compare(run)


@check
def a_penalty_on_the_gradient_works_and_create_graph_is_refused():
    def penalised(m, x):
        loss = loss_of(m, x)
        grads = torch.autograd.grad(loss, list(m.parameters()), create_graph=True)
        return loss + 0.1 * sum(g.pow(2).sum() for g in grads)

    def run(m, optimizer, data):
        penalised(m, data(0)).backward()
        optimizer.step()

    compare(run, data=(joined, joined))  # the penalty is not linear: the same data everywhere
    if N > 1:
        m = model()
        optimizer = wrap(m)
        words = ["create_graph=True", "torch.autograd.grad"]
        loss = loss_of(m, batch(0, R))
        expect_error(AssertionError, words, loss.backward, create_graph=True)
        optimizer.load_state_dict(optimizer.state_dict())


@check
def a_graph_that_is_kept_counts_each_pass():
    m = model()
    optimizer = wrap(m, backward_passes_per_step=2)
    loss = loss_of(m, batch(0, R)) / 2
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    close(m, reference(1, sgd))


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise OverflowError("in backward")


@check
def an_exception_in_backward_leaves_the_optimizer_usable():
    m = model()
    optimizer = wrap(m)
    loss = loss_of(m[2], Fails.apply(torch.tanh(m[0](batch(0, R)))))
    expect_error(OverflowError, ["in backward"], loss.backward)
    optimizer.synchronize()
    optimizer.zero_grad()
    with optimizer.skip_synchronize():
        optimizer.zero_grad()
        loss_of(m, batch(0, R)).backward()
        optimizer.synchronize()
        optimizer.step()
    close(m, reference(1, sgd))


@check_if(N > 1)
def a_failed_collective_leaves_the_optimizer_usable():
    m = model()
    optimizer = wrap(m)
    loss_of(m, batch(0, R)).backward()
    optimizer.synchronize()
    optimizer.zero_grad()
    odd = torch.nn.Parameter(torch.ones(3 if R == 0 else 4, dtype=torch.float64))
    optimizer.add_param_group({"params": [odd]})
    (loss_of(m, batch(0, R)) + odd.sum()).backward()
    words = ["shape", "[3]", "[4]"]
    expect_error(hvd.HorovodInternalError, words, optimizer.step)
    with torch.no_grad():
        odd.set_(torch.ones(2, dtype=torch.float64))
    odd.grad = None
    m.load_state_dict(model().state_dict())
    optimizer.state.clear()
    train(m, optimizer, 2)
    close(m, reference(2, sgd))


@check_if(N > 1)
def small_gradients_go_out_together():
    counts = []
    start = reducer.Reducer._start_queue

    def counted(self):
        counts.append(len(self.queue))
        start(self)

    reducer.Reducer._start_queue = counted
    try:
        trained(2)
    finally:
        reducer.Reducer._start_queue = start
    assert counts == [4, 4], counts


class Waits(torch.autograd.Function):
    """A backward() that waits until the gradients computed before it were reduced."""

    @staticmethod
    def forward(ctx, x, ended):
        ctx.ended = ended
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.ended()
        return grad, None


def big_model():
    torch.manual_seed(2)
    big = 2 * reducer.BUCKET_BYTES // 8 // 64
    return torch.nn.ModuleList([torch.nn.Linear(4, 64), torch.nn.Linear(64, big)]).double()


@check_if(N > 1)
def gradients_travel_while_backward_computes_others():
    m = big_model()
    optimizer = wrap(m)

    def ended():
        reduction = optimizer._hvd.pending[m[1].weight]
        deadline = time.monotonic() + 60
        while reduction.is_under_way(None):
            assert time.monotonic() < deadline, "nothing travels during backward()"
            time.sleep(0.001)

    path = os.path.join(os.environ["CHECKS_DIR"], "timeline.json")
    hvd.start_timeline(path)
    x = torch.full((1, 4), float(R), dtype=torch.float64)
    m[1](Waits.apply(m[0](x), ended)).sum().backward()
    hvd.allreduce(torch.ones(1), name="backward.has.ended")
    optimizer.step()
    hvd.barrier()
    hvd.stop_timeline()
    if R != 0:
        return
    with open(path) as f:
        events = [e for e in json.load(f) if e]
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    last = {}
    for event in events:
        if "ts" in event:
            last[names.get(event["pid"])] = max(last.get(names.get(event["pid"]), 0), event["ts"])
    assert (
        last["allreduce." + optimizer._hvd.sent_as(m[1].weight)] < last["allreduce.backward.has.ended"]
    ), last


@check_if(N > 1)
def the_interpreter_runs_while_a_rank_waits():
    m = model()
    optimizer = wrap(m)
    loss_of(m, batch(0, R)).backward()
    if R == 0:
        ticked = threading.Event()
        thread = threading.Thread(target=lambda: (ticked.set(), hvd.allreduce(torch.ones(1), name="go")))
        watch = threading.Thread(target=optimizer.synchronize)
        watch.start()
        thread.start()
        assert ticked.wait(60)
        thread.join(60)
        watch.join(60)
    else:
        hvd.allreduce(torch.ones(1), name="go")  # only then do the other ranks submit gradients
        optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    close(m, reference(1, sgd))


@check
def wrapping_before_a_world_that_grows_is_made_good():
    m = model()
    optimizer = wrap(m)
    hvd.shutdown()
    hvd.init()
    optimizer.zero_grad()
    train(m, optimizer, 2)
    close(m, reference(2, sgd))
    loss_of(m, batch(2, R)).backward()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    if N > 1:
        expect_error(hvd.HorovodInternalError, ["the world was recreated"], optimizer.step)
    optimizer.load_state_dict(optimizer.state_dict())
    same_everywhere(len(optimizer.state_dict()["state"]))


def trained_once(net, optimizer):
    optimizer.zero_grad()
    loss_of(net, batch(1, R)).backward()
    optimizer.step()
    same_everywhere(sorted(optimizer._hvd._sent_as.values()))


def new_model():
    net = torch.nn.Linear(5, 5).double()
    hvd.broadcast_parameters(net.state_dict(), 0)
    return net, hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=net.named_parameters())


@check
def a_copy_that_one_rank_keeps_changes_no_name():
    kept = []
    for _ in range(3):
        net, optimizer = new_model()
        trained_once(net, optimizer)
        if R == 0:
            kept.append(copy.deepcopy((net, optimizer)))


@check_if(N > 1)
def a_rank_that_joins_counts_names_as_other_ranks_do():
    hvd.shutdown()
    hvd.init()
    if R == 0:  # rank 1 stands for a process that is lost after this
        net, optimizer = new_model()
        optimizer._hvd.sent_as(net.weight)
    else:
        hvd.broadcast_parameters(torch.nn.Linear(5, 5).double().state_dict(), 0)
    hvd.shutdown()
    hvd.init()
    if R != 0:
        net = torch.nn.Linear(5, 5).double()
        optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), 0)
    trained_once(net, optimizer)
    del net, optimizer
    trained_once(*new_model())


main(R)
