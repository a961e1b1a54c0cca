# SPDX-License-Identifier: Apache-2.0
"""hvd.Compression: the runtime's codecs, Horovod's contract, and users' own compressors."""

import pickle

import horovod.torch as hvd
import numpy as np
import torch
from _hvd.compression import without_feedback
from _hvd.torch.compression import caster, wire_of
from checks import check, check_if, expect_error, main
from horovod.torch.compression import Compressor, FP16Compressor, NoneCompressor

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()
C = hvd.Compression
CODECS = {
    "fp16": C.fp16,
    "bf16": C.bf16,
    "int8": C.int8,
    "topk": C.topk(ratio=0.01),
    "powersgd": C.powersgd(rank=2),
}


def tensor(rank, *shape, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randn(*shape, generator=generator)


def same_everywhere(x):
    """All ranks have the same bits."""
    said = hvd.allgather_object(x.contiguous().numpy().tobytes())
    assert all(s == said[0] for s in said), "ranks differ"
    return x


@check
def names_on_the_wire():
    wires = {
        C.none: None,
        C.fp16: "fp16",
        C.bf16: "bf16",
        C.int8: "int8",
        C.int8(block=256, feedback=False): "int8:block=256,feedback=0",
        C.topk: "topk",
        C.topk(ratio=0.001): "topk:ratio=0.001",
        C.topk(ratio=1.0): "topk:ratio=1",
        C.topk(ratio=1e-7): "topk:ratio=0.0000001",
        C.topk(k=5): "topk:k=5",
        C.powersgd(rank=8): "powersgd:rank=8",
        C.powersgd(rank=8)(seed=3): "powersgd:rank=8,seed=3",
    }
    for compressor, wire in wires.items():
        assert compressor.wire == wire_of(compressor) == wire, (compressor.wire, wire)
    assert wire_of(C.int8, is_named=False) == "int8:feedback=0"
    assert wire_of(C.topk(k=5), is_named=False) == "topk:k=5,feedback=0"
    assert wire_of(C.topk(k=5, feedback=True), is_named=False) == "topk:k=5,feedback=1"
    assert wire_of(C.fp16, is_named=False) == "fp16"
    assert wire_of(C.int8(block=np.int64(64))) == "int8:block=64"
    assert wire_of(C.topk(ratio=np.float32(0.5))) == "topk:ratio=0.5"
    assert without_feedback("int8:feedback=1,block=64") == "int8:block=64,feedback=0"
    assert without_feedback("fp16") == "fp16" and without_feedback("") == ""
    assert C.int8 == C.int8() and C.int8 != C.int8(block=256) and len({C.int8, C.int8()}) == 1
    for compressor in wires:
        assert pickle.loads(pickle.dumps(compressor)) == compressor
    assert "topk:ratio=0.001" in repr(C.topk(ratio=0.001))
    expect_error(TypeError, ["ratio", "number", "str"], C.topk, ratio="a lot")


@check
def direct_users_get_horovods_contract():
    x = torch.tensor([1.5, 70000.0, -2.0])
    small, ctx = C.bf16.compress(x)  # fp16: symbols/training.py
    assert small.dtype == torch.bfloat16 and ctx == torch.float32
    assert C.bf16.decompress(small, ctx).dtype == torch.float32
    whole, ctx = C.bf16.compress(torch.arange(3))
    assert whole.dtype == torch.int64 and C.bf16.decompress(whole, ctx).tolist() == [0, 1, 2]
    for compressor in (C.none, C.int8, C.topk(k=1), C.powersgd):
        same, ctx = compressor.compress(x)
        assert same is x and compressor.decompress(same, ctx) is x
    assert C.none is NoneCompressor and C.fp16 is FP16Compressor
    assert issubclass(C.fp16, Compressor) and isinstance(C.int8, Compressor)
    expect_error(NotImplementedError, [], Compressor.compress, x)


@check_if(N > 1)
def unnamed_tensors_keep_nothing():
    mine = tensor(R, 64)
    compressor = C.topk(k=2)
    first = hvd.allreduce(mine, compression=compressor)
    again = hvd.allreduce(mine, compression=compressor)
    assert torch.equal(first, again)
    assert (first != 0).sum() <= 2 * N


@check
def groups_travel_compressed():
    inputs = [tensor(R, 40, seed=i) for i in range(3)]
    outs = hvd.grouped_allreduce(inputs, op=hvd.Sum, name="grouped", compression=C.int8)
    for i, out in enumerate(outs):
        whole = sum(tensor(r, 40, seed=i) for r in range(N))
        assert (same_everywhere(out) - whole).abs().max() <= 0.03 * whole.abs().max()
    assert hvd.grouped_allreduce([], compression=C.int8) == []


@check
def gradients_flow_through_compressed_sums():
    for compressor in (C.fp16, C.bf16, C.int8):
        x = tensor(R, 50).requires_grad_()
        weights = torch.linspace(-1, 1, 50)
        (hvd.allreduce(x, op=hvd.Sum, compression=compressor, name="flow") * weights).sum().backward()
        assert (x.grad - N * weights).abs().max() <= 0.02 * N


@check
def reducescatter_takes_casts_and_refuses_codecs():
    mine = tensor(R, 2 * N, 3)
    whole = sum(tensor(r, 2 * N, 3) for r in range(N))[2 * R : 2 * R + 2]
    for compressor in (C.none, C.fp16, C.bf16):
        out = hvd.reducescatter(mine, op=hvd.Sum, compression=compressor)
        assert out.dtype == torch.float32 and (out - whole).abs().max() < 0.1
        (out,) = hvd.grouped_reducescatter([mine], op=hvd.Sum, compression=compressor)
        assert out.dtype == torch.float32 and (out - whole).abs().max() < 0.1
    for function, arg in ((hvd.reducescatter, mine), (hvd.grouped_reducescatter, [mine])):
        words = ["does not support int8", "only allreduce"]
        expect_error(NotImplementedError, words, function, arg, compression=C.int8)
    assert caster(C.none, "x") is C.none


@check
def wrong_parameters_get_the_runtimes_sentence():
    x = torch.ones(64)
    for compressor, words in (
        (C.int8(block=3), ["block", "256"]),
        (C.topk(ratio=0.1, k=3), ["ratio and k exclude each other"]),
    ):
        expect_error(ValueError, words, hvd.allreduce, x, name="wrong", compression=compressor)
    if N > 1:
        mixed = C.int8 if R == 0 else C.int8(block=256)
        words = ["compression", "rank 0", "int8"]
        expect_error(hvd.HorovodInternalError, words, hvd.allreduce, x, name="mixed", compression=mixed)
    assert hvd.allreduce(x, name="wrong", op=hvd.Sum)[0] == N  # later operations work


# --- users' own --------------------------------------------------------------------------------------


class Sign(Compressor):
    """One of a user's, with static methods as Horovod's."""

    @staticmethod
    def compress(tensor):
        return tensor.sign().to(torch.int8), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx)


class Scaled:
    """One with state of its own, no class of ours."""

    def __init__(self, scale):
        self.scale = scale
        self.calls = 0

    def compress(self, tensor):
        self.calls += 1
        return tensor * self.scale, self.scale

    def decompress(self, tensor, ctx):
        return tensor / ctx


class Louder(C.fp16):
    """A subclass of ours with a method of its own: that one counts, not the codec."""

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.type(ctx) * 2


class NoDecompress:
    @staticmethod
    def compress(tensor):
        return tensor, None


@check
def users_own_compressors_work():
    x = tensor(R, 20)
    whole = sum(tensor(r, 20) for r in range(N))
    signs = sum(tensor(r, 20).sign() for r in range(N))
    assert torch.equal(hvd.allreduce(x, op=hvd.Sum, compression=Sign), signs)
    scaled = Scaled(4.0)
    assert torch.allclose(hvd.allreduce(x, op=hvd.Sum, compression=scaled), whole)
    assert torch.allclose(hvd.grouped_allreduce([x, x], op=hvd.Sum, compression=scaled)[1], whole)
    assert scaled.calls == 3 and pickle.loads(pickle.dumps(scaled)).scale == 4.0
    assert torch.allclose(hvd.allreduce(x, op=hvd.Sum, compression=Louder), 2 * whole, atol=0.05)
    for bad, words in (
        (NoDecompress, ["NoDecompress", "decompress()"]),
        (NoDecompress(), ["NoDecompress", "decompress()"]),
        ("int8", ["compression=str", "compress()", "hvd.Compression"]),
        (None, ["compression=NoneType", "compress()"]),
        (type("Wrong", (), {"wire": 8}), ["wire", "string", "int"]),
    ):
        expect_error(TypeError, words, hvd.allreduce, x, compression=bad)
        expect_error(TypeError, words, hvd.reducescatter, x, compression=bad)


# --- the optimizer -----------------------------------------------------------------------------------


def regression(steps, compression, wrap=True, lr=0.05, backward_passes=1):
    """Least squares of 24x8 weights by ranks with different rows; returns the losses of all rows."""
    generator = torch.Generator().manual_seed(11)
    truth = torch.randn(24, 8, generator=generator)
    inputs = [torch.randn(40, 24, generator=generator) for _ in range(N)]
    model = torch.nn.Linear(24, 8, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    if wrap:
        optimizer = hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), compression=compression
        )
    mine = [inputs[R]] if wrap else inputs
    whole = torch.cat(inputs)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.cat(mine)
        ((model(x) - x @ truth) ** 2).mean().backward()
        optimizer.step()
        with torch.no_grad():
            losses.append(((model(whole) - whole @ truth) ** 2).mean().item())
    same_everywhere(model.weight.detach())
    return losses, model.weight.detach().clone()


@check
def training_converges_with_every_codec():
    plain, exact = regression(60, C.none, wrap=False, lr=0.4)
    for name in ("fp16", "bf16", "int8"):
        losses, weights = regression(60, CODECS[name], lr=0.4)
        assert losses[-1] < 1.02 * plain[-1], (name, plain[-1], losses[-1])
        assert (weights - exact).norm() < 0.01 * exact.norm(), name
    # Feedback sends what piled up at once: a rate that suits the uncompressed overshoots here.
    for compressor, rate, bound in ((C.topk(ratio=0.05), 0.05, 0.4), (C.powersgd(rank=2), 0.2, 0.1)):
        losses, _ = regression(60, compressor, lr=rate)
        assert losses[-1] < bound * losses[0], (compressor, losses[0], losses[-1])


@check
def the_optimizer_takes_users_own_compressors():
    plain, weights = regression(20, C.none)
    scaled = Scaled(8.0)
    _, same = regression(20, scaled)
    assert torch.allclose(weights, same, atol=1e-6)
    assert N == 1 or scaled.calls == 20
    model = torch.nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    expect_error(
        TypeError, ["NoDecompress", "decompress()"], hvd.DistributedOptimizer, sgd, compression=NoDecompress
    )


main(R)
