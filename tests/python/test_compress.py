# SPDX-License-Identifier: Apache-2.0
"""The codecs of runtime/core/compress against numpy.

Members are simulated here: C says what each is to communicate (codec_next), numpy carries it out. The
oracles below are written from the formats (int8.h, topk.h, powersgd.h) and the papers, step by step with
their residuals; all but PowerSGD must agree bit by bit.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import unittest
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", "build"))
SUM, AVERAGE = 1, 0
WIDE = all(f" {flag} " in Path("/proc/cpuinfo").read_text() for flag in ("avx2", "f16c"))
ALLREDUCE, ALLGATHER, ALLTOALL = 0, 1, 4
U8, F16, F32, F64, BF16 = 0, 6, 7, 8, 10
F = np.float32


def load():
    target = BUILD / "plain/lib/codec_shim.so"
    make = ["make", "--no-print-directory", f"BUILD={BUILD}", str(target)]
    subprocess.run(make, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=300)
    lib = ctypes.CDLL(str(ROOT / target))
    for name in ("shim_state_new", "shim_begin"):
        getattr(lib, name).restype = ctypes.c_void_p
    lib.shim_plan_size.restype = ctypes.c_size_t
    lib.shim_state_new.argtypes = [ctypes.c_uint64, ctypes.c_int]
    return lib


# --- 16-bit floats ---


def bf16_bits(x):
    """float32 -> bfloat16's bits, to nearest even; finite values and infinities."""
    u = x.astype(F).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (bits.astype(np.uint32) << 16).view(F)


def widen(bits, dtype):
    return bf16_values(bits) if dtype == BF16 else bits.view(np.float16).astype(F)


def narrow(x, dtype):
    return bf16_bits(x) if dtype == BF16 else x.astype(np.float16).view(np.uint16)


def in_order(parts):
    """The sum as every backend and codec takes it: float32, in member order."""
    total = np.zeros_like(parts[0], dtype=F)
    for part in parts:
        total = (total + part).astype(F)
    return total


# --- members ---


class World:
    """Members with the loops for any CPU and, where this one can, the wide ones: they must agree."""

    def __init__(self, lib, text, shape, n, dtype=F32, op=SUM):
        self.lib, self.n, self.dtype = lib, n, dtype
        self.error = ctypes.create_string_buffer(480)
        self.plan = ctypes.create_string_buffer(lib.shim_plan_size())
        dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        r = lib.shim_plan(text.encode(), dtype, op, len(shape), dims, n, self.plan, self.error)
        if r < 0:
            raise ValueError(self.error.value.decode())
        figures = (ctypes.c_uint64 * 7)()
        why = ctypes.create_string_buffer(480)
        lib.shim_plan_figures(self.plan, figures, why)
        self.why = why.value.decode()
        names = "is_compressed raw_bytes wire_bytes sent_bytes sent_raw_bytes state_bytes k"
        for name, value in zip(names.split(), figures):
            setattr(self, name, value)
        self.states = [ctypes.c_void_p(lib.shim_state_new(1 << 40, WIDE and i % 2)) for i in range(n)]

    def close(self):
        for state in self.states:
            self.lib.shim_state_free(state)

    def begin(self, member, tensor, out, prescale, postscale):
        run = self.lib.shim_begin(
            self.states[member],
            b"w",
            self.plan,
            member,
            tensor.ctypes.data_as(ctypes.c_void_p),
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_double(prescale),
            ctypes.c_double(postscale),
            self.error,
        )
        if not run:
            raise RuntimeError(self.error.value.decode())
        return ctypes.c_void_p(run)

    def next(self, run):
        fields = (ctypes.c_uint64 * 8)()
        postscale = ctypes.c_double()
        more = self.lib.shim_next(run, fields, ctypes.byref(postscale), self.error)
        if more < 0:
            raise RuntimeError(self.error.value.decode())
        return [*fields, postscale.value] if more else None

    @staticmethod
    def memory(address, n, kind):
        return np.ctypeslib.as_array((kind * n).from_address(address))

    def carry_out(self, steps):
        """One collective. Returns the bytes that each member put into it."""
        coll, dtype, op, _, _, count = steps[0][:6]
        if coll == ALLREDUCE:
            kind = ctypes.c_float if dtype == F32 else ctypes.c_uint16
            parts = [self.memory(s[3], count, kind) for s in steps]
            total = in_order([p if dtype == F32 else widen(p, dtype) for p in parts])
            factor = steps[0][8] / (self.n if op == AVERAGE else 1)
            total = (total.astype(np.float64) * factor).astype(F)
            for s in steps:
                self.memory(s[4], count, kind)[:] = total if dtype == F32 else narrow(total, dtype)
            return [count * ctypes.sizeof(kind)] * self.n
        parts = []
        for s in steps:
            data = self.memory(s[3], s[5], ctypes.c_uint8).copy()
            splits = self.memory(s[7], self.n, ctypes.c_uint64) if coll == ALLTOALL else None
            parts.append(
                np.split(data, np.cumsum(splits)[:-1].astype(int)) if coll == ALLTOALL else [data] * self.n
            )
        for me, s in enumerate(steps):
            received = [parts[sender][me] for sender in range(self.n)]
            counts = self.memory(s[6], self.n, ctypes.c_uint64)
            assert [len(x) for x in received] == list(counts)
            data = np.concatenate(received)
            self.memory(s[4], len(data), ctypes.c_uint8)[:] = data
        return [s[5] for s in steps]

    def step(self, tensors, prescale=1.0, postscale=1.0):
        """One allreduce. Returns the result, the same on all members, and each member's bytes put in."""
        outs = [np.empty_like(t) for t in tensors]
        runs = [self.begin(i, t, o, prescale, postscale) for i, (t, o) in enumerate(zip(tensors, outs))]
        put = [0] * self.n
        try:
            while True:
                steps = [self.next(run) for run in runs]
                if steps[0] is None:
                    break
                put = [a + b for a, b in zip(put, self.carry_out(steps))]
        finally:
            for run in runs:
                self.lib.shim_end(run)
        for out in outs[1:]:
            assert out.tobytes() == outs[0].tobytes(), "members differ"
        return outs[0], put


# --- oracles: one object a codec, step(tensors) -> the sum ---


class Cast:
    def __init__(self, dtype):
        self.dtype = dtype

    def step(self, tensors):
        parts = [widen(narrow(t, self.dtype), self.dtype) for t in tensors]
        return widen(narrow(in_order(parts), self.dtype), self.dtype)


class Int8:
    """Blocks, scales and two ways: everyone sums everything (2 members), or each its shard."""

    def __init__(self, n, count, block, feedback=True):
        self.n, self.count, self.block, self.feedback = n, count, block, feedback
        self.residual = [np.zeros(count, F) for _ in range(n)]
        blocks = -(-count // block)
        sizes = [blocks // n + (i < blocks % n) for i in range(n)]
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
        if self.n == 2:
            return in_order([self.code(t, r) for t, r in zip(tensors, self.residual)])
        parts = []
        for t, r in zip(tensors, self.residual):
            parts.append(np.concatenate([self.code(t[s], r[s]) for s in self.shards]))
        total = in_order(parts)
        return np.concatenate([self.code(total[s], r) for s, r in zip(self.shards, self.shard_residual)])


class TopK:
    def __init__(self, n, count, k, feedback=True):
        self.k, self.feedback = k, feedback
        self.residual = [np.zeros(count, F) for _ in range(n)]

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

    def __init__(self, n, rows, cols, rank, seed=0, feedback=True):
        self.rank, self.feedback = rank, feedback
        self.error = [np.zeros((rows, cols)) for _ in range(n)]
        self.q = np.stack([draw(cols, j, seed) for j in range(rank)], axis=1).astype(np.float64)

    @staticmethod
    def orthonormal(v):
        q, r = np.linalg.qr(v)
        return q * np.sign(np.diag(r))

    def step(self, tensors):
        shape = self.error[0].shape
        ms = [
            t.reshape(shape).astype(np.float64) + (e if self.feedback else 0)
            for t, e in zip(tensors, self.error)
        ]
        q = self.orthonormal(self.q)
        p = self.orthonormal(sum(m @ q for m in ms))
        own = [m.T @ p for m in ms]
        self.error = [m - p @ o.T for m, o in zip(ms, own)]
        self.q = sum(own)
        return (p @ self.q.T).reshape(-1)


class Compress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lib = load()

    def world(self, *args, **options):
        world = World(self.lib, *args, **options)
        self.addCleanup(world.close)
        self.assertTrue(world.is_compressed, world.why)
        return world

    def gradients(self, seed, n, count):
        """Normal, with the wide spread of magnitudes that layers have."""
        rng = np.random.default_rng(seed)
        for _ in range(8):
            scale = np.exp(rng.normal(size=count) * 3)
            yield [(rng.normal(size=count) * scale).astype(F) for _ in range(n)]

    def same_bits(self, world, oracle, seed, count):
        for i, tensors in enumerate(self.gradients(seed, world.n, count)):
            got, _ = world.step(tensors)
            want = oracle.step(tensors).astype(F)
            # +0 and -0 are the same
            np.testing.assert_array_equal(got, want, err_msg=f"step {i}")

    def test_fp16_and_bf16_agree_bit_by_bit(self):
        for text, dtype in (("fp16", F16), ("bf16", BF16)):
            for n, count in ((2, 1), (2, 1000), (5, 777)):
                with self.subTest(text=text, n=n, count=count), np.errstate(over="ignore"):
                    self.same_bits(self.world(text, (count,), n), Cast(dtype), n, count)

    def test_int8_agrees_bit_by_bit(self):
        cases = [
            (2, 2, 512),
            (2, 1000, 512),
            (2, 1025, 256),
            (3, 5000, 256),
            (8, 5000, 1024),
            (5, 1024, 256),
        ]
        for n, count, block in cases:
            for feedback in (1, 0):
                with self.subTest(n=n, count=count, block=block, feedback=feedback):
                    text = f"int8:block={block},feedback={feedback}"
                    oracle = Int8(n, count, block, feedback == 1)
                    self.same_bits(self.world(text, (count,), n), oracle, n, count)

    def test_topk_agrees_bit_by_bit(self):
        for n, count, k in ((2, 1000, 1), (3, 5000, 50), (2, 4097, 2000), (7, 300, 3)):
            for feedback in (1, 0):
                with self.subTest(n=n, count=count, k=k, feedback=feedback):
                    world = self.world(f"topk:k={k},feedback={feedback}", (count,), n)
                    self.same_bits(world, TopK(n, count, k, feedback == 1), n, count)

    def test_topk_breaks_ties_by_index(self):
        rng = np.random.default_rng(4)
        world, oracle = self.world("topk:ratio=0.1", (2000,), 2), TopK(2, 2000, 200)
        self.assertEqual(world.k, 200)
        for _ in range(20):
            tensors = [rng.integers(-3, 4, 2000).astype(F) for _ in range(2)]
            np.testing.assert_array_equal(world.step(tensors)[0], oracle.step(tensors))

    def test_powersgd_follows_the_paper_step_by_step(self):
        for n, rows, cols, rank in ((2, 60, 40, 1), (3, 33, 200, 4), (2, 100, 1100, 7)):
            for feedback in (1, 0):
                with self.subTest(n=n, rows=rows, cols=cols, rank=rank, feedback=feedback):
                    rng = np.random.default_rng(rank)
                    world = self.world(f"powersgd:rank={rank},seed=11,feedback={feedback}", (rows, cols), n)
                    oracle = PowerSGD(n, rows, cols, rank, 11, feedback == 1)
                    for _ in range(6):
                        tensors = [rng.normal(size=rows * cols).astype(F) for _ in range(n)]
                        got, want = world.step(tensors)[0], oracle.step(tensors)
                        error = np.linalg.norm(got - want) / np.linalg.norm(want)
                        self.assertLess(error, 2e-5)

    def test_training_converges_as_without_compression(self):
        """Least squares by gradient descent, 4 members with their own rows: the way to the solution."""
        rng = np.random.default_rng(8)
        features = [rng.normal(size=(100, 60)) for _ in range(4)]
        truth = rng.normal(size=(60, 20))
        targets = [x @ truth + rng.normal(size=(100, 20)) * 0.1 for x in features]

        def distance(text, steps=300):
            world = self.world(text, truth.shape, 4, op=AVERAGE)
            w = np.zeros_like(truth)
            for _ in range(steps):
                gradients = [(x.T @ (x @ w - y) / 100).astype(F) for x, y in zip(features, targets)]
                w -= 0.1 * world.step(gradients)[0]
            return np.linalg.norm(w - solution) / np.linalg.norm(solution)

        solution = np.linalg.lstsq(np.concatenate(features), np.concatenate(targets), rcond=None)[0]
        for text in ("fp16", "bf16", "int8:block=256", "topk:ratio=0.1", "powersgd:rank=4"):
            with self.subTest(text=text):
                self.assertLess(distance(text), 5e-3)
        # and what feedback is for: each member's largest elements alone lead elsewhere
        self.assertGreater(distance("topk:ratio=0.01,feedback=0"), 10 * distance("topk:ratio=0.01"))


if __name__ == "__main__":
    unittest.main()
