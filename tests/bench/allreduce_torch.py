# SPDX-License-Identifier: Apache-2.0
"""Allreduce from Python: allreduce_torch.py hvd|gloo NAME, measure.h's protocol.

Started by horovodrun, or by mpirun where `horovod.torch` is the original."""

import os
import sys
import time

import torch
from rows import print_row
from worlds import Distributed, Horovod

SIZES = ((4096, 1000), (65536, 500), (1 << 20, 200), (16 << 20, 40), (128 << 20, 15))


def measure(peer, name, size_bytes, iters):
    n = size_bytes // 4
    pattern = (torch.arange(n) % 7).to(torch.float32)
    x = pattern + (peer.rank + 1)
    peer.allreduce(x)
    if not torch.equal(x, pattern * peer.size + peer.size * (peer.size + 1) / 2):
        sys.exit(f"{name}: rank {peer.rank}: wrong sum of {size_bytes} bytes")
    x.zero_()
    for _ in range(max(3, iters // 10)):
        peer.allreduce(x)
    times = torch.zeros(iters, dtype=torch.float64)
    for i in range(iters):
        peer.barrier()
        start = time.perf_counter()
        peer.allreduce(x)
        times[i] = (time.perf_counter() - start) * 1e6
    times = peer.slowest(times)
    peer.barrier()
    n_b2b = max(10, iters // 2)
    start = time.perf_counter()
    for _ in range(n_b2b):
        peer.allreduce(x)
    b2b = torch.tensor([(time.perf_counter() - start) * 1e6 / n_b2b], dtype=torch.float64)
    b2b = float(peer.slowest(b2b)[0])
    if peer.rank == 0:
        print_row(name, peer.size, size_bytes, times, b2b)


def main():
    torch.set_num_threads(1)
    kind, name = sys.argv[1:]
    peer = Horovod() if kind == "hvd" else Distributed()
    most = int(os.environ.get("BENCH_MAX_BYTES", "0")) or SIZES[-1][0]
    for size_bytes, iters in SIZES:
        if size_bytes <= most:
            measure(peer, name, size_bytes, iters)
    peer.end()


if __name__ == "__main__":
    main()
