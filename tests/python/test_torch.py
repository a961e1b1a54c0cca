# SPDX-License-Identifier: Apache-2.0
"""horovod.torch on 1 to 4 ranks with Debian's PyTorch 1.13."""

from job import DEBIAN_PYTHON, JobTest

PYTHON = DEBIAN_PYTHON


class Torch(JobTest):
    def test_collectives_1(self):
        self.run_checks(1, "collectives.py", python=PYTHON)

    def test_collectives_2(self):
        self.run_checks(2, "collectives.py", python=PYTHON)

    def test_collectives_3(self):
        self.run_checks(3, "collectives.py", python=PYTHON)

    def test_collectives_4(self):
        self.run_checks(4, "collectives.py", python=PYTHON)

    def test_collectives_over_tcp_2(self):
        self.run_checks(
            2, "collectives.py", python=PYTHON, label="collectives.py, TCP", HVD_TRANSPORT="tcp"
        )

    def test_collectives_over_tcp_3(self):
        self.run_checks(
            3, "collectives.py", python=PYTHON, label="collectives.py, TCP", HVD_TRANSPORT="tcp"
        )

    def test_optimizer_1(self):
        self.run_checks(1, "optimizer.py", "public", python=PYTHON)

    def test_optimizer_2(self):
        self.run_checks(2, "optimizer.py", "public", python=PYTHON)

    def test_optimizer_4(self):
        self.run_checks(4, "optimizer.py", "public", python=PYTHON)

    def test_optimizer_2_legacy_hooks(self):
        self.run_checks(2, "optimizer.py", "legacy", python=PYTHON, label="optimizer.py, legacy hooks")
