# SPDX-License-Identifier: Apache-2.0
"""Arguments of Keras' DistributedOptimizer: passes, loss scaling, process sets, saved models.

keras_options.py [short]: `short` leaves out the checks marked by @in_full and the second of ways(),
and those marked by @on_one on TensorFlow's and JAX's back ends of Keras 3.
"""

import os

import numpy as np
from checks import check, expect_error, main
from keras_flavour import (
    BACKEND,
    FLAVOUR,
    IS_3,
    FP16Compressor,
    N,
    R,
    expect_operations,
    expect_warning,
    expect_weights,
    fit,
    hvd,
    in_full,
    keras,
    model,
    on_one,
    optimizers,
    sgd,
    ways,
    weights,
)
from keras_steps import (
    ROWS,
    UNUSED,
    B,
    C,
    V,
    W,
    chosen,
    close,
    data,
    gradient,
    joined,
    mean_gradient,
    pieces,
    sgd_steps,
    start,
)

# operations of one exchange; the unused weight's are zeros, or None
GRADIENTS = 5 if BACKEND == "jax" else 4


@check
def several_passes_a_step():
    for way in ways():
        for averages in (False, True):
            optimizer = hvd.DistributedOptimizer(
                sgd(0.05), backward_passes_per_step=2, average_aggregated_gradients=averages, op=hvd.Sum
            )
            made = model(optimizer, **way)
            fit(made, 1)
            expect_weights(made, start(), f"{way}: after the first pass")
            fit(made, 3, first=1)
            want = sgd_steps(N, 0.05, steps=2, passes=2, factor=N / 2 if averages else N)
            expect_weights(made, want, f"{way} averages={averages}")


@in_full
def several_passes_are_summed_by_each_rank_alone():
    """Only the second pass meets the other ranks: the first works where nobody else is."""
    if N == 1:
        return
    made = model(hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2, op=hvd.Sum))
    if R == 0:
        fit(made, 1)
    hvd.allreduce(1.0, name="rank 0 was alone")
    if R != 0:
        fit(made, 1)
    fit(made, 1, first=1)
    expect_weights(made, sgd_steps(N, passes=2, factor=N))


@check
def accumulation_of_keras():
    if not IS_3:
        return
    for way in ways():
        optimizer = hvd.DistributedOptimizer(sgd(0.05, gradient_accumulation_steps=2), op=hvd.Sum)
        made = model(optimizer, **way)
        fit(made, 4)
        expect_weights(made, sgd_steps(N, 0.05, steps=2, passes=2, factor=N / 2), str(way))
    words = ["gradient_accumulation_steps=2", "one of them"]
    double = sgd(gradient_accumulation_steps=2)
    expect_error(ValueError, words, hvd.DistributedOptimizer, double, backward_passes_per_step=2)


def several(*inner):
    """A MultiOptimizer that gives each weight to the next of these."""
    places = {}

    def of(variable):
        return inner[places.setdefault(variable.path, len(places)) % len(inner)]

    return keras.optimizers.MultiOptimizer(of)


@on_one
def several_optimizers_in_one():
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        return
    made = model(hvd.DistributedOptimizer(several(sgd(), sgd()), op=hvd.Sum))
    fit(made, 2)
    expect_weights(made, sgd_steps(N, steps=2, factor=N))
    words = ["MultiOptimizer", "gradient_accumulation_steps=2"]
    inner = sgd(0.05, gradient_accumulation_steps=2)
    for optimizer in (several(inner), keras.optimizers.LossScaleOptimizer(several(inner))):
        expect_error(ValueError, words, hvd.DistributedOptimizer, optimizer, backward_passes_per_step=2)
    made = model(hvd.DistributedOptimizer(several(inner), op=hvd.Sum))
    fit(made, 4)
    expect_weights(made, sgd_steps(N, 0.05, steps=2, passes=2, factor=N / 2), "passes")
    both = [hvd.DistributedOptimizer(sgd(), name=name, op=hvd.Sum) for name in ("one", "other")]
    made = model(several(*both))
    fit(made)
    expect_weights(made, sgd_steps(N, factor=N), "distributed ones within")
    scaler = keras.optimizers.LossScaleOptimizer
    made = model(scaler(several(*[hvd.DistributedOptimizer(sgd()) for _ in both])))
    words = ["hvd.DistributedOptimizer(MultiOptimizer(...))", "loss scaling"]
    expect_error(ValueError, words, fit, made)
    made = model(scaler(hvd.DistributedOptimizer(several(sgd(), sgd()), op=hvd.Sum), initial_scale=64.0))
    fit(made)
    expect_weights(made, sgd_steps(N, factor=N), "scaled")


@in_full
def clipping_comes_after_the_reduction():
    total = N * mean_gradient(start(), N)
    small = float(np.linalg.norm(total)) / 3

    def clipped(gradient):
        return gradient * min(1, small / (np.linalg.norm(gradient) or 1))

    each = joined([clipped(g) for g in pieces(total)])
    for name, want in (("clipnorm", each), ("global_clipnorm", clipped(total))):
        made = model(hvd.DistributedOptimizer(sgd(**{name: small}), op=hvd.Sum))
        fit(made)
        expect_weights(made, start() - 0.1 * want, name)


@in_full
def moving_averages():
    if FLAVOUR == "2 legacy":
        return
    ema = sgd(0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)
    made = model(hvd.DistributedOptimizer(ema, op=hvd.Sum))
    fit(made, 3)
    w, average = start(), start()
    for step in range(3):
        w = w - 0.05 * N * mean_gradient(w, N, step)
        keep = 0.5 if step or not IS_3 else 0  # Keras 2 starts the average at the first weights
        average = keep * average + (1 - keep) * w
        if step == 1:
            w = average
    expect_weights(made, average, "fit() ends with the average")


@check
def an_infinity_of_one_rank_is_skipped_by_all():
    scaler = keras.mixed_precision.LossScaleOptimizer
    for name, make in (
        ("outside", lambda: hvd.DistributedOptimizer(scaler(sgd(), initial_scale=64.0), op=hvd.Sum)),
        ("inside", lambda: scaler(hvd.DistributedOptimizer(sgd(), op=hvd.Sum), initial_scale=64.0)),
    ):
        made = model(make())
        fit_an_infinity(made)
        expect_weights(made, start(), f"{name}: skipped")
        fit(made)
        expect_weights(made, sgd_steps(N, factor=N), f"{name}: goes on")


def fit_an_infinity(made):
    """One step whose gradients are infinite on the last rank."""
    x, y = data(R)
    if R == N - 1:
        y = np.full_like(y, np.inf)
    made.fit(x, y, batch_size=ROWS, epochs=1, verbose=0)


@check
def loss_scaling_of_several_passes():
    if IS_3:  # it leaves out a pass, not a step
        return
    scaler = keras.mixed_precision.LossScaleOptimizer
    passes = {"backward_passes_per_step": 2, "op": hvd.Sum}
    for growth, scale in ((2000, 32.0), (1, 1024.0)):
        optimizer = hvd.DistributedOptimizer(sgd(0.05), **passes)
        made = model(scaler(optimizer, initial_scale=64.0, dynamic_growth_steps=growth))
        fit_an_infinity(made)
        fit(made, 5, first=1)
        want = start()
        for first in (2, 4):  # steps 0 and 1 are one with the infinity
            want = want - 0.05 * N * sum(mean_gradient(want, N, first + i) for i in range(2))
        expect_weights(made, want, f"growth={growth}")
        scales = np.asarray(hvd.allgather([float(made.optimizer.loss_scale)]))
        assert np.all(scales == scale), (growth, scales)


@check
def embeddings():
    def losses(rank):
        return np.array([[rank, 1]]), np.array([[1.0 + rank, 2.0]], np.float32)[..., None]

    table = np.arange(8, dtype=np.float32).reshape(8, 1) / 8
    grads = []
    for rank in range(N):
        ids, y = losses(rank)
        grad = np.zeros_like(table)
        for i, want in zip(ids[0], y[0]):
            grad[i] += 2 * (table[i] - want) / 2
        grads.append(grad)
    for as_dense in (False, True):
        optimizer = hvd.DistributedOptimizer(sgd(), sparse_as_dense=as_dense, op=hvd.Sum)
        made = keras.Sequential([keras.layers.Embedding(8, 1)])
        made.compile(optimizer=optimizer, loss="mse")
        made.build((None, 2))
        made.set_weights([table])
        ids, y = losses(R)
        made.fit(ids, y, verbose=0)
        close(made.get_weights()[0], table - 0.1 * np.sum(grads, axis=0), f"sparse_as_dense={as_dense}")


@in_full
def options_of_the_reduction():
    for what, options, tolerance in (
        ("fp16", {"compression": hvd.Compression.fp16}, 5e-3),
        ("all in one group", {"groups": 1}, 2e-4),
        ("two groups", {"groups": 2}, 2e-4),
        ("name", {"name": "Mine"}, 2e-4),
    ):
        made = model(hvd.DistributedOptimizer(sgd(), op=hvd.Sum, **options))
        fit(made)
        got, want = weights(made), sgd_steps(N, factor=N)
        assert np.allclose(got, want, rtol=tolerance, atol=tolerance / 10), (what, got, want)
    made = model(sgd())
    v = made.trainable_variables
    made.compile(hvd.DistributedOptimizer(sgd(), op=hvd.Sum, groups=[[v[V], v[W]], [v[C]]]), loss="mse")
    fit(made)
    expect_weights(made, sgd_steps(N, factor=N), "groups of variables")
    made = model(hvd.DistributedOptimizer(sgd(), gradient_predivide_factor=4.0))
    expect_operations(GRADIENTS, lambda: fit(made))
    expect_weights(made, sgd_steps(N), "predivide")


@check
def a_compressor_of_the_users():
    made = model(hvd.DistributedOptimizer(sgd(), op=hvd.Sum, compression=FP16Compressor))
    fit(made)
    expect_weights(made, sgd_steps(N, factor=2 * N if N > 1 else 1))


@check
def a_gradient_that_replaces_its_variable():
    """As those of float8's scales: the largest of all ranks, and of the passes."""
    if not hasattr(getattr(keras, "Variable", None), "overwrite_with_gradient"):
        return
    for passes in (1, 2):
        variables = [keras.Variable(np.zeros(2, np.float32)) for _ in range(2)]
        variables[0].overwrite_with_gradient = True
        made = hvd.DistributedOptimizer(sgd(1.0), op=hvd.Sum, backward_passes_per_step=passes)
        for i in range(passes):
            values = np.array([R + 1.0 - i, 5.0 - R + i], np.float32)
            made.apply([keras.ops.convert_to_tensor(values)] * 2, variables)
        scale, weight = (keras.ops.convert_to_numpy(v) for v in variables)
        close(scale, [N, 5.0 + passes - 1], f"passes={passes}: replaced")
        each = [[r + 1.0 - i, 5.0 - r + i] for r in range(N) for i in range(passes)]
        close(weight, -np.sum(each, axis=0), f"passes={passes}: trained")


@check
def groups_that_overlap():
    made = model(sgd())
    v = made.trainable_variables
    groups = [[v[W], v[V]], [v[V], v[B]], [v[W]]]
    made.compile(hvd.DistributedOptimizer(sgd(), op=hvd.Sum, groups=groups), loss="mse")
    fit(made)
    expect_weights(made, sgd_steps(N, factor=N))


@check
def gradients_that_are_one_tensor():
    """As torch.autograd.grad() gives them of a + b, and views without memory of their own."""
    if BACKEND != "torch":
        return
    import torch

    variables = [keras.Variable(np.zeros((2, 3), np.float32)) for _ in range(4)]
    optimizer = hvd.DistributedOptimizer(sgd(1.0), op=hvd.Sum)
    one = torch.full((2, 3), 1.0 + R)
    grads = [one, one, torch.full((1, 1), 1.0 + R).expand(2, 3), torch.full((3, 2), 1.0 + R).t()]
    optimizer.apply(grads, variables)
    for v in variables:
        close(keras.ops.convert_to_numpy(v), np.full((2, 3), -sum(1.0 + r for r in range(N))))
    close(one, np.full((2, 3), 1.0 + R), "the gradient of this rank stays")


@check
def an_error_ends_what_was_begun():
    """A compressor that fails at the second gradient: the first one's exchange must not stay behind."""
    if BACKEND != "torch":
        return

    class Fails:
        at = []

        @classmethod
        def compress(cls, tensor):
            cls.at.append(tensor)
            if len(cls.at) == 2:
                raise ValueError("on purpose")
            return tensor, None

        @staticmethod
        def decompress(tensor, ctx):
            return tensor

    from _hvd import handles

    made = model(hvd.DistributedOptimizer(sgd(), compression=Fails))
    before = len(handles._pending)
    expect_error(ValueError, ["on purpose"], fit, made)
    assert len(handles._pending) == before
    fit(made)
    expect_weights(made, sgd_steps(N), "goes on")


@in_full
def a_built_optimizer_keeps_its_state():
    made = model(sgd(0.05, momentum=0.5))
    fit(made)
    own = weights(made)
    made.compile(hvd.DistributedOptimizer(made.optimizer, op=hvd.Sum), loss="mse")
    fit(made, first=1)
    velocity = 0.5 * -0.05 * gradient(start(), R)
    expect_weights(made, own + velocity - 0.05 * np.sum([_at(own, r) for r in range(N)], axis=0))


def _at(own, rank):
    """Another rank's gradient at its own weights."""
    w = start() - 0.05 * gradient(start(), rank)
    assert rank != R or np.allclose(w, own, rtol=1e-3)
    return gradient(w, rank, 1)


@on_one
def what_was_set_before_is_kept():
    def prepared():
        optimizer = sgd(**({} if FLAVOUR == "2 legacy" else {"weight_decay": 0.5}))
        optimizer.iterations.assign(7)
        optimizer.mine = "set later"
        if FLAVOUR != "2 legacy":
            optimizer.exclude_from_weight_decay(var_names=["bias"])
        return optimizer

    want = sgd_steps(N, factor=N)
    if FLAVOUR != "2 legacy":
        want = chosen((B, C), want, want - 0.1 * 0.5 * start())
    scaler = keras.mixed_precision.LossScaleOptimizer
    for what, before in (("plain", prepared()), ("scaled", scaler(prepared()))):
        made = model(hvd.DistributedOptimizer(before, op=hvd.Sum))
        fit(made)
        expect_weights(made, chosen([UNUSED], weights(made), want), what)
        inner = getattr(made.optimizer, "inner_optimizer", made.optimizer)
        assert int(inner.iterations) == 8 and inner.mine == "set later", (what, inner.iterations)
    before.iterations.assign(1)
    assert int(inner.iterations) == 8, "they are two optimizers"


@check
def saved_and_loaded():
    path = os.path.join(os.environ["CHECKS_DIR"], f"model{R}.{'keras' if IS_3 else 'h5'}")
    made = model(hvd.DistributedOptimizer(sgd(0.1, momentum=0.5)))
    if FLAVOUR == "2 legacy":  # Keras reads its state only where every weight has some, used or not
        made.optimizer._create_all_weights(made.trainable_variables)
    fit(made)
    made.save(path)
    plain = keras.models.load_model(path)
    assert type(plain.optimizer).__name__ == "SGD" and not hasattr(plain.optimizer, "register_local_var")
    loaded = hvd.load_model(path)
    assert type(loaded.optimizer).__name__ == "SGD"
    expect_operations(GRADIENTS, lambda: fit(loaded, first=1))
    w = sgd_steps(N)
    velocity = 0.5 * (w - start())
    expect_weights(loaded, w + velocity - 0.1 * mean_gradient(w, N, 1), "loaded")


@on_one
def saved_by_a_registered_name():
    import os

    @keras.saving.register_keras_serializable("tests")
    class Registered(type(sgd())):
        pass

    path = os.path.join(os.environ["CHECKS_DIR"], f"registered{R}.{'keras' if IS_3 else 'h5'}")
    made = model(hvd.DistributedOptimizer(Registered(0.1), op=hvd.Sum))
    fit(made)
    expect_weights(made, sgd_steps(N, factor=N))
    made.save(path)
    assert type(keras.models.load_model(path).optimizer) is Registered
    assert isinstance(hvd.load_model(path).optimizer, Registered)


@in_full
def config_makes_a_distributed_one():
    optimizer = hvd.DistributedOptimizer(optimizers().Adam(), op=hvd.Sum)
    config = optimizer.get_config()
    for again in (optimizer.from_config(dict(config)), type(optimizer).from_config(dict(config))):
        assert again.get_config() == config
    made = model(type(hvd.DistributedOptimizer(sgd(), op=hvd.Sum)).from_config(sgd().get_config()))
    fit(made)
    expect_weights(made, sgd_steps(N, factor=N))


@in_full
def twice_distributed_reduces_once():
    inner = hvd.DistributedOptimizer(sgd(), op=hvd.Sum)
    words = ["gradients are reduced once"]
    made = model(expect_warning(words, lambda: hvd.DistributedOptimizer(inner, op=hvd.Sum)))
    fit(made)
    expect_weights(made, sgd_steps(N, factor=N))


@check
def wrong_arguments():
    def wrong(kind, words, optimizer=None, **options):
        expect_error(kind, words, hvd.DistributedOptimizer, optimizer or sgd(), **options)

    wrong(ValueError, ["Average and Sum"], op=4)
    wrong(ValueError, ["predivide"], gradient_predivide_factor=2.0, op=hvd.Sum)
    wrong(ValueError, ["backward_passes_per_step must be > 0"], backward_passes_per_step=0)
    wrong(TypeError, ["backward_passes_per_step", "2.5"], backward_passes_per_step=2.5)
    wrong(ValueError, ["groups should be"], groups=-1)
    wrong(ValueError, ["groups should be"], groups=["a"])
    wrong(TypeError, ["keras.optimizers.SGD", "'sgd'"], optimizer="sgd")
    wrong(TypeError, ["keras.optimizers.SGD"], optimizer=type(sgd()))


main(R)
