# SPDX-License-Identifier: Apache-2.0
"""What commits and copies on neighbours cost: neighbours_torch.py [MB [ROUNDS]], started by horovodrun --min-np 2 with two hosts.

    HVD_TRANSPORT=tcp horovodrun -np 2 --min-np 2 -H localhost:1,127.0.0.2:1 python3 tests/bench/neighbours_torch.py

Periods of 10 steps of a model of MB (50), in turn: without a commit; with one commit of a TorchState, of the model;
with one commit of a ShardedState, whose part has MB on each rank; with one snapshot of hvd.guard, of the model.
Medians over ROUNDS (9), on the slowest rank. A ratio is that to the period without a commit of the same round, with
the interval in which its median is with 95 %. "CPU" is the processor time of a rank, which other load on the machine
does not change much. "waited for": the same commit, and the training stands still until its copy is on the other rank.
"""

import statistics
import sys
import time

import horovod.torch as hvd
import torch

WIDTH, STEPS = 1250, 10

torch.set_num_threads(1)
hvd.init()
mb, rounds = (*map(int, sys.argv[1:]), *(50, 9)[len(sys.argv) - 1 :])
torch.manual_seed(0)
layers = max(1, mb * 1000000 // (4 * WIDTH * WIDTH))
model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
averaged = hvd.DistributedOptimizer(optimizer, model.named_parameters())
part = {hvd.rank(): [torch.randn(WIDTH, WIDTH) for _ in range(layers)]}
state = hvd.elastic.ShardedState(lambda: part, lambda parts: None, step=0)
state.sync()
whole = hvd.elastic.TorchState(model=model, optimizer=optimizer)
whole.sync()
guard = hvd.guard(model, every=1)


def one_step():
    averaged.zero_grad()
    model(torch.randn(64, WIDTH)).square().mean().backward()
    averaged.step()


def waited_for():
    state.commit()
    state._spread_copy()


def period(begin):
    """Seconds: all of it, those of begin(), processor time."""
    hvd.barrier()
    used = time.process_time()
    begun = time.perf_counter()
    begin()
    committed = time.perf_counter()
    for _ in range(STEPS):
        one_step()
    ended = time.perf_counter()
    state._spread_copy()
    guard.wait()
    return ended - begun, committed - begun, time.process_time() - used


def interval(values):
    """Of their median: order statistics, by the normal approximation of the binomial distribution."""
    values, half = sorted(values), 0.98 * len(values) ** 0.5
    at = len(values) / 2
    return values[max(0, round(at - half) - 1)], values[min(len(values) - 1, round(at + half))]


ways = {
    "without": lambda: None,
    "TorchState": whole.commit,
    "ShardedState": state.commit,
    "the same, waited for": waited_for,
    "guard": guard.step,
}
took = {way: [] for way in ways}
for number in range(rounds + 2):
    for way, begin in ways.items():
        both = hvd.allreduce(torch.tensor(period(begin), dtype=torch.float64), op=hvd.Max, name="both")
        if number >= 2:
            took[way].append(both.tolist())

if hvd.rank() == 0:
    plain = took["without"]
    base, _, cpu = map(statistics.median, zip(*plain))
    print(
        f"{4 * WIDTH * WIDTH * layers / 1e6:.0f} MB, 2 ranks, {STEPS} steps of {1e3 * base / STEPS:.0f} ms"
    )
    for way, times in took.items():
        total, call, used = (1e3 * statistics.median(column) for column in zip(*times))
        ratios = [one[0] / other[0] for one, other in zip(times, plain)]
        low, high = interval(ratios)
        print(
            f"{way:20} {total:6.0f} ms (ratio {statistics.median(ratios):.3f}, {low:.3f} to {high:.3f}), "
            f"the call {call:5.1f} ms, "
            f"CPU {used:6.0f} ms ({used - 1e3 * cpu:+.0f} ms)"
        )
