# SPDX-License-Identifier: Apache-2.0
"""The collectives of the C API against numpy, without a framework, in worlds of 1 to 4 ranks."""

from job import JobTest

# In the same ranks, one after another.
SCRIPTS = ("capi_data.py", "capi_sets.py", "capi_members.py", "capi_random.py", "capi_sendrecv.py")


class OneHost(JobTest):
    def test_1_to_4(self):
        for n in range(1, 5):
            with self.subTest(n):
                self.run_checks(n, (*SCRIPTS, "capi_codecs.py"), timeout=600)


class Hosts(JobTest):
    """Over TCP between network namespaces."""

    def test_4_on_2(self):
        self.run_checks(4, SCRIPTS, hosts=2, timeout=600, label="two hosts")

    def test_3_on_3(self):
        self.run_checks(3, SCRIPTS[:1], hosts=3, timeout=600, label="three hosts")


class Settings(JobTest):
    """The results do not depend on the settings that change how tensors travel."""

    def test_3(self):
        for setting in (
            "HOROVOD_CACHE_CAPACITY=0",
            "HOROVOD_CACHE_CAPACITY=3",  # fewer than there are tensors
            "HOROVOD_FUSION_THRESHOLD=0",
            "HOROVOD_DISABLE_GROUP_FUSION=1",
            "HOROVOD_DETERMINISTIC=1",
            "HVD_TRANSPORT=tcp",
            "HVD_CONTROL_FANOUT=2",
        ):
            name, value = setting.split("=")
            with self.subTest(setting):
                scripts = ("capi_members.py", "capi_random.py")
                self.run_checks(3, scripts, timeout=600, label=setting, **{name: value})
