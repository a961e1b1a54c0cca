# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: B023  compare() calls its functions before the next iteration
"""Values and gradients that only horovod.torch has, against one process' autograd over all ranks' inputs: Min, Max
and Product, reduce, gather, send; derivatives of derivatives, order, outputs that are not used.

The total loss is the sum of all ranks' losses. The other gradients: gradients.py.
"""

import threading
import zlib

import horovod.torch as hvd
import torch
from checks import check, expect_error, main

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()


def numbers(shape, *seed):
    """The same on every rank, whatever is drawn before."""
    generator = torch.Generator().manual_seed(zlib.crc32(repr(seed).encode()))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def close(got, expected, what):
    assert got.shape == expected.shape, f"{what}: shape {tuple(got.shape)}, not {tuple(expected.shape)}"
    assert torch.allclose(got, expected, rtol=1e-9, atol=1e-12), f"{what}: {got} is not {expected}"


def compare(call, reference, shapes, inputs=None):
    """call(*tensors of this rank) against reference(*[tensors of all ranks]) -> outputs of all ranks.

    shapes(rank) -> one shape for each tensor.
    """
    make = inputs or (lambda r: [numbers(s, r, i) for i, s in enumerate(shapes(r))])
    everyones = [[x.clone().requires_grad_() for x in make(r)] for r in range(N)]
    mine = [x.clone().requires_grad_() for x in make(R)]
    outputs = call(*mine)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    expected = reference(*zip(*everyones))  # of each rank: a list of outputs
    loss, total = 0, 0
    for i, output in enumerate(outputs):
        close(output.detach(), expected[R][i].detach(), f"output {i}")
        loss = loss + (output * numbers(output.shape, "weight", R, i)).sum()
    for r, ys in enumerate(expected):
        total = total + sum((y * numbers(y.shape, "weight", r, i)).sum() for i, y in enumerate(ys))
    loss.backward()
    total.backward()
    for i, x in enumerate(mine):
        grad = everyones[R][i].grad
        close(x.grad, torch.zeros_like(x) if grad is None else grad, f"gradient {i}")


def same(*shapes):
    return lambda rank: shapes


def for_all(n, *outputs):
    return [list(outputs) for _ in range(n)]


REDUCE = {"Min": lambda x: x.amin(0), "Max": lambda x: x.amax(0), "Product": lambda x: x.prod(0)}


@check
def allreduce():
    for name, reduce in REDUCE.items():
        op = getattr(hvd, name)
        compare(
            lambda x: hvd.allreduce(x, op=op), lambda xs: for_all(N, reduce(torch.stack(xs))), same((3, 4))
        )
        compare(
            lambda x: hvd.allreduce(x, op=op, prescale_factor=-0.5, postscale_factor=3.0),
            lambda xs: for_all(N, 3.0 * reduce(-0.5 * torch.stack(xs))),
            same((5,)),
        )


@check
def ties_of_min_and_max_share_the_gradient_and_zeros_have_one():
    ties = lambda r: torch.tensor([1.0, float(r), float(r % 2)], dtype=torch.float64)  # noqa: E731
    zeros = lambda r: torch.tensor([0.0 if r == 0 else 2.0, 0.0, 3.0], dtype=torch.float64)  # noqa: E731
    for name, values in (("Max", ties), ("Min", ties), ("Product", zeros)):
        compare(
            lambda x: hvd.allreduce(x, op=getattr(hvd, name)),
            lambda xs: for_all(N, REDUCE[name](torch.stack(xs))),
            None,
            inputs=lambda r: [values(r)],
        )


@check
def grouped_allreduce():
    for name, reduce in REDUCE.items():
        op = getattr(hvd, name)
        compare(
            lambda *x: hvd.grouped_allreduce(x, op=op, prescale_factor=2.0),
            lambda *xs: for_all(N, *(reduce(2.0 * torch.stack(x)) for x in xs)),
            same((3,), (2, 2), ()),
        )


@check
def reduce_and_gather():
    root = N - 1
    for op, reduce in (("Sum", torch.sum), ("Average", torch.mean)):
        compare(
            lambda x: hvd.reduce(x, root, op=getattr(hvd, op), prescale_factor=2.0),
            lambda xs: [
                [reduce(2.0 * torch.stack(xs), 0) if r == root else torch.zeros(0).double()]
                for r in range(N)
            ],
            same((3, 2)),
        )
    compare(
        lambda x: hvd.gather(x, root),
        lambda xs: [[torch.cat(xs) if r == root else torch.zeros(0, 2).double()] for r in range(N)],
        lambda r: [(r + 1, 2)],
    )


@check
def send_and_receive():
    """Rank 0's tensor goes through the function of rank 1."""
    if N == 1 or R > 1:
        return
    x = numbers((3,), "sent")
    if R == 0:
        x.requires_grad_()
        token = hvd.send(x * 2, 1, name="forth")
        token.sum().backward()
        close(x.grad, 2 * 3 * (2 * x.detach()) ** 2, "gradient")
    else:
        y = hvd.recv(torch.empty(3, dtype=torch.float64, requires_grad=True), 0, name="forth")
        (y**3).sum().backward()


@check
def an_output_that_is_not_used_has_zero_gradients():
    """All ranks take part in backward(); of a group, one output may be left out."""
    x = torch.ones(2, requires_grad=True)
    y = torch.ones(2, requires_grad=True)
    a, _ = hvd.grouped_allreduce([x, y], op=hvd.Sum)
    a.sum().backward()
    assert x.grad.tolist() == [N, N]
    assert y.grad.tolist() == [0, 0]


@check
def second_derivatives():
    x = numbers((3,), R)
    mine = x.clone().requires_grad_()
    (g,) = torch.autograd.grad((hvd.allreduce(mine, op=hvd.Sum) ** 3).sum(), mine, create_graph=True)
    (g * numbers((3,), "w", R)).sum().backward()
    everyones = [numbers((3,), r).requires_grad_() for r in range(N)]
    total = N * (sum(everyones) ** 3).sum()
    grads = torch.autograd.grad(total, everyones, create_graph=True)
    sum((g * numbers((3,), "w", r)).sum() for r, g in enumerate(grads)).backward()
    close(mine.grad, everyones[R].grad, "second derivative")


@check
def ranks_may_come_to_their_gradients_in_any_order():
    """Automatic names are the forward operations'."""
    x = [torch.full((2,), float(i + 1), requires_grad=True) for i in range(2)]
    y = [hvd.allreduce(v, op=hvd.Sum) for v in x]
    threads = [
        threading.Thread(target=lambda i=i: y[i].sum().backward()) for i in ((0, 1) if R % 2 else (1, 0))
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    hvd.barrier()
    assert [v.grad.tolist() for v in x] == [[N, N], [N, N]]


@check
def operations_without_a_gradient_raise():
    x = torch.ones(2 * N, requires_grad=True)
    y = hvd.reducescatter(x, op=hvd.Max)
    expect_error(NotImplementedError, ["reducescatter", "hvd.Sum"], y.sum().backward)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
    assert not hvd.allreduce(torch.ones(2, dtype=torch.int64)).requires_grad


main(R)
