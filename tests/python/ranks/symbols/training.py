# SPDX-License-Identifier: Apache-2.0
"""What is used around training: SyncBatchNorm, elastic state and sampler, Compression, exceptions."""

import contextlib

import horovod
import horovod.torch.elastic
import numpy as np
from harness import OURS, hvd, symbol, torch
from horovod.common import elastic, exceptions
from horovod.torch import compression
from horovod.torch.elastic import sampler, state


@symbol("SyncBatchNorm", "horovod.torch.sync_batch_norm.SyncBatchNorm")
def sync_batch_norm(t):
    """The original works on GPUs only; what training gives: ../sync_batch_norm.py."""
    batch = torch.sin(torch.arange(24.0).reshape(4, 3, 2))
    norm = hvd.SyncBatchNorm(3)
    t.same("module", [norm.eps, norm.momentum, norm.affine, norm.track_running_stats])
    alone = torch.nn.BatchNorm1d(3).eval()(batch)
    t.fixed("evaluation", "it works on GPUs only", lambda: norm.eval()(batch), alone)
    t.same("class", isinstance(norm, torch.nn.modules.batchnorm._BatchNorm))
    t.fails("one dimension", [], norm, torch.ones(3))


@symbol("check_replicas", ours=True)
def check_replicas(t):
    """What it says of differences: ranks/replica.py."""
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), 0)
    for equal in (model.state_dict(), model.named_parameters(), [torch.ones(3)]):
        assert hvd.check_replicas(equal) is None
    try:
        hvd.check_replicas({"w": torch.full((2,), float(hvd.rank()))})
    except hvd.HorovodInternalError as e:
        assert "w" in str(e), e
    else:
        assert hvd.size() == 1, "nothing is said"


@symbol("guard", "Guard", ours=True)
def guard(t):
    """In a job that restarts no process; what survives: ../../test_guard.py."""
    of = hvd.guard(torch.nn.Linear(2, 1), every=2, name="of_symbols")
    assert isinstance(of, hvd.Guard) and of.every == 2
    assert of.restore() == 0
    of.step()
    assert of.steps == 1
    assert hvd.Guard({}, 3, "of_none").restore() == 0


@symbol("convert_sync_batchnorm", ours=True)
def convert_sync_batchnorm(t):
    m = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2, eps=0.5))
    made = hvd.convert_sync_batchnorm(m)
    assert type(made[1]) is hvd.SyncBatchNorm and made[1].eps == 0.5
    assert made[1].weight is m[1].weight and made[0] is m[0]
    torch.manual_seed(hvd.rank())
    made(torch.randn(4, 3)).sum().backward()
    t.equal(hvd.allreduce(made[1].running_mean), made[1].running_mean, tolerance=1e-6)


@symbol("register_buffer", "RegisteredBuffer", ours=True)
def registered_buffers(t):
    """On GPUs alone, see gpu_register.py."""
    try:
        raise AssertionError(hvd.register_buffer(torch.ones(3)))
    except ValueError as e:
        assert "only memory on a GPU" in str(e), e
    buffer = hvd.RegisteredBuffer(torch.ones(3), hvd.global_process_set, "why")
    with buffer as same:
        assert same is buffer and not buffer.is_registered
    buffer.deregister()


@symbol(
    "Compression",
    "horovod.torch.compression.Compressor",
    "horovod.torch.compression.NoneCompressor",
    "horovod.torch.compression.FP16Compressor",
)
def compressors(t):
    x = torch.tensor([1.0, 1 / 3, 1e5])
    t.same(
        "names",
        [
            hvd.Compression.none is compression.NoneCompressor,
            hvd.Compression.fp16 is compression.FP16Compressor,
        ],
    )
    for name in ("none", "fp16"):
        c = getattr(hvd.Compression, name)
        for value in (x, x.double(), torch.tensor([1, 2])):
            small, context = c.compress(value)
            t.same(f"{name} {value.dtype}", [small, str(context), c.decompress(small, context)])
    for name, arguments in (("compress", (x,)), ("decompress", (x, None))):
        if OURS:  # the original's do nothing and return None
            with contextlib.suppress(NotImplementedError):
                getattr(compression.Compressor, name)(*arguments)
                raise AssertionError(f"{name} of the base class returned")


@symbol("HorovodInternalError", "horovod.common.exceptions.HostsUpdatedInterrupt")
def exception_classes(t):
    t.same("internal", [k.__name__ for k in hvd.HorovodInternalError.__mro__][:-2])
    hosts = exceptions.HostsUpdatedInterrupt(True)
    t.same("hosts", [hosts.skip_sync, isinstance(hosts, RuntimeError)])


@symbol(
    "horovod.common.exceptions.HorovodVersionMismatchError",
    "horovod.common.exceptions.get_version_mismatch_message",
)
def version_mismatch(t):
    e = exceptions.HorovodVersionMismatchError("torch", "1", "2")
    t.same("error", [e.name, e.version, e.installed_version, isinstance(e, ImportError)])
    t.same("text", " ".join(exceptions.get_version_mismatch_message("torch", "1", "2").split()))
    t.same("its text", " ".join(str(e).split()))


# --- elastic ---------------------------------------------------------------------------------------


def counts(samples):
    """The fields that the original's state has. Ours has more, to continue after several worlds."""
    state = samples.state_dict()
    return [state["epoch"], state["processed_num"]]


@symbol("horovod.torch.elastic.ElasticSampler", "horovod.torch.elastic.sampler.ElasticSampler")
def elastic_sampler(t):
    for shuffle in (False, True):
        s = sampler.ElasticSampler(range(11), shuffle=shuffle, seed=5)
        key = f"shuffle={shuffle}"
        t.same(f"{key} all", [len(s), list(s)])
        s.record_batch(0, 2)
        s.record_batch(1, 2)
        t.same(f"{key} state", counts(s))
        s.reset()
        t.same(f"{key} rest", [len(s), list(s), s.remaining_indices])
        other = sampler.ElasticSampler(range(11), shuffle=shuffle, seed=5)
        other.load_state_dict(s.state_dict())
        t.same(f"{key} loaded", list(other))
        s.set_epoch(1)
        t.same(f"{key} next epoch", [s.epoch, len(s), list(s)])
    t.same(
        "fields", [s.num_replicas, s.rank, s.total_size, s.num_samples, s.processed_num, s.seed, s.shuffle]
    )
    t.same("base", isinstance(s, torch.utils.data.Sampler))
    t.same(
        "loader",
        [b.tolist() for b in torch.utils.data.DataLoader(torch.arange(11), batch_size=2, sampler=s)],
    )


def parts():
    torch.manual_seed(hvd.rank())
    m = torch.nn.Linear(2, 1)
    return m, torch.optim.SGD(m.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.5)


def step(m, opt):
    opt.zero_grad()
    m(torch.ones(1, 2)).sum().backward()
    opt.step()


@symbol("horovod.torch.elastic.TorchState", "horovod.torch.elastic.state.TorchState")
def torch_state(t):
    m, opt = parts()
    samples = sampler.ElasticSampler(range(10), shuffle=False)
    s = state.TorchState(model=m, optimizer=opt, sampler=samples, batch=hvd.rank(), epoch=7)
    t.same("attributes", [s.model is m, s.optimizer is opt, s.sampler is samples, s.batch, s.epoch])
    t.same("sync", s.sync())
    t.same("synced", [m.weight, opt.param_groups[0]["lr"], s.batch])
    t.same("commit", s.commit())
    before = m.weight.detach().clone()
    step(m, opt)
    s.batch += 5
    samples.record_batch(0, 2)
    t.same("restore", s.restore())
    t.equal(m.weight, before)
    t.same("restored", [s.batch, counts(samples)])
    step(m, opt)
    s.batch = 9
    s.save()
    s.batch = 10
    s.restore()
    t.same("saved", [s.batch, m.weight])
    t.same("checked", s.check_host_updates())
    said = []
    s.register_reset_callbacks([lambda: said.append("reset")])
    s.on_reset()
    t.same("callbacks", said)
    other, _ = parts()
    s.model = other
    with torch.no_grad():
        other.weight.zero_()
    s.restore()
    t.same("a new model", other.weight)


@symbol("horovod.common.elastic.State", "horovod.common.elastic.ObjectState")
def common_states(t):
    base = elastic.State(hvd.broadcast_object, hvd.rank)
    for name in ("save", "restore", "sync"):
        t.fails(name, [], getattr(base, name))
    t.same("reset", base.reset())
    s = elastic.ObjectState(hvd.broadcast_object, hvd.rank, a=hvd.rank(), b="text")
    t.same("attributes", [s.a, s.b])
    s.sync()
    t.same("synced", [s.a, s.b])
    s.a = 5
    s.restore()
    t.same("restored", s.a)
    s.a = 6
    s.commit()
    s.a = 7
    s.restore()
    t.same("committed", s.a)
    s.on_hosts_updated(1, 1)
    try:
        s.check_host_updates()
    except exceptions.HostsUpdatedInterrupt as e:
        t.same("hosts updated", e.skip_sync)
    t.same("seen once", s.check_host_updates())


@symbol("horovod.torch.elastic.run", "horovod.torch.elastic.run_fn", "horovod.common.elastic.run_fn")
def elastic_run(t):
    m, opt = parts()
    s = state.TorchState(model=m, optimizer=opt, batch=hvd.rank())

    @horovod.torch.elastic.run
    def train(state, more, flag=False):
        """What it does."""
        return [state.batch, more, flag]

    t.same("result", train(s, 3, flag=True))
    t.same("name", [train.__name__, train.__doc__])
    said = []

    def fails_once(state):
        said.append(state.batch)
        if len(said) == 1:
            state.batch = 100
            raise exceptions.HorovodInternalError("a rank was lost")
        if len(said) == 2:
            raise exceptions.HostsUpdatedInterrupt(skip_sync=True)
        return "done"

    s.commit()
    t.same("runs again", elastic.run_fn(fails_once, lambda: said.append("reset"))(s))
    t.same("order", said)


class Handler(state.StateHandler):
    def save(self):
        self.saved = list(self.value)

    def restore(self):
        self.value[:] = self.saved

    def sync(self):
        self.value[:] = hvd.broadcast_object(self.value)


@symbol(
    "horovod.torch.elastic.state.get_handler_registry",
    "horovod.torch.elastic.state.set_handler_registry",
    "horovod.torch.elastic.state.StateHandler",
)
def handler_registry(t):
    before = state.get_handler_registry()
    t.same("registry", [[kind.__name__, handler.__name__] for kind, handler in before[:3]])
    state.set_handler_registry([*before, (list, Handler)])
    try:
        items = [hvd.rank()]
        s = state.TorchState(items=items)
        s.sync()
        t.same("synced", s.items)
        assert s.items is items, "without the handler it is another object"
        s.commit()
        s.items.append(5)
        s.restore()
        t.same("restored", s.items)
    finally:
        state.set_handler_registry(before)
    for name in ("save", "restore", "sync"):
        t.fails(name, [], getattr(state.StateHandler(1), name))


HANDLERS = ("ModelStateHandler", "OptimizerStateHandler", "SamplerStateHandler")


@symbol(*(f"horovod.torch.elastic.state.{name}" for name in HANDLERS))
def handlers_of_state(t):
    m, opt = parts()
    step(m, opt)
    samples = sampler.ElasticSampler(range(10), shuffle=False)
    for name, value in zip(HANDLERS, (m, opt, samples)):
        h = getattr(state, name)(value)
        assert h.value is value
        h.sync()
        h.save()
        if name == "SamplerStateHandler":
            value.record_batch(0, 1)
        else:
            step(m, opt)
        h.restore()
        now = counts(value) if value is samples else value.state_dict()
        t.same(name, np.concatenate([np.ravel(x) for x in numbers(now)]).tolist())


def numbers(x):
    """All numbers in nested state, in order."""
    if isinstance(x, torch.Tensor):
        return [x.detach().double().numpy()]
    if isinstance(x, dict):
        return [n for k, v in sorted(x.items(), key=str) if k not in SKIPPED for n in numbers(v)]
    if isinstance(x, (list, tuple)):
        return [n for v in x for n in numbers(v)]
    return [float(x)] if isinstance(x, (int, float)) else []


# Settings that only some versions of torch have.
SKIPPED = ("foreach", "differentiable", "fused", "capturable", "maximize", "decoupled_weight_decay")
assert OURS or horovod.__version__ == "0.28.1"
