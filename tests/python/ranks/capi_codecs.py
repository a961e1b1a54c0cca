# SPDX-License-Identifier: Apache-2.0
"""The codecs of runtime/core/compress against numpy.

The oracles are written from the formats (int8.h, topk.h, powersgd.h) and the papers, step by step with their
residuals. All but PowerSGD must agree bit by bit.
"""

import capi
import numpy as np
from capi import run
from checks import check, main
from exact import bf16_of, wide

capi.init()
R, N = capi.rank(), capi.size()
F = np.float32


def in_order(parts):
    """The sum as every backend and codec takes it: float32, in member order."""
    total = np.zeros_like(parts[0], dtype=F)
    for part in parts:
        total = (total + part).astype(F)
    return total


# --- oracles: one object a codec, step(every rank's tensor) -> the sum ---


class Cast:
    def __init__(self, dtype):
        self.dtype = dtype

    def rounded(self, x):
        narrow = bf16_of(x) if self.dtype == "bfloat16" else x.astype(self.dtype)
        return wide(narrow, self.dtype).astype(F)

    def step(self, tensors):
        return self.rounded(in_order([self.rounded(t) for t in tensors]))


class Int8:
    """Blocks, scales and two ways: everyone sums everything (2 members), or each its shard."""

    def __init__(self, count, block, feedback):
        self.block, self.feedback = block, feedback
        self.residual = [np.zeros(count, F) for _ in range(N)]
        blocks = -(-count // block)
        sizes = [blocks // N + (i < blocks % N) for i in range(N)]
        ends = [0, *np.minimum(np.cumsum(sizes) * block, count)]
        self.shards = [slice(int(a), int(b)) for a, b in zip(ends, ends[1:])]
        self.shard_residual = [np.zeros(s.stop - s.start, F) for s in self.shards]

    def code(self, x, residual):
        """What x decodes to; residual gets the rest."""
        w = (x + residual).astype(F) if self.feedback else x
        decoded = np.zeros_like(w)
        for at in range(0, len(w), self.block):
            b = w[at : at + self.block]
            scale = F(np.abs(b).max() / F(127))
            if scale < np.finfo(F).tiny:
                continue
            q = np.rint(b * (F(1) / scale))
            decoded[at : at + self.block] = q * scale
        residual[:] = (w - decoded).astype(F)
        return decoded

    def step(self, tensors):
        if N == 2:
            return in_order([self.code(t, r) for t, r in zip(tensors, self.residual)])
        parts = []
        for t, r in zip(tensors, self.residual):
            parts.append(np.concatenate([self.code(t[s], r[s]) for s in self.shards]))
        total = in_order(parts)
        return np.concatenate([self.code(total[s], r) for s, r in zip(self.shards, self.shard_residual)])


class TopK:
    def __init__(self, count, k, feedback):
        self.k, self.feedback = k, feedback
        self.residual = [np.zeros(count, F) for _ in range(N)]

    def step(self, tensors):
        parts = []
        for t, r in zip(tensors, self.residual):
            w = (t + r).astype(F) if self.feedback else t
            chosen = np.argsort(-np.abs(w), kind="stable")[: self.k]
            part = np.zeros_like(w)
            part[chosen] = w[chosen]
            r[:] = w
            r[chosen] = 0
            parts.append(part)
        return in_order(parts)


def draw(n, j, seed):
    """powersgd_draw: splitmix64 of a counter."""
    mask = (1 << 64) - 1

    def mix(z):
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        return z ^ z >> 31

    start = mix((seed + (j + 1) * 0xD1342543DE82EF95) & mask)
    z = [mix((start + (i + 1) * 0x9E3779B97F4A7C15) & mask) for i in range(n)]
    return np.array([F(v >> 40) * F(2.0**-23) - F(1) for v in z], F)


class PowerSGD:
    """Algorithm 1 and 2 of the paper in float64, with Q made orthonormal before use."""

    def __init__(self, rows, cols, rank, seed, feedback):
        self.feedback = feedback
        self.error = [np.zeros((rows, cols)) for _ in range(N)]
        self.q = np.stack([draw(cols, j, seed) for j in range(rank)], axis=1).astype(np.float64)

    @staticmethod
    def orthonormal(v):
        q, r = np.linalg.qr(v)
        return q * np.sign(np.diag(r))

    def step(self, tensors):
        ms = [t.astype(np.float64) + (e if self.feedback else 0) for t, e in zip(tensors, self.error)]
        q = self.orthonormal(self.q)
        p = self.orthonormal(sum(m @ q for m in ms))
        own = [m.T @ p for m in ms]
        self.error = [m - p @ o.T for m, o in zip(ms, own)]
        self.q = sum(own)
        return p @ self.q.T


def gradients(rng, shape):
    """Each rank's: normal, with the wide spread of magnitudes that layers have."""
    scale = np.exp(rng.normal(size=shape) * 3)
    return [(rng.normal(size=shape) * scale).astype(F) for _ in range(N)]


def follow(codec, oracle, shape, tolerance=0.0, draw_tensors=gradients, steps=8):
    """Steps of one tensor. Its name is the same in all of them: so the residuals are kept."""
    rng = np.random.default_rng(7)
    what = f"{codec} of {shape}"
    for step in range(steps if N > 1 else 0):  # a world of one sends nothing
        tensors = draw_tensors(rng, shape)
        got = run("allreduce", tensors[R], name=what, compression=codec)
        want = oracle.step(tensors)
        if tolerance:
            error = np.linalg.norm(got - want) / np.linalg.norm(want)
            assert error < tolerance, f"{what}, step {step}: {error}"
        else:
            np.testing.assert_array_equal(got, want.astype(F), err_msg=f"{what}, step {step}")


@check
def fp16_and_bf16_agree_bit_by_bit():
    for codec, dtype in (("fp16", "float16"), ("bf16", "bfloat16")):
        for count in (1, 777, 1000):
            with np.errstate(over="ignore"):
                follow(codec, Cast(dtype), (count,))


@check
def int8_agrees_bit_by_bit():
    for count, block in ((100, 512), (1000, 512), (1025, 256), (5000, 256), (5000, 1024), (1024, 256)):
        for feedback in (1, 0):
            follow(f"int8:block={block},feedback={feedback}", Int8(count, block, feedback), (count,))


@check
def topk_agrees_bit_by_bit():
    for count, k in ((1000, 1), (5000, 50), (4097, 900), (300, 3)):
        for feedback in (1, 0):
            follow(f"topk:k={k},feedback={feedback}", TopK(count, k, feedback), (count,))


@check
def topk_breaks_ties_by_index():
    def ties(rng, shape):
        return [rng.integers(-3, 4, shape).astype(F) for _ in range(N)]

    follow("topk:ratio=0.1", TopK(2000, 200, True), (2000,), draw_tensors=ties, steps=20)


@check
def powersgd_follows_the_paper_step_by_step():
    def normal(rng, shape):
        return [rng.normal(size=shape).astype(F) for _ in range(N)]

    for rows, cols, rank in ((60, 40, 1), (33, 200, 4), (100, 1100, 7)):
        for feedback in (1, 0):
            oracle = PowerSGD(rows, cols, rank, 11, feedback)
            codec = f"powersgd:rank={rank},seed=11,feedback={feedback}"
            follow(codec, oracle, (rows, cols), 2e-5, normal, steps=6)


main(R)
