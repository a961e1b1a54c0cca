# SPDX-License-Identifier: Apache-2.0
"""horovod.torch on 1 to 4 ranks, with Debian's PyTorch 1.13 and with PyPI's newest."""

import re
import unittest

from job import JobTest, each_torch, only_torch, python

OPTIMIZER = ("optimizer.py", "optimizer_options.py", "optimizer_steps.py", "optimizer_wrapping.py")
SCRIPTS = ("collectives.py", *OPTIMIZER)
OPERATIONS = ("ops_data.py", "gradients.py torch", "ops_gradients.py", "ops_sets.py")


@each_torch
class Torch(JobTest):
    def test_1(self):
        self.run_checks(1, SCRIPTS)

    def test_2(self):
        self.run_checks(2, (*SCRIPTS, *OPERATIONS), timeout=600)

    @only_torch("not newest")  # no more of torch than on 2
    def test_4(self):
        self.run_checks(4, (*SCRIPTS[:3], *OPERATIONS))

    def test_1_and_2_of_the_extension(self):
        for n in (1, 2):
            self.run_checks(n, "native.py", label=f"native.py on {n}")

    def test_2_progress(self):
        self.run_checks(2, "progress.py")

    @only_torch("debian")  # init() knows no torch
    def test_4_in_parts(self):
        self.run_checks(4, "comm.py")

    @only_torch("newest")  # Debian's has no other hooks
    def test_2_legacy_hooks(self):
        self.run_checks(2, tuple(f"{script} legacy" for script in OPTIMIZER[:3]), label="legacy hooks")

    @only_torch("debian")  # the layers above the C library do not depend on hosts
    def test_4_on_2_hosts(self):
        self.run_checks(4, "collectives.py", label="collectives.py on 2 hosts", hosts=2)

    @only_torch("newest")  # Debian's does not know huge pages
    def test_a_gradient_is_no_page_faults(self):
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as f:
            if re.search(r"\[never\]", f.read()):
                raise unittest.SkipTest("this kernel has no huge pages")
        asks = "import sys, torch; library = open(torch.__path__[0] + '/lib/libc10.so', 'rb').read();"
        if python(f"{asks} sys.exit(b'THP_MEM_ALLOC_ENABLE' not in library)", python=self.python).code:
            raise unittest.SkipTest("this torch does not know huge pages")
        code = """
import torch, resource
import horovod.torch
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(1 << 24)
least = None
for _ in range(5):  # a busy kernel may have no huge page at once
    before = faults()
    torch.ones(1 << 24)
    count = faults() - before
    least = count if least is None else min(least, count)
print("faults", least)
"""
        asked = python(code, python=self.python)
        left = python(code, python=self.python, THP_MEM_ALLOC_ENABLE="0")
        count = [int(re.search(r"faults (\d+)", str(ended))[1]) for ended in (asked, left)]
        self.assertLess(count[0], 1 << 13, asked)  # 16,384 pages of 4 KiB, 32 of 2 MiB
        self.assertGreaterEqual(count[1], 1 << 14, left)
