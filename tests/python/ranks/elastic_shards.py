# SPDX-License-Identifier: Apache-2.0
"""A process of an elastic job with parts of its own. It carries out what test_elastic.py sends, and reports it.

go N: N steps, each with a commit; ends when all ranks have their copies of the last one.
alone: an allreduce that fails.
hold: one more step and its commit, whose copy rank 1 never sends.

The values of a part follow from its name and the step.
"""

import sys

import horovod.torch as hvd
import torch
from _hvd import exchange

exchange.ROUND_BYTES = 5000  # several rounds


def say(*words):
    print("said", *words, flush=True)


def value_of(name, step):
    return torch.arange(2000.0) * (int(name) + 1) + step


hvd.init()
parts = {hvd.rank(): {"moments": value_of(hvd.rank(), 0), "of": hvd.rank()}}


def load_parts(given):
    parts.clear()
    parts.update(given)


model = torch.nn.Linear(3, 1)
state = hvd.elastic.ShardedState(lambda: dict(parts), load_parts, model=model, step=0)


def one_step():
    hvd.allreduce(torch.ones(10), name="step")
    state.step += 1
    for part in parts.values():
        part["moments"].add_(1)
    with torch.no_grad():
        model.weight.fill_(state.step)


def verdict():
    """right: parts and model are those of this step."""
    for name, part in parts.items():
        if part["of"] != name or not torch.equal(part["moments"], value_of(name, state.step)):
            return f"part {name} is {part}"
    is_right = state.step == 0 or bool((model.weight == state.step).all())
    return "right" if is_right else f"the weights are {model.weight}"


@hvd.elastic.run
def train(state):
    say("start", hvd.rank(), hvd.size(), state.step, *sorted(parts), verdict())
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "alone":
            one_step_of_this_rank()
        if word == "hold":
            if hvd.rank() == 1:
                exchange.Exchange.start = lambda self: self
            one_step()
            state.commit()
            say("held")
        if word == "go":
            for _ in range(int(rest[0])):
                one_step()
                state.commit()
            state._spread_copy()
            say("at", state.step, verdict())
    raise AssertionError("the test has gone")


def one_step_of_this_rank():
    state.step += 1000  # must be lost
    for part in parts.values():
        part["moments"].zero_()
    hvd.allreduce(torch.ones(1), name="alone")


while True:
    try:
        train(state)
    except hvd.elastic.StateLostError as e:
        say("lost", e)
        state.step = 100
        load_parts({hvd.rank(): {"moments": value_of(hvd.rank(), 100), "of": hvd.rank()}})
        with torch.no_grad():
            model.weight.fill_(100)
