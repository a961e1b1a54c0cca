# SPDX-License-Identifier: Apache-2.0
"""What the timeline tests record: timeline.py [MODE]. Uses the C API, no framework."""

import os
import signal
import sys
import time

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


def by_python():
    """hvd.start_timeline() and hvd.stop_timeline(), on every rank as scripts call them."""
    from _hvd import basics as hvd

    hvd.init()
    capi.run("barrier", name="before")
    path = os.environ["HOROVOD_TIMELINE_HERE"]
    for bad in "/nonexistent/t.json", "":
        try:
            hvd.start_timeline(bad)
            assert bad and hvd.rank() != 0, "no error"
        except ValueError as e:
            assert not bad or "cannot create /nonexistent/t.json" in str(e), e
    hvd.start_timeline(path, mark_cycles=True)
    capi.run("barrier", name="end")
    hvd.stop_timeline()
    if hvd.rank() == 0:
        open(f"{path}.stopped", "w").close()
    deadline = time.monotonic() + 60
    while not os.path.exists(f"{path}.stopped"):  # else rank 0 may still record and get "after"
        assert time.monotonic() < deadline, "rank 0 has not stopped its timeline"
        time.sleep(0.001)
    capi.run("barrier", name="after")
    hvd.shutdown()
    try:
        hvd.stop_timeline()
        raise AssertionError("no error after shutdown")
    except ValueError:
        pass


if sys.argv[1:] == ["python"]:
    by_python()
else:
    main(*sys.argv[1:])
