# SPDX-License-Identifier: Apache-2.0
"""For `make test-full`: TensorFlow 2.12, where operations block for want of asynchronous kernels, 2.13 and 2.14."""

from job import JobTest, venv
from test_tensorflow import DIGITS, EAGER, OPTIMIZER, PATHS, SCRIPTS, TAPE, V1
from test_tensorflow_gpu import SCRIPT_ON_GPU, gpus


class TensorFlow212(JobTest):
    tf, torch, mode = "tf212", None, "blocking"
    python = property(lambda self: venv(self.tf))

    def test_operations_2(self):
        self.run_checks(2, SCRIPTS, timeout=300, WANT_MODE=self.mode)

    def test_gpu_2(self):
        self.run_checks(2, SCRIPT_ON_GPU, timeout=300, **gpus("12050"))

    def test_tape_2(self):
        self.run_checks(2, (*TAPE, "convergence.py tape"), timeout=300, **DIGITS)

    def test_v1_2(self):
        self.run_checks(2, (*EAGER, *V1, OPTIMIZER), timeout=400, PYTHONPATH=PATHS)


class TensorFlow213(TensorFlow212):
    tf, mode = "tf213", "asynchronous"


class TensorFlow214(TensorFlow212):
    tf, mode = "tf214", "asynchronous"
