# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's operations."""

import signal
import subprocess
import threading
import time

from job import HOROVODRUN, RANKS, JobTest, each_tf, environment, horovodrun, only_tf

# tensorflow_graphs.py sets the number of TensorFlow's threads, so it is the first one.
SCRIPTS = ("tensorflow_graphs.py", "tensorflow_ops.py", "tensorflow_data.py", "tensorflow_gradients.py")


@each_tf
class TensorFlow(JobTest):
    def test_2(self):
        self.run_checks(2, SCRIPTS, timeout=240, WANT_MODE="asynchronous")

    @only_tf("tf")  # what differs is how operations end, and in which order; all of it: test_full.py
    def test_2_blocking(self):
        self.run_checks(
            2, SCRIPTS[0], timeout=240, label="blocking", WANT_MODE="blocking", HVD_TF_BLOCKING="1"
        )

    @only_tf("tf")  # 2.15: test_full.py
    def test_a_lost_world_is_told_2(self):
        ended = horovodrun(2, "tensorflow_lost.py", python=self.python)
        self.assertEqual(ended.code, 137, ended)  # that of the rank that was killed
        self.assertRegex(ended.out, r"monitored: .*UnknownError in session 1: .*rank 1 \(.* was lost")
        self.assertIn("RANK 0 WAS TOLD", ended.out)

    @only_tf("tf")  # what is waited for in TensorFlow's C++ code is ours
    def test_a_stall_is_named_and_ctrl_c_ends_it(self):
        job = subprocess.Popen(
            [str(word) for word in (HOROVODRUN, "-np", 2, self.python, RANKS / "tensorflow_stall.py")],
            env=environment(HOROVOD_STALL_CHECK_TIME_SECONDS="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # a background shell starts tests with SIGINT ignored, and so would the job be
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        deadline = threading.Timer(120, job.kill)
        deadline.start()
        out, stopped = "", None
        for line in job.stdout:
            out += line
            if 'tensor "allreduce.gradient_of_w" (ALLREDUCE) waits since' in line and stopped is None:
                self.assertIn("for rank 1 (host ", line)
                job.send_signal(signal.SIGINT)
                stopped = time.monotonic()
        job.stdout.close()
        self.assertEqual(job.wait(), 130, out)
        deadline.cancel()
        self.assertIsNotNone(stopped, out)
        self.assertLess(time.monotonic() - stopped, 29, "not by Ctrl-C, but killed when its 30 s were over")
        for words in ("rank 1 was ended by KeyboardInterrupt", "rank 0 was ended by", "stopped by SIGINT"):
            self.assertIn(words, out)
