# SPDX-License-Identifier: Apache-2.0
"""start_capi.c from Python: start_torch.py hvd|gloo.

hvd: the first `horovod.torch` on the path. gloo: torch.distributed alone.
"""

import os
import sys
import time

from worlds import Distributed, Horovod


def main():
    world = Horovod() if sys.argv[1] == "hvd" else Distributed()
    line = f"{world.rank} {world.size} {time.monotonic_ns()}\n"
    fd = os.open(os.environ["BENCH_STAMPS"], os.O_WRONLY | os.O_APPEND)
    os.write(fd, line.encode())
    os.close(fd)
    world.end()


if __name__ == "__main__":
    main()
