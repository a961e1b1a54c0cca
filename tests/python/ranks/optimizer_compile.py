# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer and torch.compile (slow: it imports and runs the compiler; torch 2 and later)."""

import torch
from checks import check, main
from references import close, reference, sgd, wrap
from training import R, batch, loss_of, model, train


@check
def compiled_models_train():
    m = model()
    train(torch.compile(m, backend="aot_eager"), wrap(m), 3)
    close(m, reference(3, sgd))
    m = model()
    optimizer = wrap(m)

    @torch.compile(backend="eager")
    def whole(x):
        optimizer.zero_grad()
        loss = loss_of(m, x)
        loss.backward()
        optimizer.step()
        return loss

    for step in range(3):
        whole(batch(step, R))
    close(m, reference(3, sgd))


main(R)
