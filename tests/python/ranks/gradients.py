# SPDX-License-Identifier: Apache-2.0
"""gradients.py torch|tensorflow: gradients of the collectives, by numpy, in the world and in a process set.

The loss of a rank is the sum of its outputs, each times a weight of its own. The collectives are linear, so their
gradients follow from all ranks' weights; the factors are Horovod's: allgather and broadcast average over the ranks,
a reducescatter by Sum multiplies by their number. Gradients of one framework only: ops_gradients.py,
tensorflow_graphs.py.
"""

import sys

import numpy as np
from checks import check, main

if sys.argv[1] == "torch":
    import horovod.torch as hvd
    import torch

    torch.set_num_threads(1)

    def gradients(function, arrays, weights):
        """Yields the gradients of the arrays."""
        leaves = [torch.from_numpy(a).requires_grad_() for a in arrays]
        outputs = function(*leaves)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        sum((o * torch.from_numpy(w)).sum() for o, w in zip(outputs, weights)).backward()
        yield [x.grad.numpy() for x in leaves]

else:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    def gradients(function, arrays, weights):
        """Yields the gradients of the arrays: eagerly, and in a graph whose inputs have no known shape."""

        def gradient(*leaves):
            with tf.GradientTape() as tape:
                tape.watch(leaves)
                outputs = function(*leaves)
                outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
                loss = tf.add_n([tf.reduce_sum(o * w) for o, w in zip(outputs, weights)])
            return tape.gradient(loss, leaves)

        leaves = [tf.constant(a) for a in arrays]
        signature = [tf.TensorSpec(None, a.dtype) for a in arrays]
        for once in (gradient, tf.function(gradient, input_signature=signature)):
            yield [g.numpy() for g in once(*leaves)]


hvd.init()
R, N = hvd.rank(), hvd.size()
REST = hvd.add_process_set(range(1, N)) if N > 2 else None
REDUCE = {"Sum": lambda w: np.sum(w, 0), "Average": lambda w: np.mean(w, 0)}


def drawn(shape, *seed):
    """The same numbers on every rank."""
    return np.random.default_rng([*map(abs, seed), len(shape)]).normal(size=shape)


def compare(what, call, shapes_in, shapes_out, expected):
    """call(*tensors, **options) against expected(me, ranks, weights) -> a gradient for each tensor.

    shapes_in, shapes_out: (member, n) -> a shape for each tensor and output; weights[member]: those of its outputs.
    """
    for ranks, options in (range(N), {}), (range(1, N), {"process_set": REST}):
        if R not in ranks or (options and REST is None):
            continue
        n, me = len(ranks), R - ranks[0]
        weights = [[drawn(s, m, i) for i, s in enumerate(shapes_out(m, n))] for m in range(n)]
        arrays = [drawn(s, 50 + me, i) for i, s in enumerate(shapes_in(me, n))]
        wanted = expected(me, ranks, weights)
        for got in gradients(lambda *x, o=options, r=ranks: call(*x, ranks=r, **o), arrays, weights[me]):
            for i, (a, b) in enumerate(zip(got, wanted)):
                assert a.shape == b.shape, (
                    f"{what} {options}: gradient {i} has shape {a.shape}, not {b.shape}"
                )
                assert np.allclose(a, b, rtol=1e-9, atol=1e-12), (
                    f"{what} {options}: gradient {i}: {a}, not {b}"
                )


def same(*shapes):
    return lambda member, n: shapes


@check
def allreduce_reduces_the_gradient():
    for name, reduce in REDUCE.items():
        op = getattr(hvd, name)
        for pre, post in ((1.0, 1.0), (-0.5, 3.0)):
            compare(
                f"{name} {pre} {post}",
                lambda x, ranks, op=op, pre=pre, post=post, **o: hvd.allreduce(
                    x, op=op, prescale_factor=pre, postscale_factor=post, **o
                ),
                same((3, 4)),
                same((3, 4)),
                lambda me, ranks, w, f=reduce, by=pre * post: [by * f([x[0] for x in w])],
            )
        shapes = same((3,), (2, 2), ())
        compare(
            f"grouped {name}",
            lambda *x, ranks, op=op, **o: hvd.grouped_allreduce(list(x), op=op, prescale_factor=2.0, **o),
            shapes,
            shapes,
            lambda me, ranks, w, f=reduce: [2.0 * f([x[i] for x in w]) for i in range(3)],
        )


def rows_before(member):
    return sum(m + 1 for m in range(member))


@check
def allgather_averages_the_gradient_of_its_rows():
    def expected(me, ranks, w):
        mine = slice(rows_before(me), rows_before(me + 1))
        return [np.mean([x[0][mine] for x in w], 0), np.mean([x[1][2 * me : 2 * me + 2] for x in w], 0)]

    shapes_in = lambda m, n: [(m + 1, 2), (2,)]  # noqa: E731
    shapes_out = lambda m, n: [(rows_before(n), 2), (2 * n,)]  # noqa: E731
    compare(
        "grouped allgather",
        lambda *x, ranks, **o: hvd.grouped_allgather(list(x), **o),
        shapes_in,
        shapes_out,
        expected,
    )
    compare(
        "allgather",
        lambda x, ranks, **o: hvd.allgather(x, **o),
        lambda m, n: shapes_in(m, n)[:1],
        lambda m, n: shapes_out(m, n)[:1],
        lambda me, ranks, w: expected(me, ranks, [[x[0], np.zeros(2 * len(w))] for x in w])[:1],
    )


@check
def broadcast_averages_the_gradient_on_the_root():
    for last in (False, True):
        compare(
            f"broadcast from the last: {last}",
            lambda x, ranks, last=last, **o: hvd.broadcast(x, ranks[-1] if last else ranks[0], **o),
            same((4,)),
            same((4,)),
            lambda me, ranks, w, last=last: [
                np.mean([x[0] for x in w], 0) * (me == (len(w) - 1 if last else 0))
            ],
        )


@check
def alltoall_sends_the_gradient_back():
    def split(m, n):
        return [(m + to) % 3 for to in range(n)]

    def expected(me, ranks, w):
        n, parts = len(w), []
        for to in range(n):
            start = sum(split(m, n)[to] for m in range(me))
            parts.append(w[to][0][start : start + split(me, n)[to]])
        return [np.concatenate(parts)]

    compare(
        "alltoall with splits",
        lambda x, ranks, **o: hvd.alltoall(x, split(R - ranks[0], len(ranks)), **o)[0],
        lambda m, n: [(sum(split(m, n)), 2)],
        lambda m, n: [(sum(split(k, n)[m] for k in range(n)), 2)],
        expected,
    )
    compare(
        "alltoall",
        lambda x, ranks, **o: hvd.alltoall(x, **o),
        lambda m, n: [(2 * n, 3)],
        lambda m, n: [(2 * n, 3)],
        lambda me, ranks, w: [np.concatenate([x[0][2 * me : 2 * me + 2] for x in w])],
    )


@check
def reducescatter_gathers_the_gradient():
    share = lambda rows, m, n: (rows // n + (m < rows % n), 2)  # noqa: E731
    for name in REDUCE:
        op, of_ranks = getattr(hvd, name), name == "Sum"
        for more in (0, 1):
            compare(
                f"reducescatter {name} {more}",
                lambda x, ranks, op=op, **o: hvd.reducescatter(
                    x, op=op, prescale_factor=0.5, postscale_factor=3.0, **o
                ),
                lambda m, n, more=more: [(2 * n + more, 2)],
                lambda m, n, more=more: [share(2 * n + more, m, n)],
                lambda me, ranks, w, s=of_ranks: [
                    1.5 * (len(w) if s else 1) * np.concatenate([x[0] for x in w])
                ],
            )
        compare(
            f"grouped reducescatter {name}",
            lambda *x, ranks, op=op, **o: hvd.grouped_reducescatter(list(x), op=op, **o),
            lambda m, n: [(2 * n, 2), (n + 1, 2)],
            lambda m, n: [share(2 * n, m, n), share(n + 1, m, n)],
            lambda me, ranks, w, s=of_ranks: [
                (len(w) if s else 1) * np.concatenate([x[i] for x in w]) for i in range(2)
            ],
        )


@check
def nothing_is_left_for_the_next_script():
    assert REST is None or hvd.remove_process_set(REST)


main(R)
