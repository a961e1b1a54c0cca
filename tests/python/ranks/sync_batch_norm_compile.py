# SPDX-License-Identifier: Apache-2.0
"""torch.compile() of a model with SyncBatchNorm: the same results, bit by bit, as without."""

import copy

import horovod.torch as hvd
import torch
from checks import check, main

hvd.init()
torch.set_num_threads(1)
R = hvd.rank()


@check
def a_compiled_model_with_sync_batch_norm_is_the_same():
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.BatchNorm2d(4)]
    plain = hvd.convert_sync_batchnorm(torch.nn.Sequential(*layers))
    model = copy.deepcopy(plain)
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(2 + R, 3, 8, 8, generator=torch.Generator().manual_seed(R))
    for _ in range(3):
        assert torch.equal(compiled(x), plain(x))
    compiled(x).pow(2).sum().backward()
    plain(x).pow(2).sum().backward()
    for (name, a), b in zip(model.state_dict().items(), plain.state_dict().values()):
        assert torch.equal(a, b), name
    for p, q in zip(model.parameters(), plain.parameters()):
        assert torch.equal(p.grad, q.grad)


main(R)
