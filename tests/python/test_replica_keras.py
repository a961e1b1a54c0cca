# SPDX-License-Identifier: Apache-2.0
"""The replica guard, HVD_REPLICA_CHECK, with Keras 2 and 3 on each back end."""

from job import STAGE, JobTest, packages, venv


class ReplicaKeras(JobTest):
    def run_on(self, label, n, python, want, besides=(), **options):
        path = ":".join([str(STAGE / "python"), *map(packages, besides)])
        options.update(WANT_KERAS=want, PYTHONPATH=path, HVD_REPLICA_CHECK="3", python=venv(python))
        self.run_checks(n, "replica_keras.py", label=f"keras {label}", **options)

    def test_3_tensorflow(self):
        self.run_on("3 tensorflow", 3, "tf", "3", KERAS_BACKEND="tensorflow")

    def test_3_torch(self):
        self.run_on("3 torch", 2, "keras", "3", ["torch"], KERAS_BACKEND="torch")

    def test_3_jax(self):
        self.run_on("3 jax", 2, "keras", "3", KERAS_BACKEND="jax")

    def test_2(self):
        self.run_on("2", 2, "tf215", "2")
