# SPDX-License-Identifier: Apache-2.0
"""A plain training loop with hvd.guard, of which ranks or their agents are killed: guarded.py FOLDER STEPS KILL...

KILL: STEP:HOST:rank or STEP:HOST:agent. The ranks on that host, or their agent, are killed after that step, once.
Prints a line at the start and at the end.
"""

import hashlib
import os
import signal
import sys

import horovod.torch as hvd
import torch

FOLDER, STEPS, KILLS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
HOST = os.environ["HOROVOD_HOSTNAME"]


def kill(step):
    for number, words in enumerate(KILLS):
        at, host, what = words.split(":")
        if (int(at), host) == (step, HOST):
            try:
                os.close(os.open(f"{FOLDER}/{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue  # it was done
            guard.wait()
            hvd.allreduce(torch.ones(1), name="all have done the step")
            os.kill(os.getppid() if what == "agent" else os.getpid(), signal.SIGKILL)
            signal.pause()
    hvd.allreduce(torch.ones(1), name="all have done the step")


def digest(of):
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in of.state_dict().values())).hexdigest()[:12]


torch.set_num_threads(1)
hvd.init()
torch.manual_seed(int.from_bytes(os.urandom(4), "little"))  # what a new process begins with does not matter
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
guard = hvd.guard(model, optimizer, every=4, scheduler=scheduler)
start = guard.restore()
if not start:
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.01)
print(f"guarded: rank {hvd.rank()} of {hvd.size()} on {HOST} starts after step {start}", flush=True)
averaged = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for step in range(start + 1, STEPS + 1):
    averaged.zero_grad()
    x = torch.arange(64.0).roll(step)[None] / 64
    model(x).square().sum().backward()
    averaged.step()
    scheduler.step()
    guard.step()
    kill(step)
print(f"guarded: rank {hvd.rank()} ends with step {guard.steps} model {digest(model)}", flush=True)
guard.wait()
