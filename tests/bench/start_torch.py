# SPDX-License-Identifier: Apache-2.0
"""start_capi.c from Python: start_torch.py hvd|gloo.

hvd: the first `horovod.torch` on the path. gloo: torch.distributed alone.
"""

import os
import sys
import time


def main():
    if sys.argv[1] == "hvd":
        import horovod.torch as hvd

        hvd.init()
        rank, size, end = hvd.rank(), hvd.size(), hvd.shutdown
    else:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        rank, size, end = dist.get_rank(), dist.get_world_size(), dist.destroy_process_group
    line = f"{rank} {size} {time.monotonic_ns()}\n"
    fd = os.open(os.environ["BENCH_STAMPS"], os.O_WRONLY | os.O_APPEND)
    os.write(fd, line.encode())
    os.close(fd)
    end()


if __name__ == "__main__":
    main()
