# SPDX-License-Identifier: Apache-2.0
"""tap.py [NAME...]: runs test_NAME.py of this folder (NAME.CLASS.METHOD: one test) and prints TAP.

Job tests produce one TAP line per check and rank program: a test method may call
self.points([(name, error or None, skip reason or None)]) instead of asserting.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
import traceback
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


def processor_seconds():
    """Of all processes that have been started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Tap(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.count = self.bad = 0
        self.failed = []

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic(), processor_seconds()

    def line(self, ok, name, skip=None):
        self.count += 1
        self.bad += not ok
        tail = f" # SKIP {skip}" if skip else ""
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}{tail}", flush=True)

    def detail(self, text):
        for line in text.rstrip().splitlines():
            print(f"#   {line}", flush=True)

    @staticmethod
    def name(test):
        text = test.id().split(".", 1)[-1] if hasattr(test, "_testMethodName") else str(test)
        return text.replace("#", "")

    def points(self, test):
        for name, error, skip in getattr(test, "hvd_points", []):
            self.line(error is None, name, skip)
            if error:
                self.failed.append(test.id())
                self.detail(error)

    def addSuccess(self, test):
        self.points(test)
        took, of_processors = time.monotonic() - self.began[0], processor_seconds() - self.began[1]
        self.line(True, f"{self.name(test)} ({took:.1f} s, {of_processors:.1f} s of processors)")

    def fault(self, test, err):
        self.points(test)
        self.failed.append(getattr(test, "test_case", test).id())
        self.line(False, self.name(test))
        self.detail("".join(traceback.format_exception(*err)))

    addError = addFailure = fault

    def addSkip(self, test, reason):
        self.line(True, self.name(test), reason)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.fault(subtest, err)


def chosen(tests):
    """Where HVD_TEST_TORCHES names torches, what runs under them alone (job.py)."""
    if not os.environ.get("HVD_TEST_TORCHES"):
        return tests
    return [test for test in single(tests) if (getattr(test, "torch", None) or "debian") != "debian"]


def single(tests):
    """The tests of a suite of suites."""
    if isinstance(tests, unittest.TestSuite):
        return [one for group in tests for one in single(group)]
    return [tests]


def write_failed(ids):
    """For tests/run.py, which repeats them: NAME.CLASS.METHOD, or all where no single test failed."""
    if ids and os.environ.get("RM_FAILED"):
        names = [i.removeprefix("test_") if i.startswith("test_") else "*" for i in ids]
        Path(os.environ["RM_FAILED"]).write_text("".join(f"{n}\n" for n in names))


def main():
    sys.path.insert(0, str(HERE))
    names = sys.argv[1:]
    suite = unittest.TestSuite()
    for name in names:
        importlib.import_module(f"test_{name.partition('.')[0]}")  # its errors as they are
        suite.addTests(chosen(unittest.defaultTestLoader.loadTestsFromName(f"test_{name}")))
    result = Tap()
    suite.run(result)
    write_failed(result.failed)
    print(f"1..{result.count}", flush=True)
    return 1 if result.bad else 0


if __name__ == "__main__":
    sys.exit(main())
