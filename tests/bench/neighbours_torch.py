# SPDX-License-Identifier: Apache-2.0
"""What copies on neighbours cost: neighbours_torch.py [MB], started by horovodrun --min-np 2 with two hosts.

    HVD_TRANSPORT=tcp horovodrun -np 2 --min-np 2 -H localhost:1,127.0.0.2:1 python3 tests/bench/neighbours_torch.py

Periods of 10 steps of a model of MB (50), in turn: without a commit; with one commit of a ShardedState, whose part
has MB on each rank; with one snapshot of hvd.guard, of the model. Medians over 9 rounds, on the slowest rank. "CPU" is
the processor time of a rank, which other load on the machine does not change much. "waited for": the same
commit, and the training stands still until its copy is on the other rank.
"""

import statistics
import sys
import time

import horovod.torch as hvd
import torch

WIDTH, STEPS, ROUNDS = 1250, 10, 9

torch.set_num_threads(1)
hvd.init()
mb = int(sys.argv[1]) if len(sys.argv) > 1 else 50
torch.manual_seed(0)
layers = max(1, mb * 1000000 // (4 * WIDTH * WIDTH))
model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
averaged = hvd.DistributedOptimizer(optimizer, model.named_parameters())
part = {hvd.rank(): [torch.randn(WIDTH, WIDTH) for _ in range(layers)]}
state = hvd.elastic.ShardedState(lambda: part, lambda parts: None, step=0)
state.sync()
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


ways = {
    "without": lambda: None,
    "commit": state.commit,
    "commit, waited for": waited_for,
    "guard": guard.step,
}
took = {way: [] for way in ways}
for number in range(ROUNDS + 2):
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
        ratio = statistics.median(one[0] / other[0] for one, other in zip(times, plain))
        print(
            f"{way:20} {total:6.0f} ms (ratio {ratio:.3f}), the call {call:5.1f} ms, "
            f"CPU {used:6.0f} ms ({used - 1e3 * cpu:+.0f} ms)"
        )
