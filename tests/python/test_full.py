# SPDX-License-Identifier: Apache-2.0
"""The second framework versions, for `make test-full`: PyPI's newest PyTorch, TensorFlow 2.15."""

import subprocess
from pathlib import Path

from job import DEBIAN_PYTHON, ROOT, JobTest, venv


def newest_torch():
    """The interpreter of the environment with PyPI's newest torch, CUDA's libraries stubbed."""
    python = venv("torch")
    site = next(Path(python).parent.parent.glob("lib/python3*/site-packages"))
    marker = site / ".cuda_stubs"
    if not marker.exists():
        stubs = ROOT / "tests/python/cuda_stubs.py"
        subprocess.run([DEBIAN_PYTHON, stubs, site], check=True, timeout=300, stdout=subprocess.DEVNULL)
        marker.touch()
    return python


class NewestTorch(JobTest):
    def run_np(self, n, script, *args, label):
        self.run_checks(
            n, script, *args, python=newest_torch(), timeout=240, label=f"newest torch, {label}"
        )

    def test_collectives_2(self):
        self.run_np(2, "collectives.py", label="collectives.py")

    def test_collectives_4(self):
        self.run_np(4, "collectives.py", label="collectives.py")

    def test_optimizer_2(self):
        self.run_np(2, "optimizer.py", "public", label="optimizer.py, public hooks")

    def test_optimizer_2_legacy_hooks(self):
        self.run_np(2, "optimizer.py", "legacy", label="optimizer.py, legacy hooks")


class OlderTensorFlow(JobTest):
    def run_np(self, n, mode, **options):
        options.update(python=venv("tf215"), label=f"tensorflow 2.15 {mode}", timeout=240, WANT_MODE=mode)
        self.run_checks(n, "tensorflow_ops.py", **options)

    def test_asynchronous_2(self):
        self.run_np(2, "asynchronous")

    def test_blocking_fallback_2(self):
        self.run_np(2, "blocking", HVD_TF_BLOCKING="1")
