# SPDX-License-Identifier: Apache-2.0
"""Rank 0's init() is interrupted before rank 1 starts, and is then called again."""

import os
import time

import horovod.torch as hvd
import torch
from checks import interrupted

path = os.environ["RESUME_FILE"]
if os.environ["RANK"] == "0":
    interrupted(hvd.init)
    assert not hvd.is_initialized()
    with open(path, "w"):
        pass
else:
    deadline = time.monotonic() + 120
    while not os.path.exists(path):
        assert time.monotonic() < deadline, "rank 0 was not interrupted"
        time.sleep(0.01)
hvd.init()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
print("MET", flush=True)
