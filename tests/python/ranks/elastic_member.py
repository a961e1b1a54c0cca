# SPDX-License-Identifier: Apache-2.0
"""A process of an elastic job that test_elastic.py drives: it does what it reads, and says what has happened.

go N: N steps, each with a commit. wait: for an announcement, as scripts do that know how Horovod keeps
them, then go. alone: an allreduce that fails, and what it changed before is lost.
differ: an allreduce of other shapes on each rank. raise: an exception that nobody expects. end: returns.
HVD_TEST_EXIT_S: seconds that its exit takes, as that of a process with a large GPU context.
"""

import atexit
import os
import sys
import time

import horovod.torch as hvd
import torch
from horovod.torch.elastic import TorchState


def say(*words):
    print("said", *words, flush=True)


atexit.register(time.sleep, float(os.environ.get("HVD_TEST_EXIT_S", "0")))  # after hvd's own
sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([0, 2])]
hvd.init(process_sets=sets[:1])
hvd.add_process_set(sets[1])
say("init", hvd.rank(), hvd.size())

torch.manual_seed(hvd.rank() + 10 * int(os.environ["HVD_ELASTIC"].rpartition(".")[2]))
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = TorchState(model, optimizer, step=0, total=0.0)
synced = []
sync = state.sync
state.sync = lambda: (sync(), synced.append(1))


def one_step(state):
    mean = hvd.allreduce(torch.tensor([float(hvd.rank())]), name="rank").item()
    assert mean == (hvd.size() - 1) / 2, mean
    optimizer.zero_grad()
    model(torch.ones(2, 3) * (state.step + 1)).sum().backward()
    optimizer.step()
    state.step += 1
    state.total += state.step


def of_sets():
    """Of each set: how many ranks it has, and "-" where this world has it not."""
    return ",".join("-" if s.size() is None else str(s.size()) for s in sets)


@hvd.elastic.run
def train(state):
    say("start", hvd.rank(), hvd.size(), state.step, len(synced), of_sets())
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "end":
            return "result"
        if word == "alone":
            state.total += 1000  # must be lost
            hvd.allreduce(torch.ones(1), name="alone")
        if word == "raise":
            raise ValueError("a bad sample")
        if word == "differ":
            hvd.allreduce(torch.ones(2 + hvd.rank()), name="differ")
        while word == "wait" and state._host_messages.empty():
            time.sleep(0.01)
        if word in ("go", "wait"):
            for _ in range(int(rest[0])):
                one_step(state)
                state.commit()
        weight = sum(p.double().sum().item() for p in model.parameters())
        say("at", hvd.rank(), hvd.size(), state.step, state.total, f"{weight:.6f}")
    raise AssertionError("the test has gone")


try:
    say("ended", train(state))
except hvd.HorovodInternalError as e:
    say("raised", e)
    sys.exit(1)
