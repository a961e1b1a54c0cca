# SPDX-License-Identifier: Apache-2.0
"""TensorFlow, in two starts of two ranks under each: operations and TensorFlow 1's way; the tape, devices, states
and training. Beside them, what needs ranks of its own.

On other numbers of ranks: test_full.py.
"""

import signal
import threading
import time

from job import HOROVODRUN, RANKS, ROOT, STAGE, JobTest, each_tf, environment, only_tf, packages, start

# tensorflow_graphs.py sets the number of TensorFlow's threads, so it is the first one.
SCRIPTS = ("tensorflow_graphs.py", "tensorflow_data.py", "gradients.py tensorflow")
# TensorFlow 1's way: optimizers of tf.compat.v1.train, sessions, hooks
EAGER = ("v1_eager.py", "v1_optimizer.py session", "v1_sessions.py session")
# the first one disables eager execution, the other two TensorFlow 2's behaviour, so they come last
V1 = ("readme_tensorflow.py v1", "v1_sessions.py v1", "convergence.py v1")
OPTIMIZER = "v1_optimizer.py v1"
# What one TensorFlow shows is left out under the other: test_full.py has it there. TensorFlow 2's behaviour with
# sessions under one, without it under the other, where V1's training is, too (under the newest there are the README's
# program and the example); the values of every type under the newest (the kernels are the same files).
FEWER = {
    "tf": (*SCRIPTS, *EAGER, V1[0]),
    "tf215": (SCRIPTS[0], *SCRIPTS[2:], *V1, OPTIMIZER, "keras_sessions.py"),
}
# reductions, the tape, local aggregation, broadcasts of variables
TAPE = (
    "tensorflow_reductions.py",
    "tensorflow_tape.py",
    "tensorflow_aggregation.py",
    "tensorflow_functions.py",
)
# tensorflow_devices.py makes two CPUs, which it must before TensorFlow starts.
FIRST = ("tensorflow_devices.py", "readme_tensorflow.py", "tensorflow_sync_batch_norm.py")
# the digits, where scikit-learn is not installed
PATHS = f"{STAGE / 'python'}:{ROOT / 'tests/python/digits'}"
LAUNCHERS = {"horovodrun": HOROVODRUN, "perseusrun": STAGE / "bin/perseusrun", "mpirun": "mpirun"}
# one thread for a kernel, so that two ranks have one each
DIGITS = {"PYTHONPATH": PATHS, "TF_NUM_INTRAOP_THREADS": "1"}


@each_tf
class TensorFlow(JobTest):
    def test_2(self):
        options = {"WANT_MODE": "asynchronous", "WANT_KERAS": "2 legacy", "PYTHONPATH": PATHS}
        self.run_checks(2, FEWER[self.tf], timeout=900, **options)

    @only_tf("tf")
    def test_2_training_and_states(self):
        scripts = (
            *FIRST,
            "tensorflow_config.py",
            "tensorflow_data_service.py",
            *TAPE,
            "convergence.py tape",
            "tensorflow_and_torch.py first",  # the other order: test_full.py
            "tensorflow_elastic.py",  # ends the world, and so does the next one, by the death of rank 1
            "tensorflow_lost.py",
        )
        more = {**DIGITS, "TORCH_PACKAGES": packages("torch")}
        ended = self.run_checks(2, scripts, timeout=900, end=137, outlived=True, **more)
        self.assert_lost_world_reported(ended)

    @only_tf("tf215")  # which has the README's program of the data service; the rest: test_full.py
    def test_2_states(self):
        self.run_checks(2, (*FIRST, *TAPE[1:], "tensorflow_elastic.py"), timeout=900, **DIGITS)

    def test_each_way_to_train_under_each_launcher(self):
        for name, launcher in LAUNCHERS.items():
            self.run_checks(2, "flows.py", name, label=f"flows.py under {name}", launcher=launcher)

    def assert_lost_world_reported(self, ended):
        self.assertRegex(ended.out, r"monitored: .*UnknownError in session 1: .*rank 1 \(.* was lost")
        self.assertIn("RANK 0 WAS TOLD", ended.out)

    @only_tf("tf")  # what differs is how operations end, and in which order; all of it: test_full.py
    def test_2_blocking(self):
        self.run_checks(
            2, SCRIPTS[0], timeout=600, label="blocking", WANT_MODE="blocking", HVD_TF_BLOCKING="1"
        )

    @only_tf("tf")  # what is waited for in TensorFlow's C++ code is ours
    def test_a_stall_is_named_and_ctrl_c_ends_it(self):
        job = start(
            (HOROVODRUN, "-np", 2, self.python, RANKS / "tensorflow_stall.py"),
            environment(HOROVOD_STALL_CHECK_TIME_SECONDS="1"),
            # a background shell starts tests with SIGINT ignored, and so would the job be
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        deadline = threading.Timer(300, job.kill)
        deadline.start()
        out, stopped = "", None
        for line in job.stdout:
            out += line
            if 'tensor "allreduce.gradient_of_w" (ALLREDUCE) has waited' in line and stopped is None:
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
