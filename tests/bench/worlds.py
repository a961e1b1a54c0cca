# SPDX-License-Identifier: Apache-2.0
"""The ranks of the programs in Python, by each way to bring them together. Torch is imported by the first use."""

import os


class Alone:
    """Ranks that exchange nothing."""

    def __init__(self):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def slowest(self, times):
        return times

    def end(self):
        pass


class Horovod:
    """The first `horovod.torch` on the path, which may be the original."""

    def __init__(self):
        import horovod.torch as hvd

        hvd.init()
        self.hvd, self.rank, self.size, self.end = hvd, hvd.rank(), hvd.size(), hvd.shutdown

    def allreduce(self, x):
        self.hvd.allreduce_(x, op=self.hvd.Sum, name="sum")

    def barrier(self):
        self.hvd.barrier()

    def slowest(self, times):
        return self.hvd.allgather(times.reshape(1, -1), name="times").max(dim=0).values


class Distributed:
    """torch.distributed."""

    def __init__(self, backend="gloo"):
        import torch.distributed as dist

        dist.init_process_group(backend)
        self.dist, self.rank, self.size = dist, dist.get_rank(), dist.get_world_size()
        self.end = dist.destroy_process_group

    def allreduce(self, x):
        self.dist.all_reduce(x)

    def barrier(self):
        self.dist.barrier()

    def slowest(self, times):
        self.dist.all_reduce(times, op=self.dist.ReduceOp.MAX)
        return times
