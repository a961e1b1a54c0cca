# SPDX-License-Identifier: Apache-2.0
"""die.py HOW: ranks add up for a long time; rank 1 dies early. HOW is before (hvd.init), exit or kill."""

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
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
