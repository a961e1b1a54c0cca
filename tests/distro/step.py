# SPDX-License-Identifier: Apache-2.0
"""step.py [FOLDER]: one rank. It reduces, says so, waits until FOLDER/go.RANK is written to, and reduces again. Without
FOLDER it does not wait. No numpy: this runs on a clean Debian."""

import ctypes
import os
import sys

from _hvd import _native, basics, handles
from _hvd._version import RINGMASTER_VERSION

FLOAT64 = 8


def total(name, value):
    source, output = (ctypes.c_double * 1)(value), (ctypes.c_double * 1)()
    at = ctypes.addressof(source), ctypes.addressof(output)
    tensor = name, *at, FLOAT64, (1,), None, 0, False
    handles.finish(
        handles.submit(
            _native.allreduce,
            (source, output),
            lambda h: None,
            tensor,
            basics.Sum,
            1.0,
            1.0,
            0,
            None,
        )
    )
    return output[0]


basics.init()
print("ready", basics.rank(), total("before", basics.rank() + 1), flush=True)
if len(sys.argv) > 1:
    with open(os.path.join(sys.argv[1], f"go.{basics.rank()}")) as go:
        go.read()
print("done", basics.rank(), total("after", basics.rank() + 1), RINGMASTER_VERSION, flush=True)
