# SPDX-License-Identifier: Apache-2.0
"""The cost of DistributedOptimizer per gradient in Python: hook_torch.py [GRADIENTS], started by horovodrun.

The gradients have one element each, so that only the overhead counts: processor time of the training thread
in the hook (queue, submission) and in synchronize() (wait, delivery), and the submission alone, through the
extension. Medians over rounds, rank 0.
"""

import statistics
import sys
import time

import horovod.torch as hvd
import torch
from _hvd.torch.submit import submit_allreduce

ROUNDS, WARM_UP = 200, 20


def measure(optimizer, params):
    hooks, waits = [], []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for p in params:
            optimizer._hvd.ready(p)
        middle = time.thread_time()
        optimizer.synchronize()
        hooks.append(middle - begin)
        waits.append(time.thread_time() - middle)
    return [statistics.median(x[WARM_UP:]) * 1e6 / len(params) for x in (hooks, waits)]


def measure_submit(params):
    times = []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        pending = [
            submit_allreduce(p.grad, p.grad, f"grad.{i}", hvd.Average, 1.0, 1.0, 0) for i, p in params
        ]
        times.append(time.thread_time() - begin)
        for handle in pending:
            hvd.synchronize(handle)
    return statistics.median(times[WARM_UP:]) * 1e6 / len(params)


def main(n="161"):
    hvd.init()
    torch.set_num_threads(1)
    params = [torch.nn.Parameter(torch.ones(1)) for _ in range(int(n))]
    for p in params:
        p.grad = torch.ones(1)
    submit = measure_submit(list(enumerate(params)))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1))
    hook, wait = measure(optimizer, params)
    if hvd.rank() == 0:
        print(f"hook {hook:.2f} us a gradient, of it submission {submit:.2f}; synchronize {wait:.2f}")
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
