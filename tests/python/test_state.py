# SPDX-License-Identifier: Apache-2.0
"""hvd.Compression, SyncBatchNorm and elastic on 1 to 4 ranks, with Debian's PyTorch 1.13 and with PyPI's newest."""

from job import JobTest, each_torch, only_torch

# elastic.py ends with a rank that does not come back, so it is the last one.
SCRIPTS = ("compressing.py", "sync_batch_norm.py", "elastic_sampler.py", "elastic_files.py", "elastic.py")


@each_torch
class State(JobTest):
    @only_torch("debian")  # what one process does alone is torch's own
    def test_1(self):
        self.run_checks(1, SCRIPTS, HVD_NANCHECK="1")

    def test_2(self):
        self.run_checks(2, SCRIPTS, HVD_NANCHECK="1")

    @only_torch("debian")  # no more of torch than on 2
    def test_4(self):
        self.run_checks(4, SCRIPTS, HVD_NANCHECK="1")
