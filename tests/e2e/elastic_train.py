# SPDX-License-Identifier: Apache-2.0
"""An elastic training for elastic.py: it writes who is in each world, and ends when a host has /tmp/end.

/tmp/step has the step, also while no launcher prints it. FAIL_ON=POD NODE: processes of that pod fail on that
node, which is $NODE of their agent; their own is the launcher's.
"""

import os
import socket
import sys
import time

if "FAIL_ON" in os.environ:
    with open(f"/proc/{os.getppid()}/environ") as f:
        node = dict(v.split("=", 1) for v in f.read().split("\0") if v)["NODE"]
    if os.environ["FAIL_ON"] == f"{socket.gethostname()} {node}":
        sys.exit("this node is bad")

import horovod.torch as hvd
import torch

print("imports are done", flush=True)
hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def say_world():
    host = socket.gethostname()
    place = f"rank {hvd.rank()} pid {os.getpid()} on {host} step {state.step}"
    print(f"world of {hvd.size()}: {place}", flush=True)


@hvd.elastic.run
def train(state):
    say_world()
    while state.step < int(sys.argv[1]):
        optimizer.zero_grad()
        model(torch.ones(4, 10)).pow(2).mean().backward()
        optimizer.step()
        state.step += 1
        hvd.progress(step=state.step)
        with open("/tmp/step", "w") as f:
            f.write(f"{state.step}\n")
        if state.step % 20 == 0 and hvd.rank() == 0:
            print(f"step {state.step} of a world of {hvd.size()}", flush=True)
        end = hvd.allreduce(torch.tensor(float(os.path.exists("/tmp/end"))), name="end", op=hvd.Max)
        if end > 0:
            return
        time.sleep(0.02)
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
train(state)
