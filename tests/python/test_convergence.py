# SPDX-License-Identifier: Apache-2.0
"""The same training on 1 and 2 ranks (4: test_full.py); what is compared and how closely: ranks/convergence.py."""

from job import ROOT, STAGE, JobTest, each_torch, only_torch


@each_torch
class Convergence(JobTest):
    def train(self, n):
        paths = [STAGE / "python", *([ROOT / "tests/python/digits"] if self.torch != "debian" else [])]
        self.run_checks(n, "convergence.py", "torch", PYTHONPATH=":".join(map(str, paths)), timeout=600)

    @only_torch("debian")  # the sum of one rank is no sum
    def test_1(self):
        self.train(1)

    def test_2(self):
        self.train(2)
