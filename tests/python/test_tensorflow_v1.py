# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 1's way: optimizers of tf.compat.v1.train, sessions, hooks, Estimator.

Training on 1 and 4 ranks: test_full.py.
"""

from job import ROOT, STAGE, JobTest, each_tf, only_tf

PATHS = f"{STAGE / 'python'}:{ROOT / 'tests/python/digits'}"

EAGER = ("v1_eager.py", "v1_optimizer.py session", "v1_sessions.py session")
# the first one ends eager execution, the others TensorFlow 2's behaviour, so they come last
V1 = ("readme_tensorflow.py v1", "v1_sessions.py v1", "v1_convergence.py")
OPTIMIZER = "v1_optimizer.py v1"


@each_tf
class TensorFlowV1(JobTest):
    @only_tf(
        "tf"
    )  # TensorFlow 2's behaviour with sessions; OPTIMIZER and EAGER the other way round: test_full.py
    def test_2(self):
        self.run_checks(2, (*EAGER, *V1), timeout=300, PYTHONPATH=PATHS)

    @only_tf("tf215")
    def test_2_without_eager_execution(self):
        self.run_checks(2, (*V1, OPTIMIZER, "keras_sessions.py"), timeout=240, PYTHONPATH=PATHS)
