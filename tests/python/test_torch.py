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

    def over_hosts(self, n, hosts):
        label = f"collectives.py on {hosts} hosts"
        self.run_checks(n, "collectives.py", python=PYTHON, label=label, hosts=hosts)

    def test_collectives_2_on_2_hosts(self):
        self.over_hosts(2, 2)

    def test_collectives_3_on_3_hosts(self):
        self.over_hosts(3, 3)

    def test_collectives_4_on_2_hosts(self):
        self.over_hosts(4, 2)

    def test_collectives_4_on_4_hosts(self):
        self.over_hosts(4, 4)

    def test_optimizer_1(self):
        self.run_checks(1, "optimizer.py", "public", python=PYTHON)

    def test_optimizer_2(self):
        self.run_checks(2, "optimizer.py", "public", python=PYTHON)

    def test_optimizer_4(self):
        self.run_checks(4, "optimizer.py", "public", python=PYTHON)

    def test_optimizer_2_legacy_hooks(self):
        self.run_checks(2, "optimizer.py", "legacy", python=PYTHON, label="optimizer.py, legacy hooks")
