# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm: n ranks with their shares equal one process with the joined batch."""

import copy
import io
import os
import pickle

import horovod.torch as hvd
import torch
from _hvd.torch import sync_batch_norm
from checks import Calls, check, check_if, expect_error, main

hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()
PLAIN = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}
REST = {2: (), 3: (5,), 4: (3, 4), 5: (2, 3, 2)}
F64 = torch.float64


def share(step, rank, dims, rows, channels=3):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(rows, channels, *REST[dims], generator=generator, dtype=F64)
    return x * (1 + torch.arange(channels).view(1, -1, *[1] * (dims - 2))) + 10 * rank


def filled(layer, seed=3):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.rand(p.shape, generator=generator, dtype=F64) + 0.5)
    return layer


def equal(a, b, what, tolerance=1e-12):
    if a is None or b is None:
        assert a is b, (what, a, b)
        return
    gap = (a.detach() - b.detach()).abs().max().item() if a.numel() else 0.0
    scale = max(1.0, b.detach().abs().max().item() if b.numel() else 0.0)
    assert a.shape == b.shape and a.dtype == b.dtype and gap <= tolerance * scale, (
        f"{what} differs by {gap}"
    )


def compare(dims, rows, steps=3, training=True, ranks=None, process_set=hvd.global_process_set, **options):
    """Both layers over some steps, with a loss that all ranks' rows add to alike."""
    ranks = ranks or list(range(N))
    place = ranks.index(R)
    ours = filled(hvd.SyncBatchNorm(3, process_set=process_set, **options).double()).train(training)
    plain = filled(PLAIN[dims](3, **options).double()).train(training)
    start = sum(rows[:place])
    mine = slice(start, start + rows[place])
    for step in range(steps):
        shares = [share(step, r, dims, n) for r, n in zip(ranks, rows)]
        x = shares[place].clone().requires_grad_()
        whole = torch.cat(shares).requires_grad_()
        ours.zero_grad()
        plain.zero_grad()
        out = ours(x)
        expected = plain(whole)
        equal(out, expected[mine], "output")
        (out.sin() * (1 + x.detach())).sum().backward()
        (expected.sin() * (1 + whole.detach())).sum().backward()
        equal(x.grad, whole.grad[mine], "gradient of the input")
        for (name, p), q in zip(ours.named_parameters(), plain.parameters()):
            total = hvd.allreduce(p.grad, op=hvd.Sum, process_set=process_set)
            equal(total, q.grad, f"gradient of {name}")
        for (name, a), b in zip(ours.named_buffers(), plain.buffers()):
            equal(a.to(F64), b.to(F64), f"{name} after step {step}")
    assert ours.state_dict().keys() == plain.state_dict().keys()


@check
def every_dimension_equals_the_joined_batch():
    for dims in PLAIN:
        compare(dims, [4] * N)


@check
def ranks_may_have_batches_of_different_sizes():
    compare(4, [1 + 2 * r for r in range(N)])
    compare(2, [5 - r for r in range(N)])


@check
def one_rank_may_have_no_rows():
    if N > 1:
        for empty in (0, N - 1):
            compare(4, [0 if r == empty else 3 for r in range(N)])
            compare(2, [0 if r == empty else 2 for r in range(N)], affine=False)


@check
def options_are_batch_norms():
    rows = [3] * N
    compare(3, rows, momentum=None)
    compare(3, rows, momentum=0.3, eps=0.1)
    compare(3, rows, momentum=0.0)
    compare(3, rows, affine=False)
    compare(3, rows, track_running_stats=False)
    compare(3, rows, affine=False, track_running_stats=False, momentum=None)


@check
def evaluation_uses_running_statistics_without_the_other_ranks():
    compare(4, [2 + r for r in range(N)], training=False)
    compare(4, [2 + r for r in range(N)], training=False, track_running_stats=False)
    layer = hvd.SyncBatchNorm(3).eval()
    if R == 0:  # no other rank calls
        layer(torch.randn(2, 3))


@check
def a_far_mean_does_not_cancel():
    """E[x^2] - E[x]^2 would lose all digits of the variance here."""
    layer = hvd.SyncBatchNorm(1, affine=False)
    shares = [torch.randn(64, 1, generator=torch.Generator().manual_seed(r)) + 4096 for r in range(N)]
    whole = torch.cat(shares).double()
    out = layer(shares[R])
    expected = ((whole - whole.mean()) / whole.std(unbiased=False))[64 * R : 64 * R + 64]
    gap = (out.double() - expected).abs().max().item()
    assert gap < 1e-2, gap


class Net(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        torch.manual_seed(5)
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.a = norm(4)
        self.deep = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 1), norm(4), torch.nn.ReLU())
        self.last = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.deep(self.a(self.conv(x)).relu()).mean((2, 3)))


@check
def a_network_with_two_layers_trains_like_one_process():
    def train(model, inputs, optimizer, scale):
        for step in range(4):
            optimizer.zero_grad()
            (model(inputs(step)) ** 2).mean().mul(scale).backward()
            optimizer.step()

    ours = hvd.SyncBatchNorm.convert_sync_batchnorm(Net(torch.nn.BatchNorm2d).double())
    sgd = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    sgd = hvd.DistributedOptimizer(sgd, named_parameters=ours.named_parameters())
    train(ours, lambda step: share(step, R, 4, 3), sgd, 1.0)
    plain = Net(torch.nn.BatchNorm2d).double()
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    train(plain, lambda step: torch.cat([share(step, r, 4, 3) for r in range(N)]), sgd, 1.0)
    for (name, a), b in zip(ours.state_dict().items(), plain.state_dict().values()):
        equal(a.to(F64), b.to(F64), name, 1e-9)


@check
def sixteen_bit_inputs_keep_wide_statistics():
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float16, 3e-3)):
        if N == 1 and dtype == torch.float16 and not hasattr(torch, "compile"):
            continue  # alone it is torch's own function, which this torch lacks for it
        layer = hvd.SyncBatchNorm(3)
        shares = [share(0, r, 4, 4).to(dtype) for r in range(N)]
        x = shares[R].clone().requires_grad_()
        whole = torch.cat(shares).double().requires_grad_()
        plain = torch.nn.BatchNorm2d(3).double()
        out = layer(x)
        assert out.dtype == dtype and layer.running_mean.dtype == torch.float32
        expected = plain(whole)
        weights = torch.linspace(-1, 1, expected.numel() // N, dtype=F64).view(x.shape)
        (out.double() * weights).sum().backward()
        (expected * weights.repeat(N, 1, 1, 1)).sum().backward()
        rows = slice(4 * R, 4 * R + 4)
        equal(out.double(), expected[rows], f"{dtype} output", tolerance)
        assert x.grad.dtype == dtype
        equal(x.grad.double(), whole.grad[rows], f"{dtype} gradient", tolerance)
        equal(layer.running_var.double(), plain.running_var, "running variance", 1e-5)
        assert layer.weight.grad.dtype == torch.float32
    layer = hvd.SyncBatchNorm(3).bfloat16()  # parameters and buffers too
    out = layer(share(0, R, 2, 4).bfloat16())
    assert out.dtype == torch.bfloat16 and layer.running_mean.dtype == torch.bfloat16


@check
def it_works_under_autocast():
    net = hvd.SyncBatchNorm.convert_sync_batchnorm(Net(torch.nn.BatchNorm2d))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(share(0, R, 4, 3).float()).float().pow(2).mean()
    loss.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


@check
def memory_formats_and_views_are_taken():
    layer = filled(hvd.SyncBatchNorm(3).double())
    x = share(0, R, 4, 4)
    expected = layer(x)
    out = filled(hvd.SyncBatchNorm(3).double())(x.contiguous(memory_format=torch.channels_last))
    equal(out, expected, "channels last")
    assert out.is_contiguous(memory_format=torch.channels_last)
    wide = torch.cat([x, x], 3)[..., :4]
    equal(filled(hvd.SyncBatchNorm(3).double())(wide), expected, "a view")


@check_if(N > 1)
def one_collective_each_way():
    layer = hvd.SyncBatchNorm(3)
    with Calls("allgather", "allreduce", "broadcast") as calls:
        out = layer(share(0, R, 4, 4).float().requires_grad_())
        assert len(calls.made) == 1, calls.made
        out.sum().backward()
        assert len(calls.made) == 2, calls.made
        layer(share(0, R, 4, 4).float().requires_grad_()).sum().backward()
        layer(share(0, R, 4, 4).float()).sum().backward()  # an input without a gradient: forward only
    every = [
        next(x[0] for x in args if isinstance(x, tuple) and isinstance(x[0], str)) for _, args in calls.made
    ]
    assert len(every) == 5 and every[2:4] == every[:2], every


@check_if(N > 1)
def ranks_with_enough_rows_do_not_read_the_statistics():
    """On a GPU the thread would wait for it, in each layer."""
    item, asked = torch.Tensor.item, []
    torch.Tensor.item = lambda self: (asked.append(1), item(self))[1]
    try:
        layer = hvd.SyncBatchNorm(3)
        layer(share(0, R, 4, 4).float().requires_grad_()).sum().backward()
        assert not asked, f"{len(asked)} times"
        layer(torch.randn(int(R < 2), 3))  # of two ranks one row each, of others none
        assert asked
        words = ["more than 1 value per channel", "1 on all ranks together"]
        expect_error(ValueError, words, layer, torch.randn(int(R == 0), 3))
    finally:
        torch.Tensor.item = item


@check_if(N > 1)
def process_sets_share_statistics_among_themselves():
    """Overlapping sets of several sizes: each layer equals one process with its set's rows."""
    groups = [[r] for r in range(N)] + [list(range(N // 2 + 1)), list(range(N))]
    sets = [hvd.add_process_set(g) if len(g) < N else hvd.global_process_set for g in groups]
    for group, process_set in zip(groups, sets):
        net = hvd.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm1d(3), process_set)
        assert net.process_set is process_set
        if R in group:
            compare(4, [3] * len(group), 2, ranks=group, process_set=process_set)
        else:
            expect_error(ValueError, ["rank", " not "], net, torch.ones(2, 3))
    unknown = hvd.SyncBatchNorm(3, process_set=hvd.ProcessSet([0, N - 1]))
    expect_error(ValueError, ["not been registered"], unknown, torch.ones(2, 3))
    hvd.barrier()
    for process_set in sets[:-1]:
        hvd.remove_process_set(process_set)


@check_if(N > 1)
def names_are_those_of_the_layers_that_met():
    if R == 0:
        extra = [hvd.SyncBatchNorm(3) for _ in range(3)]  # built here only, and never run
        assert len(extra) == 3
    a, b = hvd.SyncBatchNorm(3), hvd.SyncBatchNorm(3)
    for layer in (a, b, copy.deepcopy(a)):
        layer(share(0, R, 4, 4).float())
    names = [sync_batch_norm._name_of(layer) for layer in (a, b)]
    assert len(set(names)) == 2
    assert hvd.allgather_object(names) == [names] * N


@check
def conversion_keeps_parameters_state_and_shape():
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.BatchNorm1d(3)
            self.again = self.first
            self.own = hvd.SyncBatchNorm(3)
            self.instance = torch.nn.InstanceNorm1d(3, affine=True)
            self.none = None
            self.add_module("missing", None)
            self.list = torch.nn.ModuleList(
                [torch.nn.BatchNorm3d(2, affine=False), torch.nn.SyncBatchNorm(4)]
            )
            self.list[0].eval()
            self.untracked = torch.nn.BatchNorm2d(3, track_running_stats=False, eps=0.5, momentum=None)

    model = Shared().double()
    model.first.weight.requires_grad_(False)
    before = dict(model.named_parameters())
    state = {k: v.clone() for k, v in model.state_dict().items()}
    converted = hvd.convert_sync_batchnorm(model)
    assert converted is model
    assert type(model.first) is hvd.SyncBatchNorm and model.again is model.first
    assert type(model.instance) is torch.nn.InstanceNorm1d
    assert type(model.list[0]) is type(model.list[1]) is hvd.SyncBatchNorm
    assert not model.list[0].training and model.list[1].training
    assert model.untracked.running_mean is None and model.untracked.eps == 0.5
    assert model.untracked.momentum is None and model.untracked.track_running_stats is False
    assert model.list[0].affine is False and model.list[0].weight is None
    after = dict(model.named_parameters())
    assert before.keys() == after.keys() and all(after[k] is p for k, p in before.items())
    assert model.state_dict().keys() == state.keys()
    model.load_state_dict(state)
    alone = hvd.convert_sync_batchnorm(torch.nn.BatchNorm2d(3))
    assert type(alone) is hvd.SyncBatchNorm
    other = torch.nn.Linear(2, 2)
    assert hvd.convert_sync_batchnorm(other) is other

    class Own(hvd.SyncBatchNorm):
        pass

    assert type(Own.convert_sync_batchnorm(torch.nn.BatchNorm2d(3))) is Own
    words = ["number of channels", "one batch through the model"]
    expect_error(ValueError, words, hvd.convert_sync_batchnorm, torch.nn.LazyBatchNorm1d())


@check
def checkpoints_of_torchs_layers_load_and_models_pickle():
    theirs = filled(torch.nn.SyncBatchNorm(3))
    theirs.running_mean.fill_(2.0)
    ours = hvd.SyncBatchNorm(3)
    ours.load_state_dict(theirs.state_dict())
    assert ours.running_mean.tolist() == [2.0] * 3
    torch.nn.BatchNorm2d(3).load_state_dict(ours.state_dict())
    for clone in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        clone(share(0, R, 4, 4).float())
        assert clone.process_set is hvd.global_process_set
    content = io.BytesIO()
    torch.save(ours.state_dict(), content)


@check
def wrong_inputs_get_a_sentence():
    layer = hvd.SyncBatchNorm(3)
    expect_error(ValueError, ["expected at least 2D input (got 1D input)"], layer, torch.ones(3))
    expect_error(ValueError, ["expected 3 channels", "got 4"], layer, torch.ones(2, 4))
    expect_error(ValueError, ["floating point", "int64"], layer, torch.ones(2, 3, dtype=torch.int64))
    expect_error(ValueError, ["channels should be non-zero"], hvd.SyncBatchNorm(0), torch.ones(2, 0))
    x = torch.ones(1 if R == 0 else 0, 3)
    expect_error(ValueError, ["more than 1 value per channel"], layer, x)
    if N > 1:
        x = torch.ones(0, 3)
        expect_error(ValueError, ["more than 1 value", "0 on all ranks"], layer, x)
        channels = hvd.SyncBatchNorm(3 + R)
        expect_error((ValueError, hvd.HorovodInternalError), ["rank"], channels, torch.ones(2, 3 + R))
    layer(torch.ones(2, 3))  # later steps work


@check_if(N > 1)
def second_derivatives_are_refused():
    x = share(0, R, 2, 4).requires_grad_()
    (grad,) = torch.autograd.grad(hvd.SyncBatchNorm(3).double()(x).pow(2).sum(), x, create_graph=True)
    expect_error(RuntimeError, ["once_differentiable"], grad.sum().backward)


@check
def names_restart_in_a_new_world():
    layer = hvd.SyncBatchNorm(3)
    layer(share(0, R, 2, 4).float())
    hvd.shutdown()
    hvd.init()
    fresh = hvd.SyncBatchNorm(3)
    for one in (fresh, layer) if R == 0 else (copy.deepcopy(layer), layer):
        one(share(0, R, 2, 4).float())
    if N > 1:
        said = hvd.allgather_object(sync_batch_norm._name_of(layer))
        assert said == [said[0]] * N, said


@check
def nothing_is_lost_by_compression():
    hvd.shutdown()
    os.environ["HVD_COMPRESSION"] = "topk:ratio=0.01"
    try:
        hvd.init()
        sent = hvd.allreduce(torch.linspace(1, 2, 1000), op=hvd.Sum)
        assert N == 1 or torch.count_nonzero(sent) < 1000, "was not compressed"
        generator = torch.Generator().manual_seed(R)
        x = torch.randn(4, 500, generator=generator).requires_grad_()
        hvd.SyncBatchNorm(500)(x).pow(3).sum().backward()
        gap = hvd.allgather(x.grad).sum(0).abs().max().item()
        assert gap < 1e-3, f"gradients through the mean add up to {gap}"
    finally:
        hvd.shutdown()
        del os.environ["HVD_COMPRESSION"]
        hvd.init()


main(R)
