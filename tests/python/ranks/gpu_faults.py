# SPDX-License-Identifier: Apache-2.0
"""Errors of ranks with arrays on GPUs when rank 1 has the fault named by argv.

Started without a launcher, which would end the other ranks. Each of them prints a line of JSON: the error,
the time since the fault, and whether a new world works. Step 5 is the first that fails.
"""

import contextlib
import json
import os
import signal
import sys
import time

import numpy as np
from _hvd import _native
from _hvd.exceptions import HorovodInternalError
from capi import MAX
from gpu_ops import Array, Gpu, Op

FAULT = sys.argv[1]
STEP = 5
FAULTS = {
    "async": f"async_error=1:3@{STEP}",
    "enqueue": f"enqueue_hang=1@{STEP}",
    "illegal": f"kernel_error=700@{40 * STEP}",
    "xid": f"async_error=1:2@{STEP}",
}
RANK = int(os.environ["RANK"])
if FAULT in FAULTS and (RANK == 1 or FAULT != "illegal"):
    os.environ["HVD_FAKE_FAULTS"] = FAULTS[FAULT]
if FAULT == "xid" and RANK == 1:
    os.environ["HVD_FAKE_XID"] = "79"

FILE = os.path.join(os.environ["CHECKS_DIR"], "victim")


def meet():
    _native.start(0, ((),))
    _native.join()


def victim():
    with open(FILE + ".new", "w") as f:
        json.dump([os.getpid(), time.time()], f)
    os.replace(FILE + ".new", FILE)
    os.kill(os.getpid(), signal.SIGKILL if FAULT == "kill" else signal.SIGSTOP)


def steps():
    """Returns the error that ends them. Memory is allocated once, as in frameworks: a lost device has
    none."""
    arrays = [Array(gpu, np.ones(3000, np.float32)) for _ in range(3)]
    for step in range(3000):
        if step == STEP and RANK == 1 and FAULT in ("kill", "stop"):
            victim()
        try:
            ops = [
                Op(gpu, "allreduce", x, "float32", name=f"step.{i}", op=MAX, in_place=True)
                for i, x in enumerate(arrays)
            ]
            _native.wait_many(tuple(o.handle for o in ops), gpu.main)
        except HorovodInternalError as e:
            return str(e)
        for o in ops:
            with contextlib.suppress(RuntimeError):  # of the test's own calls into a device that is lost
                o.result()
    return None


def new_world():
    _native.shutdown()
    meet()
    wanted = sum(range(_native.size()))
    got = Op(gpu, "allreduce", np.full(10, RANK, np.float32)).wait()
    _native.join()  # whoever ends ends the others' work as well
    _native.shutdown()
    return bool((got == wanted).all())


meet()
gpu = Gpu(RANK)
error = steps()
told = time.time()
said = {"error": error, "seconds": None, "goes_on": None}
if os.path.exists(FILE):
    with open(FILE) as f:
        pid, began = json.load(f)
    said["seconds"] = told - began
    if FAULT == "stop":
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
if FAULT in ("async", "xid"):
    said["goes_on"] = new_world()
print(json.dumps(said), flush=True)
os._exit(0)  # what is left of a broken device is not of interest
