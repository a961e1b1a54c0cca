# SPDX-License-Identifier: Apache-2.0
"""bench_rank.py PART REPEATS [ours|torch]: one rank of a measurement of bench.py; rank 0 prints JSON lines.

latency    from the submit of 4 KiB until a stream of the device may wait for it: the batch is launched
allreduce  4 KiB to RM_MOST bytes, from the submit until the device is done; torch: torch.distributed's NCCL
tables     a bucket of ResNet-50's gradients at the same addresses each time, and at other ones each time
"""

import json
import math
import os
import sys
import time

PART, REPEATS = sys.argv[1], int(sys.argv[2])
PEER = sys.argv[3] if len(sys.argv) > 3 else "ours"
MOST = int(os.environ.get("RM_MOST", 128 << 20))
SIZES = [n for n in (4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20) if n <= MOST]


def say(rank, **row):
    if rank == 0:
        print(json.dumps({"part": PART, "peer": PEER, **row}), flush=True)


def quantile(times, q):
    return sorted(times)[min(len(times) - 1, int(len(times) * q))]


def timed(once, repeats, warm=5):
    """Seconds of each call."""
    for _ in range(warm):
        once()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return times


def of_size(n):
    """Repeats for a size, so that large ones do not take all the time."""
    return max(3, min(REPEATS, REPEATS * (1 << 20) // n + 3))


def tell(rank, times, **row):
    say(
        rank,
        median_us=quantile(times, 0.5) * 1e6,
        p99_us=quantile(times, 0.99) * 1e6,
        n=len(times),
        **row,
    )


class Ours:
    def __init__(self):
        import on_device

        self.capi, self.device = on_device.capi, on_device.device
        self.c = self.capi.c
        self.capi.init()
        self.rank, self.size = self.capi.rank(), self.capi.size()
        self.lib, self.step = self.capi.lib, 0

    def submit(self, name, p, n, is_held=0, group=None, group_size=0):
        c, capi = self.c, self.capi
        t = capi.Tensor(size_bytes=c.sizeof(capi.Tensor), name=name.encode(), data=p, output=p)
        shape = (c.c_int64 * 1)(n)
        t.dtype, t.ndim, t.shape = capi.DTYPES.index("float32"), 1, shape
        t.device, t.stream, t.is_held = 0, self.device.stream, is_held
        if group:
            t.group, t.group_size = group, group_size
        h = c.c_int64()
        capi.must(self.lib.hvd_allreduce_async(c.byref(t), capi.SUM, 1.0, 1.0, 0, c.byref(h)))
        return h.value

    def launched(self, h):
        self.capi.must(self.lib.hvd_wait_on_stream(h, self.device.stream, 30000))

    def ended(self, h):
        self.capi.must(self.lib.hvd_wait(h, 30000))
        self.capi.must(self.lib.hvd_release(h))


def latency():
    us = Ours()
    p, times = us.device.take(4096), []
    for i in range(REPEATS + 20):
        began = time.perf_counter()
        h = us.submit("latency", p, 1024)
        us.launched(h)
        if i >= 20:
            times.append(time.perf_counter() - began)
        us.ended(h)
    tell(us.rank, times, ranks=us.size, bytes=4096, blocking=os.environ.get("NCCL_COMM_BLOCKING", ""))
    us.capi.shutdown()


def allreduce():
    us = Ours()
    p = us.device.take(MOST)
    us.device.fill(p, 0, MOST)
    for n in SIZES:

        def once(n=n):
            h = us.submit("allreduce", p, n // 4)
            us.launched(h)
            us.device.sync()
            us.ended(h)

        tell(us.rank, timed(once, of_size(n)), ranks=us.size, bytes=n)
    us.capi.shutdown()


def allreduce_torch():
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    x = torch.zeros(MOST // 4, device="cuda")
    for n in SIZES:

        def once(n=n):
            dist.all_reduce(x[: n // 4])
            torch.cuda.synchronize()

        tell(dist.get_rank(), timed(once, of_size(n)), ranks=dist.get_world_size(), bytes=n)
    dist.destroy_process_group()


def tables():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench"))
    from resnet50 import gradients

    us = Ours()
    counts = [min(math.prod(shape), MOST // 4) for shape in gradients()]
    counts = counts[: int(os.environ.get("RM_TENSORS", "1000"))]
    room = sum((4 * n + 511) // 512 * 512 for n in counts)
    memory = us.device.take(room + 64 * 512)
    us.device.fill(memory, 0, room)
    lib, c = us.lib, us.c
    for is_hit in (True, False):
        moved = 0

        def once(is_hit=is_hit):
            nonlocal moved
            moved += 1
            p, handles = memory + (0 if is_hit else moved % 64 * 512), []
            for i, n in enumerate(counts):
                handles.append(us.submit(f"t{i}", p, n, 1, b"bucket", len(counts)))
                p += (4 * n + 511) // 512 * 512
            us.capi.must(lib.hvd_submit_held((c.c_int64 * len(handles))(*handles), len(handles)))
            for h in handles:
                us.launched(h)
            us.device.sync()
            for h in handles:
                us.ended(h)

        tell(us.rank, timed(once, max(3, REPEATS // 10)), ranks=us.size, bytes=4 * sum(counts), hit=is_hit)
    us.capi.shutdown()


{"latency": latency, "tables": tables, "allreduce": allreduce_torch if PEER == "torch" else allreduce}[
    PART
]()
