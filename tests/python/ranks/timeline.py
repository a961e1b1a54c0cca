# SPDX-License-Identifier: Apache-2.0
"""What the timeline tests record: timeline.py [MODE]. Uses the C API, no framework."""

import os
import signal
import sys

import capi
import numpy as np

ODD_NAME = 'odd "name" \u00fc\n'


def main(mode="steps"):
    capi.init()
    for i in range(50):
        ops = [capi.Op("allreduce", np.ones(100 * k + 1, "float32"), name=f"grad/{k}") for k in range(4)]
        for op in ops:
            op.wait()
        if i % 10 == 0:
            capi.run("allgather", np.ones((2, 3), "int32"), name=ODD_NAME)
    capi.run("barrier", name="end")
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    capi.shutdown()


main(*sys.argv[1:])
