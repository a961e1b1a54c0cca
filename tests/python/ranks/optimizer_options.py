# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: groups, sparse gradients, compression, process sets, Adasum, odd dtypes."""

import horovod.torch as hvd
import torch
from checks import Calls, check, check_if, expect_error, main
from references import adam, close, compare, plain, reference, same_weights, sgd, trained, wrap
from training import N, R, batch, loss_of, mine, model, train


@check
def groups_by_number_and_by_list_train_alike():
    for make in (
        lambda m: 1,
        lambda m: 3,
        lambda m: 100,
        lambda m: [[m[0].weight, m[2].bias], [m[0].bias]],
        lambda m: [[m[0].weight], []],
    ):
        m = model()
        optimizer = wrap(m, groups=make(m), gradient_predivide_factor=2.0)
        train(m, optimizer, 3)
        close(m, reference(3, sgd))
        train(m, optimizer, [3])  # the group is complete again
        close(m, reference(4, sgd))


@check
def a_rank_alone_may_create_an_optimizer_with_a_number_of_groups():
    if R == 0:
        wrap(model(), groups=2)
    trained(2, groups=2, make=adam)


@check_if(N > 1)
def ranks_whose_parameters_are_in_another_order_get_an_error_with_groups():
    m = model()
    params = list(m.parameters())
    sgd_of = torch.optim.SGD(params if R == 0 else params[::-1], lr=0.1)
    optimizer = hvd.DistributedOptimizer(sgd_of, m.named_parameters(), groups=2)
    loss_of(m, batch(0, R)).backward()
    expect_error(hvd.HorovodInternalError, ["groups", "another"], optimizer.step)


class FailsOnce:
    """A compression that fails with the second gradient that it gets."""

    calls = 0

    @classmethod
    def compress(cls, tensor):
        cls.calls += 1
        if cls.calls == 2:
            raise OverflowError("in compress")
        return tensor.clone(), None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


@check_if(N > 1)
def a_group_is_submitted_as_a_whole_or_not_at_all():
    FailsOnce.calls = 0
    m = model()
    optimizer = wrap(m, groups=1, compression=FailsOnce)
    loss = loss_of(m, batch(0, R))
    with Calls("submit_held") as calls:
        expect_error(OverflowError, ["in compress"], loss.backward)
        assert not calls.made, "a part of the group is submitted"
        optimizer.step()
    assert [len(handles) for _, handles in calls.of("submit_held")] == [4], calls.made
    close(m, reference(1, sgd))


@check
def the_error_about_an_unknown_keyword_names_the_nearest_or_all():
    optimizer = torch.optim.SGD(model().parameters(), lr=1.0)
    words = ["DistributedOptimizer() got", "'backward_passes'; did you mean 'backward_passes_per_step'?"]
    expect_error(TypeError, words, hvd.DistributedOptimizer, optimizer, backward_passes=2)
    words = ["'lr'; there are optimizer, named_parameters, compression, backward_passes_per_step, op, "]
    expect_error(TypeError, words, hvd.DistributedOptimizer, optimizer, lr=2)


@check
def a_group_with_a_missing_or_frozen_member_is_reduced():
    m = torch.nn.ModuleDict({k: torch.nn.Linear(2, 1, bias=False) for k in "abc"})
    with torch.no_grad():
        for p in m.parameters():
            p.fill_(1.0)
    m["c"].weight.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(m.parameters(), lr=1.0),
        named_parameters=m.named_parameters(),
        groups=[[m[k].weight for k in "abc"]],
    )
    for _ in range(2):
        optimizer.zero_grad()
        m["a" if R == 0 else "b"](torch.ones(1, 2)).sum().backward()
        optimizer.step()
    a, b = 1 / N, (N - 1) / N
    assert torch.allclose(m["a"].weight, torch.full((1, 2), 1 - 2 * a)), m["a"].weight
    assert torch.allclose(m["b"].weight, torch.full((1, 2), 1 - 2 * b)), m["b"].weight
    assert torch.equal(m["c"].weight, torch.ones(1, 2))


def embedding():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Embedding(7, 3, sparse=True), torch.nn.Linear(3, 2)).double()


def words(step, rank):
    return torch.tensor([rank % 7, step % 7, 6])


def my_words(step):
    return words(step, R)


def all_words(step):
    return torch.cat([words(step, r) for r in range(N)])


WORDS = my_words, all_words


@check
def sparse_gradients_are_gathered_or_reduced_as_dense_ones():
    def run(m, optimizer, data):
        for step in range(4):
            train(m, optimizer, [step], data)
            assert m[0].weight.grad.is_sparse

    def run_sum(m, optimizer, data):
        (loss_of(m, data(0)) / (N if data is my_words else 1)).backward()
        optimizer.step()

    for options in ({}, {"sparse_as_dense": True}, {"groups": 1}, {"groups": 1, "sparse_as_dense": True}):
        compare(run, embedding, plain, WORDS, **options)
    compare(run_sum, embedding, plain, WORDS, op=hvd.Sum)


@check
def a_sparse_gradient_that_a_rank_lacks_counts_as_no_rows():
    def run(m, optimizer, data, has_words=lambda step: step != 1):
        for step in range(3):
            optimizer.zero_grad(set_to_none=True)
            rows = 3 * (N if data is all_words else 1)
            x = m[0](data(step)) if has_words(step) else torch.ones(rows, 3).double()
            loss_of(m[1], x).backward()
            optimizer.step()
        assert m[0].weight.grad.is_sparse

    for options in ({}, {"sparse_as_dense": True}, {"groups": 1}):
        compare(run, embedding, plain, WORDS, **options)
        m = embedding()
        run(m, wrap(m, plain, **options), my_words, lambda step: step != 1 or R == 0)
        same_weights(m)


@check
def sparse_adam_gets_sparse_gradients():
    for options in ({}, {"sparse_as_dense": True}):
        compare(
            lambda m, optimizer, data: train(m, optimizer, 3, data),
            lambda: embedding()[0],
            lambda params: torch.optim.SparseAdam(list(params)),
            WORDS,
            **options,
        )


@check
def a_compression_of_the_users_is_called_and_one_of_the_runtimes_is_named():
    class Halves:
        calls = []

        @classmethod
        def compress(cls, tensor):
            cls.calls.append("c")
            return tensor / 2, 2.0

        @classmethod
        def decompress(cls, tensor, ctx):
            cls.calls.append("d")
            return tensor * ctx

    trained(2, compression=Halves)
    assert sorted(Halves.calls) == (["c"] * 8 + ["d"] * 8 if N > 1 else []), Halves.calls
    trained(2, compression=Halves())  # an object with the two methods

    class Wire:
        wire = "fp16"

        @staticmethod
        def compress(tensor):
            raise AssertionError("called")

        decompress = compress

    m, exact = model().float(), model().float()
    train_floats(m, wrap(m, compression=Wire))
    train_floats(exact, wrap(exact))
    gap = max((p - q).abs().max().item() for p, q in zip(m.parameters(), exact.parameters()))
    assert (0 < gap < 1e-3) if N > 1 else gap == 0, gap

    class Unknown(Wire):
        wire = "zip"

    if N > 1:
        m = model().float()
        optimizer = wrap(m, compression=Unknown)
        expect_error((ValueError, hvd.HorovodInternalError), ["zip"], train_floats, m, optimizer)


def train_floats(m, optimizer):
    optimizer.zero_grad()
    loss_of(m, batch(0, R).float()).backward()
    optimizer.step()


@check_if(N > 1)
def ranks_outside_a_process_set_step_alone():
    members = [0] if N == 2 else [0, 1]
    inside = hvd.add_process_set(members)
    m = model()
    optimizer = wrap(m, process_set=inside)
    train(m, optimizer, 2)
    other = model()
    alone = sgd(other.parameters())
    together = lambda step: torch.cat([batch(step, r) for r in members])  # noqa: E731
    train(other, alone, 2, together if R in members else mine)
    close(m, other)
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    m = model()
    train(m, wrap(m, process_set=inside, groups=2), 2)
    sums = hvd.allgather_object([p.sum().item() for p in m.parameters()])
    assert all((sums[r] == sums[0]) == (r in members) for r in range(N)), sums
    hvd.remove_process_set(inside)


@check
def mixed_dtypes_train():
    m = torch.nn.ModuleList(
        [torch.nn.Linear(3, 2, bias=False).to(t) for t in (torch.float32, torch.float64, torch.bfloat16)]
    )
    with torch.no_grad():
        for p in m.parameters():
            p.fill_(1.0)
    phase = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*m.parameters(), phase], lr=0.5))
    loss = sum(f(torch.full((1, 3), float(R), dtype=f.weight.dtype)).float().sum() for f in m)
    (loss + (phase * complex(0.0, R)).abs().pow(2).sum() / 2).backward()
    optimizer.step()
    mean = (N - 1) / 2
    for p in m.parameters():
        assert torch.allclose(p.float(), torch.full((2, 3), 1 - 0.5 * mean)), p
    squares = sum(r * r for r in range(N)) / N
    assert torch.allclose(phase, torch.full((2,), 1 - 0.5 * squares, dtype=torch.complex64)), phase


@check
def gradients_that_are_not_contiguous_train():
    def images(*ranks):
        some = [torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(r)) for r in ranks]
        return torch.cat(some).double().to(memory_format=torch.channels_last)

    def net():
        torch.manual_seed(1)
        m = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3), torch.nn.Conv2d(3, 2, 3)).double()
        return m.to(memory_format=torch.channels_last)

    data = (lambda step: images(R)), (lambda step: images(*range(N)))
    compare(lambda m, optimizer, data: train(m, optimizer, 1, data), net, data=data)


def adasum(a, b):
    """Horovod's formula for two vectors."""
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return (1 - dot / (2 * aa)) * a + (1 - dot / (2 * bb)) * b


@check
def adasum_combines_what_each_rank_would_have_changed():
    for make in (sgd, adam, plain):
        m = model()
        optimizer = wrap(m, make, op=hvd.Adasum)
        loss_of(m, batch(0, R)).backward()
        optimizer.synchronize()
        optimizer.step()
        optimizer.zero_grad()
        same_weights(m)
        if N > 2:
            continue
        changes = []
        for rank in range(N):
            other = model()
            alone = make(other.parameters())
            loss_of(other, batch(0, rank)).backward()
            alone.step()
            changes.append(
                [q.detach() - p.detach() for p, q in zip(model().parameters(), other.parameters())]
            )
        for p, q, *deltas in zip(m.parameters(), model().parameters(), *changes):
            want = q + (adasum(*deltas) if N == 2 else deltas[0])
            assert torch.allclose(p, want, atol=1e-9), (p - want).abs().max()


@check
def adasum_of_complex_parameters_is_that_of_their_parts():
    values = torch.tensor([1 + 2j, 3 - 1j, -2 + 0.5j])
    phase, parts = (
        torch.nn.Parameter(values.clone()),
        torch.nn.Parameter(torch.view_as_real(values).clone()),
    )
    for p, numbers in ((phase, lambda: phase), (parts, lambda: torch.view_as_complex(parts))):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=0.1), op=hvd.Adasum)
        (numbers() * (R + 1) - 1j * R).abs().pow(2).sum().backward()
        optimizer.step()
    assert not torch.equal(phase, values)
    assert torch.allclose(torch.view_as_real(phase), parts, atol=1e-6), (phase, parts)


@check
def adasum_accumulates_takes_closures_and_misses():
    m = model()
    optimizer = wrap(m, op=hvd.Adasum, backward_passes_per_step=2)
    for step in range(2):
        (loss_of(m, batch(step, R)) / 2).backward()
    optimizer.step()
    same_weights(m)
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    before = [p.detach().clone() for p in m.parameters()]

    def closure():
        loss = loss_of(m, batch(2, R))
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0
    same_weights(m)
    assert all(not torch.equal(p, q) for p, q in zip(m.parameters(), before))
    optimizer.zero_grad()
    m[0](batch(0, R)).sum().backward()  # m[2] has no gradient
    optimizer.step()
    same_weights(m)


@check_if(N > 1)
def adasum_refuses_what_it_cannot_do():
    m = model()
    optimizer = wrap(m, op=hvd.Adasum)
    loss_of(m, batch(0, R)).backward()
    expect_error(AssertionError, ["zero_grad() was called after"], optimizer.zero_grad)
    words = ["more than backward_passes_per_step times"]
    expect_error(AssertionError, words, lambda: loss_of(m, batch(0, R)).backward())
    optimizer.step()
    some = hvd.add_process_set(list(range(N - 1)))
    text = expect_error(NotImplementedError, [], wrap, m, op=hvd.Adasum, process_set=some)
    assert text == "Adasum does not support non-global process sets yet."
    hvd.remove_process_set(some)


main(R)
