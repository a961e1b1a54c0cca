# SPDX-License-Identifier: Apache-2.0
"""Arguments of Keras' DistributedOptimizer: passes, loss scaling, process sets, saved models.

keras_options.py [short]: `short` leaves out the checks marked by @in_full and the second of ways(),
and those marked by @on_one on TensorFlow's and JAX's back ends of Keras 3.
"""

import os

import numpy as np
from checks import check, check_if, expect_error, main
from keras_expect import expect_operations, expect_trained, expect_warning, expect_weights
from keras_flavour import BACKEND, FLAVOUR, IS_3, N, R, hvd, in_full, keras, on_one, ways
from keras_models import (
    SUFFIX,
    FP16Compressor,
    fit,
    model,
    optimizers,
    scaler,
    sgd,
    summed,
    tensor,
    weights,
)
from keras_steps import At, chosen, close, data, gradient, joined, mean_gradient, pieces, sgd_steps, start

# operations of one exchange; the unused weight's are zeros, or None
GRADIENTS = 5 if BACKEND == "jax" else 4


@check
def several_passes_a_step():
    """The first one works in a job of one rank."""
    for way in ways():
        for averages in (False, True):
            options = {"backward_passes_per_step": 2, "average_aggregated_gradients": averages}
            made = model(summed(sgd(0.05), **options), **way)
            if R == 0:
                fit(made, 1)
            hvd.allreduce(1.0, name="rank 0 was alone")
            if R != 0:
                fit(made, 1)
            expect_weights(made, start(), f"{way}: after the first pass")
            fit(made, 3, first=1)
            want = sgd_steps(N, 0.05, steps=2, passes=2, factor=N / 2 if averages else N)
            expect_weights(made, want, f"{way} averages={averages}")


@check_if(IS_3)
def accumulation_of_keras():
    two = {"lr": 0.05, "steps": 2, "passes": 2, "factor": N / 2}
    for way in ways():
        expect_trained(way, summed(sgd(0.05, gradient_accumulation_steps=2)), **two, **way)
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
    expect_trained("two", summed(several(sgd(), sgd())), steps=2)
    words = ["MultiOptimizer", "gradient_accumulation_steps=2"]
    inner = sgd(0.05, gradient_accumulation_steps=2)
    for optimizer in (several(inner), scaler(several(inner))):
        expect_error(ValueError, words, hvd.DistributedOptimizer, optimizer, backward_passes_per_step=2)
    expect_trained("passes", summed(several(inner)), lr=0.05, steps=2, passes=2, factor=N / 2)
    expect_trained("distributed within", several(*[summed(name=name) for name in ("one", "other")]))
    made = model(scaler(several(*[hvd.DistributedOptimizer(sgd()) for _ in range(2)])))
    words = ["hvd.DistributedOptimizer(MultiOptimizer(...))", "loss scaling"]
    expect_error(ValueError, words, fit, made)
    expect_trained("scaled", scaler(summed(several(sgd(), sgd())), initial_scale=64.0))


@in_full
def clipping_comes_after_the_reduction():
    total = N * mean_gradient(start(), N)
    small = float(np.linalg.norm(total)) / 3

    def clipped(gradient):
        return gradient * min(1, small / (np.linalg.norm(gradient) or 1))

    each = joined([clipped(g) for g in pieces(total)])
    for name, want in (("clipnorm", each), ("global_clipnorm", clipped(total))):
        made = model(summed(sgd(**{name: small})))
        fit(made)
        expect_weights(made, start() - 0.1 * want, name)


def with_a_local_weight(limit, steps):
    """This rank's weights after SGD of one model that has the V of each rank, clipped by its global norm."""
    each = [start()] * N
    for step in range(steps):
        own = [gradient(w, rank, step) / N for rank, w in enumerate(each)]
        total = np.sum(own, axis=0)
        norm = np.linalg.norm(joined([chosen([At.V], 0 * total, total), *(pieces(g)[At.V] for g in own)]))
        changes = [min(1, limit / norm) * chosen([At.V], g, total) for g in own]
        each = [w - 0.1 * change for w, change in zip(each, changes)]
    return each[R]


@check
def clipping_by_the_norm_of_shared_and_local_weights():
    """All ranks clip what they share alike, bit by bit."""
    limit = float(np.linalg.norm(mean_gradient(start(), N))) / 3
    optimizers = [hvd.DistributedOptimizer(sgd(global_clipnorm=limit)) for _ in range(2)]
    scaled = scaler(optimizers[0], initial_scale=64.0)
    around = hvd.DistributedOptimizer(scaler(sgd(global_clipnorm=limit), initial_scale=64.0))
    for what, optimizer, registers in (
        ("inside", scaled, optimizers[0]),
        ("outside", around, around),
        ("unscaled", optimizers[1], optimizers[1]),
    ):
        made = model(optimizer)
        registers.register_local_var(made.trainable_variables[At.V])
        fit(made, 2)
        expect_weights(made, with_a_local_weight(limit, 2), what)
        shared = joined([w for i, w in enumerate(pieces(weights(made))) if i != At.V])
        every = np.asarray(hvd.allgather(np.reshape(shared, (1, -1))))
        assert all(np.array_equal(every[0], one) for one in every), (what, every)


def apply(optimizer, grads, variables):
    """apply_gradients(), for which Keras' loss scaling on JAX has stateless_apply() only."""
    if BACKEND != "jax":
        optimizer.apply_gradients(zip(grads, variables))
        return
    if not optimizer.built:
        optimizer.build(variables)
    states = [v.value for v in optimizer.variables]
    results = optimizer.stateless_apply(states, grads, [v.value for v in variables])
    for v, value in zip([*variables, *optimizer.variables], [*results[0], *results[1]]):
        v.assign(value)


@check
def an_infinity_of_a_local_gradient_is_skipped_by_all():
    outside, inner = summed(scaler(sgd(), initial_scale=64.0)), summed()
    for what, optimizer, registers in (
        ("outside", outside, outside),
        ("inside", scaler(inner, initial_scale=64.0), inner),
    ):
        made = model(sgd())
        variables = [made.trainable_variables[i] for i in (At.B, At.V)]
        registers.register_local_var(variables[1])
        for bad in (True, False):
            grads = [np.ones(v.shape, np.float32) for v in variables]
            if bad and R == N - 1:
                grads[1][0] = np.inf
            apply(optimizer, [tensor(g) for g in grads], variables)
            every = np.asarray(hvd.allgather(weights(made).reshape(1, -1)))
            is_same = [np.array_equal(pieces(one)[At.B], pieces(start())[At.B]) for one in every]
            assert is_same == [bad] * N, (what, bad, every)


@check
def an_infinity_of_one_rank_is_skipped_by_all():
    outside = summed(scaler(sgd(), initial_scale=64.0))
    inside = scaler(summed(), initial_scale=64.0)
    for name, optimizer in (("outside", outside), ("inside", inside)):
        made = model(optimizer)
        fit_an_infinity(made)
        expect_weights(made, start(), f"{name}: skipped")
        fit(made)
        expect_weights(made, sgd_steps(N, factor=N), f"{name}: continues")


def fit_an_infinity(made):
    """One step whose gradients are infinite on the last rank."""
    x, y = data(R)
    if R == N - 1:
        y = np.full_like(y, np.inf)
    made.fit(x, y, batch_size=len(x), epochs=1, verbose=0)


@check
def loss_scaling_of_several_passes():
    if IS_3:  # it leaves out a pass, not a step
        return
    for growth, scale in ((2000, 32.0), (1, 1024.0)):
        optimizer = summed(sgd(0.05), backward_passes_per_step=2)
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
    table = np.arange(8, dtype=np.float32).reshape(8, 1) / 8
    total = np.zeros_like(table)
    for rank in range(N):
        for i, want in ((rank, 1.0 + rank), (1, 2.0)):
            total[i] += table[i] - want
    for as_dense in (False, True):
        made = keras.Sequential([keras.layers.Embedding(8, 1)])
        made.compile(optimizer=summed(sparse_as_dense=as_dense), loss="mse")
        made.build((None, 2))
        made.set_weights([table])
        made.fit(np.array([[R, 1]]), np.array([[[1.0 + R], [2.0]]], np.float32), verbose=0)
        close(made.get_weights()[0], table - 0.1 * total, f"sparse_as_dense={as_dense}")


@in_full
def options_of_the_reduction():
    expect_trained("all in one group", summed(groups=1))
    expect_trained("two groups", summed(groups=2))
    expect_trained("name", summed(name="Mine"))
    made = model(summed(compression=hvd.Compression.fp16))
    fit(made)
    assert np.allclose(weights(made), sgd_steps(N, factor=N), rtol=5e-3, atol=5e-4)
    made = model(hvd.DistributedOptimizer(sgd(), gradient_predivide_factor=4.0))
    expect_operations(GRADIENTS, lambda: fit(made))
    expect_weights(made, sgd_steps(N), "predivide")


@check
def a_compressor_of_the_users():
    expect_trained("compressor", summed(compression=FP16Compressor), factor=2 * N if N > 1 else 1)


@check_if(hasattr(getattr(keras, "Variable", None), "overwrite_with_gradient"))
def a_gradient_that_replaces_its_variable():
    """As those of float8's scales: the largest of all ranks, and of the passes."""
    for passes in (1, 2):
        variables = [keras.Variable(np.zeros(2, np.float32)) for _ in range(2)]
        variables[0].overwrite_with_gradient = True
        made = summed(sgd(1.0), backward_passes_per_step=passes)
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
    groups = [[v[At.W], v[At.V]], [v[At.V], v[At.B]], [v[At.W]]]
    made.compile(summed(groups=groups), loss="mse")
    fit(made)
    expect_weights(made, sgd_steps(N, factor=N))


@check_if(BACKEND == "torch")
def gradients_that_are_one_tensor():
    """As torch.autograd.grad() gives them of a + b, and views without memory of their own."""
    import torch

    variables = [keras.Variable(np.zeros((2, 3), np.float32)) for _ in range(4)]
    optimizer = summed(sgd(1.0))
    one = torch.full((2, 3), 1.0 + R)
    grads = [one, one, torch.full((1, 1), 1.0 + R).expand(2, 3), torch.full((3, 2), 1.0 + R).t()]
    optimizer.apply(grads, variables)
    for v in variables:
        close(keras.ops.convert_to_numpy(v), np.full((2, 3), -sum(1.0 + r for r in range(N))))
    close(one, np.full((2, 3), 1.0 + R), "the gradient of this rank stays")


@check_if(BACKEND == "torch")
def an_error_ends_what_was_begun():
    """A compressor that fails at the second gradient: the first one's exchange must not stay behind."""

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
    expect_weights(made, sgd_steps(N), "continues")


@in_full
def a_built_optimizer_keeps_its_state():
    made = model(sgd(0.05, momentum=0.5))
    fit(made)
    own = [start() - 0.05 * gradient(start(), rank) for rank in range(N)]
    made.compile(summed(made.optimizer), loss="mse")
    fit(made, first=1)
    velocity = 0.5 * -0.05 * gradient(start(), R)
    total = np.sum([gradient(w, rank, 1) for rank, w in enumerate(own)], axis=0)
    expect_weights(made, own[R] + velocity - 0.05 * total)


@on_one
def what_was_set_before_is_kept():
    is_legacy = FLAVOUR == "2 legacy"

    def prepared():
        optimizer = sgd(**({} if is_legacy else {"weight_decay": 0.5}))
        optimizer.iterations.assign(7)
        optimizer.mine = "set later"
        if not is_legacy:
            optimizer.exclude_from_weight_decay(var_names=["bias"])
        return optimizer

    want = sgd_steps(N, factor=N)
    if not is_legacy:
        want = chosen((At.B, At.C), want, want - 0.1 * 0.5 * start())
    for what, before in (("plain", prepared()), ("scaled", scaler(prepared()))):
        made = model(summed(before))
        fit(made)
        expect_weights(made, chosen([At.UNUSED], weights(made), want), what)
        inner = getattr(made.optimizer, "inner_optimizer", made.optimizer)
        assert int(inner.iterations) == 8 and inner.mine == "set later", (what, inner.iterations)
    before.iterations.assign(1)
    assert int(inner.iterations) == 8, "they are two optimizers"


@check
def saved_and_loaded():
    path = os.path.join(os.environ["CHECKS_DIR"], f"model{R}.{SUFFIX}")
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
    @keras.saving.register_keras_serializable("tests")
    class Registered(type(sgd())):
        pass

    path = os.path.join(os.environ["CHECKS_DIR"], f"registered{R}.{SUFFIX}")
    expect_trained("registered", summed(Registered(0.1))).save(path)
    assert type(keras.models.load_model(path).optimizer) is Registered
    assert isinstance(hvd.load_model(path).optimizer, Registered)


@in_full
def config_makes_a_distributed_one():
    optimizer = summed(optimizers().Adam())
    config = optimizer.get_config()
    for again in (optimizer.from_config(dict(config)), type(optimizer).from_config(dict(config))):
        assert again.get_config() == config
    expect_trained("from_config", type(summed()).from_config(sgd().get_config()))


@in_full
def twice_distributed_reduces_once():
    inner = summed()
    expect_trained("twice", expect_warning(["gradients are reduced once"], lambda: summed(inner)))


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


@in_full
def passes_that_are_compiled():
    """By XLA where it can; torch takes half a minute."""
    optimizer = summed(sgd(0.05), backward_passes_per_step=2)
    expect_trained("compiled", optimizer, lr=0.05, steps=2, passes=2, jit_compile=True)


@check
def loss_scaling_and_passes():
    passes, two = {"backward_passes_per_step": 2}, {"lr": 0.05, "steps": 2, "passes": 2}
    expect_trained("outside", summed(scaler(sgd(0.05), initial_scale=64.0), **passes), **two)
    expect_trained("inside", scaler(summed(sgd(0.05), **passes), initial_scale=64.0), **two)


@check_if(N > 2)
def a_process_set_of_two():
    """With 3 ranks the last trains alone, at the same time."""
    two = hvd.add_process_set([0, 1])
    made = model(summed(process_set=two))
    fit(made, 2)
    w = start()
    for step in range(2):
        w = w - 0.1 * (2 * mean_gradient(w, 2, step) if R < 2 else gradient(w, R, step))
    expect_weights(made, w, "a set of two")
    for scales in (True, False):
        optimizer = summed(process_set=two, scale_local_gradients=scales)
        made = model(optimizer)
        optimizer.register_local_var(made.trainable_variables[At.V])
        fit(made)
        own = gradient(start(), R)
        if R < 2:
            own = chosen([At.V], own / (2 if scales else 1), 2 * mean_gradient(start(), 2))
        expect_weights(made, start() - 0.1 * own, f"a set of two, and a local weight, scales={scales}")
    hvd.remove_process_set(two)


main(R)
