# SPDX-License-Identifier: Apache-2.0
"""die.py HOW: ranks add up for a long time; rank 1 ends early. HOW is before (hvd.init), or one below."""

import ctypes
import os
import signal
import sys

how = sys.argv[1]
if how == "before" and os.environ["SLURM_PROCID"] == "1":
    sys.exit(3)

import horovod.torch as hvd  # noqa: E402
import torch  # noqa: E402

hvd.init()
for step in range(1000000):
    hvd.allreduce(torch.ones(10), name="x")
    if step == 20 and hvd.rank() == 1:
        if how == "raise":
            raise ValueError("bad batch")
        if how == "exit":
            sys.exit(7)
        if how == "fault":
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)
