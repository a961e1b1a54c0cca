# SPDX-License-Identifier: Apache-2.0
"""rank.py OUT LIMIT TESTFILE: one rank of a run of one test file under pytest; run.py starts it N times.

What happens is written as it happens, one JSON object a line, to OUT/rank.R.jsonl, so that a rank that
hangs or dies leaves what it was at. A test that takes longer than LIMIT seconds ends the process, and a
SIGTERM (from a launcher that ends the other ranks) does too: both leave the stacks of all threads in
OUT/rank.R.stacks. OUT/leave-out, where it is, names the tests to leave out, one a line. OUT/rank.R.xml
is pytest's own report, written at its end only. Tests of integration/ that start elastic jobs start ours
(elastic_launch.py).
"""

import ctypes
import faulthandler
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
RANK_NAMES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


class Recorder:
    """A pytest plugin that writes down every test's beginning, outcome, reason and end."""

    def __init__(self, out, limit_s, stacks, leave_out):
        self.out, self.limit_s, self.stacks, self.leave_out = out, limit_s, stacks, leave_out
        self.now = {}

    def write(self, **what):
        self.out.write(json.dumps(what) + "\n")
        self.out.flush()

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid not in self.leave_out]

    def pytest_collection_finish(self, session):
        self.write(tests=[item.nodeid for item in session.items])

    def pytest_collectreport(self, report):
        if report.failed:
            self.write(collection=report.longreprtext)
        elif report.skipped:
            self.write(left=report.longrepr[2] if isinstance(report.longrepr, tuple) else "skipped")

    def pytest_runtest_logstart(self, nodeid):
        faulthandler.dump_traceback_later(self.limit_s, exit=True, file=self.stacks)
        self.now = {"outcome": "passed", "why": "", "began": time.monotonic()}
        self.write(start=nodeid)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.now.update(outcome="failed", why=report.longreprtext)
        elif report.skipped and self.now["outcome"] == "passed":
            why = getattr(report, "wasxfail", None)
            if why is None:
                why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.now.update(outcome="skipped", why=why.removeprefix("Skipped: "))

    def pytest_runtest_logfinish(self, nodeid):
        faulthandler.cancel_dump_traceback_later()
        took_s = round(time.monotonic() - self.now["began"], 3)
        self.write(end=nodeid, outcome=self.now["outcome"], why=self.now["why"], took_s=took_s)


def the_rank():
    for name in RANK_NAMES:
        if name in os.environ:
            return int(os.environ[name])
    return 0


def main():
    out, limit_s, test = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    starts_jobs = test.parent.name == "integration" and test.name.startswith("test_elastic_")
    if starts_jobs and importlib.util.find_spec("_hvd"):
        import elastic_launch

        elastic_launch.install()
    sys.path.pop(0)  # this folder: the tests must not import its modules
    import pytest

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    rank = the_rank()
    leave_out = out / "leave-out"
    left = set(leave_out.read_text().splitlines()) if leave_out.exists() else set()
    # conftest.py of the folder above belongs to the tests too (Horovod's test/conftest.py)
    top = test.parent.parent if (test.parent.parent / "conftest.py").exists() else test.parent
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", f"--rootdir={test.parent}"]
    options += [f"--confcutdir={top}", f"--junitxml={out}/rank.{rank}.xml", "-o", "junit_family=xunit2"]
    with (out / f"rank.{rank}.jsonl").open("w") as file, (out / f"rank.{rank}.stacks").open("w") as stacks:
        faulthandler.enable(stacks)
        faulthandler.register(signal.SIGTERM, stacks, all_threads=True, chain=True)
        recorder = Recorder(file, limit_s, stacks, left)
        pytest.main([*options, str(test)], plugins=[recorder])
        recorder.write(finished=True)
        # The interpreter's end, where the runtime leaves the job, is on the clock too.
        faulthandler.dump_traceback_later(limit_s, exit=True, file=sys.__stderr__)
        faulthandler.unregister(signal.SIGTERM)
        faulthandler.enable(sys.__stderr__)


if __name__ == "__main__":
    main()
