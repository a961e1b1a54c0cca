# SPDX-License-Identifier: Apache-2.0
"""torch.compile() with the optimizer and SyncBatchNorm (slow: it imports and runs the compiler; torch 2 and later)."""

import copy

import horovod.torch as hvd
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


@check
def a_compiled_model_with_sync_batch_norm_is_the_same():
    """Bit by bit, as without."""
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.BatchNorm2d(4)]
    plain = hvd.convert_sync_batchnorm(torch.nn.Sequential(*layers))
    compiled_one = copy.deepcopy(plain)
    compiled = torch.compile(compiled_one, backend="eager")
    x = torch.randn(2 + R, 3, 8, 8, generator=torch.Generator().manual_seed(R))
    for _ in range(3):
        assert torch.equal(compiled(x), plain(x))
    compiled(x).pow(2).sum().backward()
    plain(x).pow(2).sum().backward()
    for (name, a), b in zip(compiled_one.state_dict().items(), plain.state_dict().values()):
        assert torch.equal(a, b), name
    for p, q in zip(compiled_one.parameters(), plain.parameters()):
        assert torch.equal(p.grad, q.grad)


main(R)
