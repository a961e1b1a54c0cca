# SPDX-License-Identifier: Apache-2.0
"""Ranks that start or train differently end with equal weights or with an error.

One rank loads a model where the other ranks build it, has other gradients, or has created more variables.
keras_alike.py [short]: `short` leaves the checks marked by @on_one to torch and Keras 2.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from checks import check, check_if, expect_error, main
from keras_expect import expect_alike, expect_trained, expect_weights
from keras_flavour import IS_3, N, R, hvd, keras, on_one
from keras_models import SUFFIX, fit, layers, model, scaler, set_weights, sgd, summed, weights
from keras_steps import ROWS, WIDTH, close, data, gradient, mean_gradient, sgd_steps, start

PATH = os.path.join(os.environ["CHECKS_DIR"], f"alike{R}.{SUFFIX}")


@check
def names_do_not_count_what_a_rank_has_made():
    class Unnamed(keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(WIDTH, 1))

        def call(self, x):
            return keras.ops.matmul(x, self.w) if IS_3 else x @ self.w

    if R == 0:
        model(sgd())
        Unnamed().build((None, WIDTH))
    expect_trained("Dense", summed())
    made = keras.Sequential([layers()[0], Unnamed()])
    w = np.full((WIDTH, 1), 0.5, np.float32)
    made.set_weights([w])
    made.compile(summed(), loss="mse")
    fit(made)
    grads = [2 / ROWS * x.T @ (x @ w - y) for x, y in map(data, range(N))]
    close(made.get_weights()[0], w - 0.1 * np.sum(grads, axis=0), "unnamed")


@check_if(IS_3)
def gradients_that_not_all_ranks_have():
    """Each rank begins with another of two heads; they must not take one for the other."""
    heads = [keras.Variable(np.zeros((2, 1), np.float32), name="kernel") for _ in range(2)]
    optimizers = [summed(sgd(1.0), name="heads") for _ in heads]
    for optimizer in optimizers:
        optimizer.build(heads)

    def apply(head):
        grad = keras.ops.convert_to_tensor(np.full((2, 1), 1.0 + head + 10 * R, np.float32))
        grads = [None, None]
        grads[head] = grad
        optimizers[head].apply(grads, heads)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(apply, (i + R) % 2) for i in range(2)]:
            done.result()
    for head in range(2):
        want = -sum(1.0 + head + 10 * rank for rank in range(N))
        close(keras.ops.convert_to_numpy(heads[head]), np.full((2, 1), want), f"head {head}")


@check
def passes_of_a_loaded_model():
    """Rank 0 loads it, the other ranks build one: as after a restart."""
    for averages, factor in ((False, 1), (True, 0.5)):
        options = {"backward_passes_per_step": 2, "average_aggregated_gradients": averages}
        made = model(hvd.DistributedOptimizer(sgd(0.05), **options))
        fit(made, 3)  # the third is the first pass of the next step
        made.save(PATH)
        if IS_3:
            words = ["backward_passes_per_step=2", "gradient_accumulation_steps=2"]
            expect_error(ValueError, words, hvd.load_model, PATH)
            words = ["backward_passes_per_step=3", "built"]
            expect_error(ValueError, words, hvd.load_model, PATH, backward_passes_per_step=3)
        if R == 0:
            made = hvd.load_model(PATH, **options)
        else:
            made = model(hvd.DistributedOptimizer(sgd(0.05), **options))
        at = np.asarray(hvd.allgather(weights(made).reshape(1, -1)))  # the first pass is at each rank's own
        fit(made, 2, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)], first=2)
        expect_alike(weights(made), "after the first step")
        firsts = np.mean([gradient(w, r, 2) for r, w in enumerate(at)], axis=0)
        w = at[0] - 0.05 * factor * (firsts + mean_gradient(at[0], N, 3))
        expect_weights(made, w, f"averages={averages}: the first step")
        fit(made, 2, first=4)
        grad = mean_gradient(w, N, 4) + mean_gradient(w, N, 5)
        expect_weights(made, w - 0.05 * factor * grad, f"averages={averages}")


@check_if(IS_3 and N > 1)
def passes_that_ranks_do_not_agree_on():
    two = sgd(0.05, gradient_accumulation_steps=2)
    if R == 0:
        made = model(hvd.DistributedOptimizer(two))
    else:
        made = model(hvd.DistributedOptimizer(sgd(0.05), backward_passes_per_step=2))
    expect_error(Exception, ["Mismatched", "postscale"], fit, made, 2)


@on_one
def passes_of_the_outer_one_count():
    for inner, outer in ((2, 1), (2, 2), (2, 3), (1, 2)):
        optimizer = hvd.DistributedOptimizer(sgd(0.05), backward_passes_per_step=inner)
        optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=outer)
        expect_trained(f"{outer} around {inner}", optimizer, lr=0.05, passes=outer, factor=1)


@check
def loss_scaling_of_a_loaded_model():
    """compile() puts it around the optimizer of those who build the model; the file has it."""
    for inside in (True, False):
        scale = {"initial_scale": 64.0}
        made = model(scaler(summed(), **scale) if inside else summed(scaler(sgd(), **scale)))
        fit(made)
        made.save(PATH)
        made = hvd.load_model(PATH, op=hvd.Sum) if R == 0 else model(scaler(summed(), **scale))
        set_weights(made, start())
        fit(made, 2)
        expect_weights(made, sgd_steps(N, steps=2, factor=N), f"inside={inside}")


@on_one
def options_of_a_loaded_model():
    expect_trained("before", summed()).save(PATH)
    made = hvd.load_model(PATH, op=hvd.Sum)
    fit(made, 1, first=1)
    expect_weights(made, sgd_steps(N, steps=2, factor=N))
    expect_error(ValueError, ["Average and Sum"], hvd.load_model, PATH, op=hvd.Adasum)


main(R)
