# SPDX-License-Identifier: Apache-2.0
"""Deaths, exits and forks of ranks. Started by hand with torchrun's variables, so that no launcher
stops the survivors and each rank's own behaviour shows."""

import contextlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from job import DEBIAN_PYTHON, bare_ranks, best_of, environment, python


def at(word, ended):
    """The time in a line `WORD at=SECONDS ...` of a rank's output, and the rest of the line."""
    m = re.search(rf"^{word} at=([0-9.]+) ?(.*)$", ended.out, re.MULTILINE)
    assert m, f"no line {word} in: {ended}"
    return float(m[1]), m[2]


class Life(unittest.TestCase):
    def ranks(self, n, mode, **extra):
        return bare_ranks(n, "life.py", mode, **extra)

    def assert_reported(self, mode, n):
        """The survivors name rank 1 within a second of its death; returns how the ranks ended."""
        ends = []

        def attempt():
            ends[:] = self.ranks(n, mode)
            died, _ = at("DYING", ends[1])
            told = []
            for ended in ends[:1] + ends[2:]:
                failed, sentence = at("FAILED", ended)
                told.append(failed - died)
                self.assertRegex(sentence, r"rank 1\b", ended)
                self.assertEqual(ended.code, 0, ended)
            return max(told)

        self.assertLess(best_of(1.0, attempt), 1.0, [str(e) for e in ends])
        return ends

    def test_a_killed_rank_is_named_within_a_second(self):
        ends = self.assert_reported("killed", 3)
        self.assertEqual(ends[1].code, -9)

    def test_every_pending_operation_fails(self):
        ends = self.assert_reported("killed-pending", 2)
        self.assertIn("all 50 failed", ends[0].out)

    def test_ranks_end_as_their_programs_do(self):
        for mode, code, said in (
            ("exit-3", 3, ""),  # without shutdown()
            ("raise", 1, "a bug of the user's"),
            ("exit-pending", 4, ""),  # does not wait for an operation that nobody answers
            ("data-loader", 0, "LOADED"),  # its workers are not ranks
        ):
            ends = self.ranks(2, mode)
            for ended in ends:
                self.assertEqual(ended.code, code, f"{mode}: {ended}")
                self.assertIn(said, ended.out, mode)
        self.assertRegex(
            ends[0].out,
            r"ValueError: rank 0 is process \d+ already, and this process \(pid \d+\) was started with the "
            r"same rank: .* do not call hvd\.init\(\) in a worker process, .*__main__.*horovodrun -np",
        )

    def test_a_late_rank_shows_where_its_threads_are(self):
        stall = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HVD_STALL_STACKS": "1"}
        first, second = self.ranks(2, "late", **stall)
        self.assertIn('tensor "allreduce.second" (ALLREDUCE) has waited', first.out)
        self.assertIn("for rank 1 (host ", first.out)
        self.assertNotIn("stuck_in_the_loader", first.out)
        self.assertIn('has not submitted rank=1 tensor="allreduce.second"', second.out)
        self.assertIn("in stuck_in_the_loader", second.out)
        for ended in (first, second):
            self.assertEqual(ended.code, 0, ended)
            self.assertIn("LATE", ended.out)

    def test_ranks_that_wait_for_each_other_are_reported_and_ended(self):
        limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HVD_DEADLOCK_TIMEOUT": "3"}
        ends = self.ranks(2, "uneven", **limits)
        sentence = (
            '2 ranks wait only for each other: rank 0 waits for rank 1 in tensor "allreduce.gradient" '
            '(ALLREDUCE), rank 1 waits for rank 0 in tensor "barrier" (BARRIER); usual causes are different '
            "numbers of steps or a branch that only some ranks take: give all ranks equal steps, or call "
            "hvd.join() after the last one"
        )
        self.assertRegex(
            ends[0].out,
            re.escape(sentence) + r"; this ends the world in [0-2] s \(HVD_DEADLOCK_TIMEOUT\); ",
        )
        for ended in ends:
            self.assertEqual(ended.code, 0, ended)
            self.assertIn(f"stalled (HVD_DEADLOCK_TIMEOUT): {sentence}", ended.out)

    @contextlib.contextmanager
    def waiting_in_init(self, code):
        """A process in the middle of init(): it has connected and waits for ranks that never start."""
        with socket.socket() as server, tempfile.NamedTemporaryFile("w") as token:
            token.write("5a" * 32)
            token.flush()
            server.bind(("127.0.0.1", 0))
            server.listen()
            server.settimeout(120)
            place = dict(RANK=1, SIZE=2, LOCAL_RANK=1, LOCAL_SIZE=2, CROSS_RANK=0, CROSS_SIZE=1)
            place = {f"HOROVOD_{k}": str(v) for k, v in place.items()}
            port = {"HVD_RENDEZVOUS_ADDR": "127.0.0.1", "HVD_RENDEZVOUS_PORT": str(server.getsockname()[1])}
            job = {"HVD_TOKEN_FILE": token.name, "HVD_JOB_ID": "life", "HVD_GENERATION": "0"}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            env = environment(HOROVOD_START_TIMEOUT="300", **place, **port, **job)
            # A background shell starts its jobs with SIGINT ignored, and Python leaves it so.
            here = signal.signal(signal.SIGINT, signal.default_int_handler)
            process = subprocess.Popen([DEBIAN_PYTHON, "-c", code], env=env, text=True, **pipes)
            signal.signal(signal.SIGINT, here)
            try:
                with server.accept()[0]:
                    yield process
            finally:
                process.kill()
                process.wait()
                process.stdin.close()
                process.stdout.close()

    def end_of(self, process):
        """Exit code and output; a wait for init()'s own timeout is a failure."""
        out, _ = process.communicate(timeout=120)
        return process.returncode, out

    def test_ctrl_c_ends_a_rank_that_waits_for_others_in_init(self):
        with self.waiting_in_init("import _hvd.basics as h; h.init()") as process:
            process.send_signal(signal.SIGINT)
            code, out = self.end_of(process)
        self.assertIn(code, (-signal.SIGINT, 130, 1))
        self.assertIn("KeyboardInterrupt", out)

    def test_a_handler_may_shut_down_while_init_waits(self):
        code = """
import signal, sys, _hvd.basics as h
def leave(*_):
    h.shutdown()
    print("LEFT", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
h.init()
"""
        with self.waiting_in_init(code) as process:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.end_of(process), (7, "LEFT\n"))

    def test_init_reports_that_a_handler_has_shut_down(self):
        code = """
import signal, _hvd.basics as h
from _hvd.exceptions import HorovodInternalError
signal.signal(signal.SIGTERM, lambda *_: h.shutdown())
try:
    h.init()
except HorovodInternalError as e:
    print(e, h.is_initialized())
"""
        with self.waiting_in_init(code) as process:
            process.send_signal(signal.SIGTERM)
            said = "hvd.shutdown() was called while hvd.init() waited for the other ranks False\n"
            self.assertEqual(self.end_of(process), (0, said))

    def test_exit_does_not_wait_for_a_thread_in_init(self):
        code = """
import os, sys, threading, _hvd.basics as h
place = {k: os.environ.pop(k) for k in list(os.environ) if k.startswith(("HOROVOD_", "HVD_"))}
h.init()
assert h.size() == 1
h.shutdown()
os.environ.update(place)
threading.Thread(target=h.init, daemon=True).start()
sys.stdin.readline()
print("LEAVING", flush=True)
"""
        with self.waiting_in_init(code) as process:
            process.stdin.write("go\n")
            code, out = self.end_of(process)
        self.assertEqual(code, 0, out)
        self.assertIn("LEAVING", out)

    def test_init_after_an_interrupted_init_meets_the_other_rank(self):
        with tempfile.TemporaryDirectory() as directory:
            ends = bare_ranks(2, "resume.py", RESUME_FILE=f"{directory}/interrupted")
        for ended in ends:
            self.assertEqual(ended.code, 0, ended)
            self.assertIn("MET", ended.out)

    def test_single_process_exits(self):
        code = (
            "import sys, time, horovod.torch as hvd; hvd.init(); assert hvd.size() == 1;"
            "print('LEAVING at=%.3f' % time.time(), flush=True); sys.exit(3)"
        )
        ended = python(code)
        now = time.time()
        self.assertEqual(ended.code, 3, ended)
        self.assertLess(now - at("LEAVING", ended)[0], 20, "an exit must not wait")
