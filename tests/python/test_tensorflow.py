# SPDX-License-Identifier: Apache-2.0
"""The TensorFlow operation with PyPI's newest TensorFlow."""

from job import JobTest, venv

TF = "tf"


class TensorFlow(JobTest):
    def run_np(self, n, mode, **options):
        label = f"tensorflow {mode}"
        options.update(python=venv(TF), label=label, timeout=150, WANT_MODE=mode)
        self.run_checks(n, "tensorflow_ops.py", **options)

    def test_asynchronous_1(self):
        self.run_np(1, "asynchronous")

    def test_asynchronous_2(self):
        self.run_np(2, "asynchronous")

    def test_blocking_fallback_2(self):
        self.run_np(2, "blocking", HVD_TF_BLOCKING="1")
