# SPDX-License-Identifier: Apache-2.0
"""For the keras_*.py scripts: a model whose gradients numpy knows, with other data on each rank.

The model is (x @ w + b) @ v + c with a mean squared error, and a weight between that nothing uses, so that a
list of its gradients has a None in the middle. All weights are one vector here, in the order of the model's.
Ranks that are not synchronised, or whose gradients are reduced twice, end at other weights: with op=Sum a second
reduction multiplies by the number of ranks. Gradients that are mixed up do, too: no two weights are alike.
"""

import numpy as np

ROWS, WIDTH = 8, 3
SHAPES = [(WIDTH, WIDTH), (WIDTH,), (WIDTH,), (WIDTH, 1), (1,)]
_ENDS = np.cumsum([np.prod(s) for s in SHAPES])
_PLACES = [slice(end - np.prod(s), end) for s, end in zip(SHAPES, _ENDS)]


class At:
    """The places of the weights in a list of them."""

    W, B, UNUSED, V, C = range(5)


def pieces(vector):
    """The weights of a vector, as the model has them."""
    return [vector[place].reshape(shape) for place, shape in zip(_PLACES, SHAPES)]


def joined(weights):
    return np.concatenate([np.ravel(w) for w in weights])


def chosen(places, of_these, of_others):
    """A vector with the weights of these places from one, and the rest from the other."""
    return joined(
        [a if i in places else b for i, (a, b) in enumerate(zip(pieces(of_these), pieces(of_others)))]
    )


def data(rank, step=0):
    """Another (x, y) on each rank and step."""
    random = np.random.default_rng(1000 * step + rank)
    x = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    return x, (x.sum(axis=1, keepdims=True) * (rank + 2)).astype(np.float32)


def predicted(weights, x):
    w, b, _, v, c = pieces(weights)
    return (x @ w + b) @ v + c


def gradient(weights, rank, step=0):
    w, b, unused, v, _ = pieces(weights)
    x, y = data(rank, step)
    error = 2.0 / ROWS * (predicted(weights, x) - y)
    inner = error @ v.T
    return joined([x.T @ inner, inner.sum(0), 0 * unused, (x @ w + b).T @ error, error.sum(0)])


def mean_gradient(weights, n, step=0):
    return np.mean([gradient(weights, r, step) for r in range(n)], axis=0)


def start():
    return np.linspace(-0.4, 0.5, _ENDS[-1]).astype(np.float32)


def close(got, want, what=""):
    got, want = np.asarray(got), np.asarray(want)
    assert np.allclose(got, want, rtol=2e-4, atol=2e-5), f"{what}: got {got.ravel()}, not {want.ravel()}"


def sgd_steps(n, lr=0.1, steps=1, passes=1, factor=1.0, change=lambda g: g):
    """The weights after so many steps of SGD; factor: 1, or the number of ranks for a sum."""
    w = start()
    for step in range(steps):
        grads = [mean_gradient(w, n, step * passes + i) for i in range(passes)]
        w = w - lr * change(factor * np.sum(grads, axis=0))
    return w
