# SPDX-License-Identifier: Apache-2.0
"""The replica guard, HVD_REPLICA_CHECK, on 1 to 4 ranks."""

from job import STAGE, JobTest, each_torch, only_torch, packages, venv


@each_torch
class Replica(JobTest):
    @only_torch("debian")
    def test_1(self):
        self.run_checks(1, "replica.py", HVD_REPLICA_CHECK="3")

    def test_2(self):
        self.run_checks(2, "replica.py", HVD_REPLICA_CHECK="3")

    def test_4(self):
        self.run_checks(4, "replica.py", HVD_REPLICA_CHECK="3")


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
