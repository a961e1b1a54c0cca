# SPDX-License-Identifier: Apache-2.0
"""Ten steps whose gradients are summed. replay.py STEPS: rank 1 creates $FLIP_WHEN before step 4, if it is
set; see flip.c."""

import os
import sys

import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(0)
model = torch.nn.Linear(300, 200)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
for step in range(1, int(sys.argv[1]) + 1):
    if step == 4 and hvd.rank() == 1 and "FLIP_WHEN" in os.environ:
        with open(os.environ["FLIP_WHEN"], "w"):
            pass
    optimizer.zero_grad()
    torch.manual_seed(10 * step + hvd.rank())
    model(torch.randn(3, 300)).square().mean().backward()
    optimizer.step()
weights = hvd.allgather_object([p.tolist() for p in model.parameters()])
print(f"trained; the replicas are {'equal' if weights == weights[:1] * hvd.size() else 'unlike'}")
