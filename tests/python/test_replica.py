# SPDX-License-Identifier: Apache-2.0
"""The replica guard, HVD_REPLICA_CHECK, on 1 to 4 ranks."""

from job import JobTest, each_torch, only_torch


@each_torch
class Replica(JobTest):
    @only_torch("debian")
    def test_1(self):
        self.run_checks(1, "replica.py", HVD_REPLICA_CHECK="3")

    def test_2(self):
        self.run_checks(2, "replica.py", HVD_REPLICA_CHECK="3")

    def test_4(self):
        self.run_checks(4, "replica.py", HVD_REPLICA_CHECK="3")
