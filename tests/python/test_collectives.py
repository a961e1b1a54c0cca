# SPDX-License-Identifier: Apache-2.0
"""The collectives of the C API against numpy, without a framework, in worlds of 1 to 4 ranks."""

from job import JobTest

# In the same ranks, one after another.
SCRIPTS = ("capi_data.py", "capi_sets.py", "capi_members.py", "capi_random.py", "capi_sendrecv.py")


class OneHost(JobTest):
    def run_np(self, n):
        self.run_checks(n, SCRIPTS, timeout=600)

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

    def test_4(self):
        self.run_checks(4, SCRIPTS, hosts=2, timeout=600, label="two hosts")


class Settings(JobTest):
    """The same results whatever the knobs say that bear on how tensors travel."""

    def run_with(self, name, value):
        scripts = ("capi_members.py", "capi_random.py")
        self.run_checks(3, scripts, timeout=600, label=f"{name}={value}", **{name: value})

    def test_no_cache(self):
        self.run_with("HOROVOD_CACHE_CAPACITY", "0")

    def test_a_cache_that_is_too_small(self):
        self.run_with("HOROVOD_CACHE_CAPACITY", "3")

    def test_no_fusion(self):
        self.run_with("HOROVOD_FUSION_THRESHOLD", "0")

    def test_groups_apart(self):
        self.run_with("HOROVOD_DISABLE_GROUP_FUSION", "1")

    def test_deterministic(self):
        self.run_with("HOROVOD_DETERMINISTIC", "1")

    def test_tcp(self):
        self.run_with("HVD_TRANSPORT", "tcp")

    def test_tree(self):
        self.run_with("HVD_CONTROL_FANOUT", "2")
