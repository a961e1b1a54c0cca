# SPDX-License-Identifier: Apache-2.0
"""Tensors on GPUs without a GPU: the driver and NCCL are those of tests/fakes/cuda, everything else is ours."""

import os
import shutil
import tempfile
import unittest

from job import BUILD, DEBIAN_PYTHON, JobTest, each_torch, python

FAKES = BUILD.resolve() / "plain" / "fakes"
GPUS = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "HVD_FAKE_GPUS": "4", "LD_LIBRARY_PATH": str(FAKES)}
SCRIPTS = ("gpu_torch.py", "gpu_optimizer.py", "gpu_register.py")


class FakeJob(JobTest):
    def run_on_gpus(self, n, scripts, label, **extra):
        # PyPI's torch has brought an NCCL, which is none here.
        nccl = str(FAKES / "libnccl.so.2")
        self.run_checks(n, scripts, label=f"gpu_torch.py {label}", HVD_NCCL_LIB=nccl, **GPUS, **extra)


@each_torch
class GpuFakeTorch(FakeJob):
    """horovod.torch, for which fake_cuda.py makes CUDA tensors."""

    def test_2(self):
        self.run_on_gpus(2, (*SCRIPTS, "gpu_pg.py", "gpu_pg_aside.py"), "on 2")


class GpuFakeOthers(FakeJob):
    def test_3(self):
        self.run_on_gpus(3, SCRIPTS, "on 3")

    def test_an_old_nccl_and_a_copy_for_each_tensor(self):
        old = {"HVD_FAKE_NCCL": "21003", "HOROVOD_BATCH_D2D_MEMCOPIES": "0"}
        self.run_on_gpus(2, SCRIPTS, "of NCCL 2.10", **old)

    def test_a_rank_without_a_gpu_is_named_on_all(self):
        self.run_on_gpus(3, ("gpu_none.py",), "without a GPU")


REPORT = "from _hvd import gpu; print(gpu.problem()); print(gpu.nccl_version())"
BUILT = "import _hvd.basics as hvd; print(hvd.cuda_built(), hvd.nccl_built())"


def has_driver():
    """NVIDIA's: its node may be there without one."""
    try:
        os.close(os.open("/dev/nvidiactl", os.O_RDONLY))
    except OSError:
        return False
    return True


class GpuReport(unittest.TestCase):
    """The reason why tensors on GPUs cannot travel is one line."""

    def said(self, code, **extra):
        end = python(code, python=DEBIAN_PYTHON, **extra)
        self.assertEqual(end.code, 0, end)
        return end.out.splitlines()

    def test_where_they_can(self):
        self.assertEqual(self.said(REPORT, **GPUS), ["", "22705"])
        self.assertEqual(self.said(BUILT, **GPUS), ["True 22705"])
        self.assertEqual(self.said(BUILT, **{**GPUS, "HVD_FAKE_NCCL": "21003"}), ["True 21003"])

    def test_where_there_is_no_driver(self):
        if has_driver():
            self.skipTest("an NVIDIA driver is here")
        problem, version = self.said(REPORT)
        self.assertIn("no NVIDIA driver here", problem)
        self.assertEqual(version, "0")
        self.assertEqual(self.said(BUILT), ["False 0"])

    def test_where_it_is_turned_off(self):
        """Drivers that are too old, and where nothing is visible: gpu_cuda_dl_test, hvdgpu_refuse_test."""
        self.assertEqual(self.said(REPORT, HVD_GPU="off", **GPUS), ["HVD_GPU=off", "0"])

    def test_a_wheel_s_nccl_is_found(self):
        code = (
            "import sys; sys.path.append(sys.argv[1]); from _hvd import gpu; gpu.hint_at_wheel();"
            "print(gpu.report()['nccl_path'])"
        )
        with tempfile.TemporaryDirectory() as site:
            library = os.path.join(site, "nvidia", "nccl", "lib", "libnccl.so.2")
            os.makedirs(os.path.dirname(library))
            for folder in (os.path.join(site, "nvidia"), os.path.join(site, "nvidia", "nccl")):
                open(os.path.join(folder, "__init__.py"), "w").close()
            shutil.copy(FAKES / "libnccl.so.2", library)
            only = os.path.join(site, "driver")
            os.makedirs(only)
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                os.symlink(FAKES / name, os.path.join(only, name))
            end = python(code, site, **{**GPUS, "LD_LIBRARY_PATH": only})
            self.assertEqual(end.out.strip(), library, end)


if __name__ == "__main__":
    unittest.main()
