# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): results by rank, live output, exceptions with the rank's traceback, interruptions,
and nothing left behind. Each case is a small script, as a user would write it."""

import os
import signal
import tempfile
import time
import unittest
from pathlib import Path

from job import DEBIAN_PYTHON, STAGE, environment, python, start

ALLREDUCE = """
import horovod

def train(x, y=0):
    import horovod.torch as hvd, torch
    hvd.init()
    print("hello from", hvd.rank())
    total = hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum)
    return hvd.rank(), hvd.size(), x + y, total.item()

print(horovod.run(train, args=(3,), kwargs={"y": 4}, num_proc=3, start_timeout=300))
"""

FAILS = """
import horovod, traceback

def train():
    import horovod.torch as hvd, torch
    hvd.init()
    if hvd.rank() == 1:
        raise KeyError("the batch of rank 1")
    hvd.allreduce(torch.ones(3))

try:
    horovod.run(train, num_proc=2)
except RuntimeError as e:
    assert isinstance(e.__cause__, KeyError), e.__cause__
    assert e.__cause__.args == ("the batch of rank 1",), e.__cause__.args
    assert "in train" in str(e.__cause__.__cause__), e.__cause__.__cause__
    print("RAISED", e)
    raise
"""

SAYS = """
import horovod, os, sys, time

def dies():
    if os.environ["HOROVOD_RANK"] == "1":
        os.kill(os.getpid(), 9)
    time.sleep(60)

def leaves():
    if os.environ["HOROVOD_RANK"] == "0":
        sys.exit(0)

def gives_a_generator():
    return (i for i in range(3))

def gives_something_else():
    return 1

def say(what, **given):
    try:
        print(what, "gave", horovod.run(*given.pop("func"), **given))
    except (RuntimeError, ValueError, TypeError) as e:
        print(what, type(e).__name__, e)

class Odd:
    def __reduce__(self):
        raise ValueError("not this one")

say("killed", func=(dies,), num_proc=2)
say("left", func=(leaves,), num_proc=2)
say("generator", func=(gives_a_generator,))
say("argument", func=(gives_something_else, (Odd(),)))
say("timeout", func=(gives_something_else,), start_timeout=-4)
say("both", func=(gives_something_else,), hosts="a:1", hostfile="x")
say("engines", func=(gives_something_else,), use_gloo=True, use_mpi=True)
say("callable", func=(3,))
say("np", func=(gives_something_else,), np=2)
sys.modules["cloudpickle"] = None
say("pickle", func=(gives_something_else,))
say("builtin", func=(len, ("four",)), num_proc=2)
"""

WAITS = """
import horovod, time

def wait():
    try:
        print("WAITING", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        print("STOPPED", flush=True)
        raise

try:
    horovod.run(wait, num_proc=2)
except KeyboardInterrupt:
    print("INTERRUPTED")
"""


def processes_of(mark):
    """Processes whose command line has mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            found.append((path.parent.name, line))
    return found


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def script(self, code, **extra):
        return python(code, HVD_RUN_DIR=self.folder, **extra)

    def assert_nothing_left(self):
        """No process and no file of a run in our folder, soon."""
        deadline = time.monotonic() + 60
        while (left := processes_of(self.folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(left, [])

    def test_results_come_by_rank_and_output_live_with_its_rank(self):
        ended = self.script(ALLREDUCE)
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("[(0, 3, 7, 3.0), (1, 3, 7, 3.0), (2, 3, 7, 3.0)]", ended.out)
        for rank in range(3):
            self.assertIn(f"[{rank}]<stdout>:hello from {rank}\n", ended.out)
        self.assertEqual(os.listdir(self.folder), [])

    def test_the_first_exception_has_its_ranks_traceback(self):
        ended = self.script(FAILS)
        self.assertEqual(ended.code, 1, ended)
        self.assertEqual(ended.out.count("in train\n"), 1, "one traceback, that of the first rank")
        self.assertRegex(
            ended.out, r"RAISED horovod\.run: rank 1 on host \S+ raised KeyError: 'the batch of rank 1'"
        )
        self.assertEqual(os.listdir(self.folder), [])

    def test_failures_have_one_line_of_text(self):
        ended = self.script(SAYS)
        self.assertEqual(ended.code, 0, ended)
        for line in (
            "killed RuntimeError horovod.run: the job exited with non-zero status 137: "
            "horovodrun: rank 1 on localhost was killed by signal 9 (SIGKILL)",
            "left RuntimeError horovod.run: func returned on ranks [1] only, the other ranks left (sys.exit?)",
            "both ValueError Argument hosts and hostfile only allow one provided.",
            "engines ValueError Argument use_gloo and use_mpi only allow one set True.",
            "callable TypeError horovod.run: func is 3, which cannot be called",
            "np gave [1, 1]",
            "builtin gave [4, 4]",
        ):
            self.assertIn(line + "\n", ended.out)
        for pattern in (
            r"generator RuntimeError .*the result of type generator cannot be pickled",
            r"argument ValueError .*cannot be pickled: not this one",
            r"timeout RuntimeError .*status 2: horovodrun: --start-timeout=-4 must be",
            r"pickle ValueError .*pip install cloudpickle",
        ):
            self.assertRegex(ended.out, pattern)

    def begin(self):
        """A job of two ranks that wait, once both do."""
        process = start(
            [DEBIAN_PYTHON, "-c", WAITS],
            environment(HVD_RUN_DIR=self.folder),
            start_new_session=True,
            # A background shell starts tests with SIGINT ignored, and so would the job be.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        seen = 0
        while seen < 2:
            line = process.stdout.readline()
            self.assertNotEqual(line, "", "the job ended before both ranks waited")
            seen += "WAITING" in line
        return process

    def test_ctrl_c_ends_the_ranks_and_the_script_continues(self):
        process = self.begin()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
        self.assertEqual(out.count("STOPPED"), 2, out)
        self.assertTrue(out.endswith("INTERRUPTED\n"), out)
        self.assertEqual(process.returncode, 0, out)
        self.assert_nothing_left()
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_killed_caller_leaves_no_process(self):
        process = self.begin()
        process.kill()
        process.wait(timeout=60)
        self.assert_nothing_left()

    def test_a_folder_that_a_host_does_not_have_is_named(self):
        task = STAGE / "python" / "_hvd" / "run_task.py"
        ended = python(
            "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
            task,
            "/nowhere/horovod.run.x",
            HOROVOD_RANK="0",
            HOROVOD_SIZE="1",
        )
        self.assertEqual(ended.code, 1, ended)
        self.assertIn("/nowhere/horovod.run.x/function cannot be read on host", ended.out)
        self.assertIn("HVD_RUN_DIR must name a folder that all of them share", ended.out)

    def test_the_launcher_as_a_module(self):
        ended = python(
            "import runpy; runpy.run_module('horovod.runner.launch', run_name='__main__')", "--version"
        )
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("0.28.1", ended.out)
