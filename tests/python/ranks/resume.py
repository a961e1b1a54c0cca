# SPDX-License-Identifier: Apache-2.0
"""Rank 0's init() is interrupted before rank 1 comes, and is then called again."""

import os
import signal
import time

import horovod.torch as hvd
import torch


class Called(Exception):
    pass


def called(*_):
    raise Called


path = os.environ["RESUME_FILE"]
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGALRM, called)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        hvd.init()
    except Called:
        assert not hvd.is_initialized()
    else:
        raise AssertionError("init() ended without rank 1")
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
