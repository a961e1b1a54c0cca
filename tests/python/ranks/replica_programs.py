# SPDX-License-Identifier: Apache-2.0
"""Programs in which a bit of rank 1's model changes before step 5. replica_programs.py ends|elastic"""

import sys

import horovod.torch as hvd
import torch

hvd.init()
R = hvd.rank()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
changed = []


def step(number):
    if number == 5 and R == 1 and not changed:
        changed.append(number)
        with torch.no_grad():
            model.weight[1, 2] += 2**-10
    optimizer.zero_grad()
    torch.manual_seed(10 * number + R)
    model(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()


def train():
    for number in range(1, 25):
        step(number)


def train_again(state):
    while state.step < 24:
        state.step += 1
        step(state.step)
        if state.step % 4 == 0:  # where the parameters were compared
            state.commit()


if sys.argv[1] == "elastic":
    hvd.elastic.run(train_again)(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0))
else:
    train()
weights = hvd.allgather_object([p.tolist() for p in model.parameters()])
print(f"trained; the replicas are {'equal' if weights == weights[:1] * hvd.size() else 'unlike'}")
