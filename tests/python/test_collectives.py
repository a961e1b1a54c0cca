# SPDX-License-Identifier: Apache-2.0
"""The collectives of the C API against numpy, without a framework, in worlds of 1 to 4 ranks."""

from job import JobTest


class OneHost(JobTest):
    def run_np(self, n, **options):
        for script in ("capi_data.py", "capi_sets.py", "capi_members.py"):
            self.run_checks(n, script, timeout=240, **options)

    def test_1(self):
        self.run_np(1)

    def test_2(self):
        self.run_np(2)

    def test_3(self):
        self.run_np(3)

    def test_4(self):
        self.run_np(4)


class TwoHosts(JobTest):
    """Over TCP between two network namespaces, two ranks on each."""

    def test_data(self):
        self.run_checks(4, "capi_data.py", hosts=2, timeout=240, label="two hosts, capi_data.py")

    def test_sets(self):
        self.run_checks(4, "capi_sets.py", hosts=2, timeout=240, label="two hosts, capi_sets.py")

    def test_members(self):
        self.run_checks(4, "capi_members.py", hosts=2, timeout=240, label="two hosts, capi_members.py")
