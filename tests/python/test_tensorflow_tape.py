# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: reductions, the tape, local aggregation, broadcasts of variables; training with the tape.

On other numbers of ranks: test_full.py.
"""

from job import ROOT, STAGE, JobTest, each_tf

SCRIPTS = (
    "tensorflow_reductions.py",
    "tensorflow_tape.py",
    "tensorflow_reduced.py",
    "tensorflow_aggregation.py",
    "tensorflow_functions.py",
)
# the digits, where scikit-learn is not installed; and one thread for a kernel, so that two ranks have one each
DIGITS = {
    "PYTHONPATH": f"{STAGE / 'python'}:{ROOT / 'tests/python/digits'}",
    "TF_NUM_INTRAOP_THREADS": "1",
}


@each_tf
class TensorFlowTape(JobTest):
    def test_2(self):
        more = ("tensorflow_convergence.py",) if self.tf == "tf" else ()  # 2.15: test_full.py
        self.run_checks(2, (*SCRIPTS, *more), timeout=300, **DIGITS)
