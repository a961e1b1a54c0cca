# SPDX-License-Identifier: Apache-2.0
"""Tensors on GPUs without a GPU: the driver and NCCL are those of tests/fakes/cuda, everything else is ours."""

import json
import os
import shutil
import tempfile
import unittest

from job import BUILD, DEBIAN_PYTHON, JobTest, bare_ranks, best_of, each_torch, python

FAKES = BUILD.resolve() / "plain" / "fakes"
GPUS = {
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    "HVD_FAKE_GPUS": "4",
    "LD_LIBRARY_PATH": str(FAKES),
}


class GpuFake(JobTest):
    """Arrays on GPUs against numpy, through _native."""

    def run_np(self, n, *words, **extra):
        label = " ".join([f"gpu_data.py on {n}", *(f"{k}={v}" for k, v in extra.items())])
        self.run_checks(n, "gpu_data.py", *words, label=label, timeout=600, **GPUS, **extra)

    def test_2(self):
        self.run_np(2, "short")

    def test_3(self):
        self.run_np(3, "short")

    def test_a_copy_for_each_tensor(self):
        self.run_np(2, "short", HOROVOD_BATCH_D2D_MEMCOPIES="0", HVD_FAKE_NOPOOL="1", HVD_FAKE_NCCL="21003")


@each_torch
class GpuFakeTorch(JobTest):
    """horovod.torch, for which fake_cuda.py makes CUDA tensors."""

    def test_2(self):
        # PyPI's torch has brought an NCCL, which is none here.
        scripts = ("gpu_torch.py", "gpu_optimizer.py", "gpu_pg.py", "gpu_register.py")
        self.run_checks(
            2, scripts, label="gpu_torch.py", timeout=600, HVD_NCCL_LIB=str(FAKES / "libnccl.so.2"), **GPUS
        )


class GpuFakeRegister(JobTest):
    """Where NCCL cannot, and where there are more ranks than two."""

    def register(self, n, **extra):
        label = f"gpu_register.py on {n} {extra}"
        nccl = str(FAKES / "libnccl.so.2")
        self.run_checks(n, "gpu_register.py", label=label, timeout=600, HVD_NCCL_LIB=nccl, **GPUS, **extra)

    def test_3(self):
        self.register(3)

    def test_an_old_nccl(self):
        self.register(2, HVD_FAKE_NCCL="21805")


class GpuFakeNone(JobTest):
    def test_a_rank_without_a_gpu_is_named_on_all(self):
        self.run_checks(3, "gpu_none.py", timeout=600, HVD_NCCL_LIB=str(FAKES / "libnccl.so.2"), **GPUS)


class GpuFakeFaults(unittest.TestCase):
    """The errors of the other ranks when rank 1 fails."""

    def survivors(self, fault, n=3, **options):
        with tempfile.TemporaryDirectory() as directory:
            options.update(CHECKS_DIR=directory, CHECKS_HOSTS="1")
            ends = bare_ranks(n, "gpu_faults.py", fault, **GPUS, **options)
        said = []
        for rank, end in enumerate(ends):
            lines = [line for line in end.out.splitlines() if line.startswith('{"error"')]
            if rank != 1 or lines:
                self.assertEqual(len(lines), 1, f"rank {rank}: {end}")
                said.append(json.loads(lines[0]))
        return said

    def test_a_killed_rank_is_named_at_once(self):
        def attempt():
            said = self.survivors("kill")
            for one in said:
                self.assertIn("rank 1 (host", one["error"])
                self.assertIn("was lost", one["error"])
            return max(one["seconds"] for one in said)

        self.assertLess(best_of(2, attempt), 2)

    def test_a_stopped_rank_is_named_in_time(self):
        def attempt():
            said = self.survivors("stop", HVD_PEER_TIMEOUT="6")
            for one in said:
                self.assertIn("rank 1 (host", one["error"])
                self.assertIn("HVD_PEER_TIMEOUT", one["error"])
            return max(one["seconds"] for one in said)

        self.assertLess(best_of(25, attempt, tries=3), 25)  # after 6 s; the default is 30

    def test_an_asynchronous_error_reaches_all_and_a_new_world_works(self):
        for one in self.survivors("async"):
            self.assertIn("NCCL asynchronous error on rank 1", one["error"])
            self.assertTrue(one["goes_on"])

    def test_an_xid_is_the_cause(self):
        """NVML has a quarter of a second to answer, which is too little for a busy machine."""
        said = []

        def attempt():
            said[:] = [one["error"] for one in self.survivors("xid")]
            return sum("XID 79" not in error for error in said)

        self.assertEqual(best_of(1, attempt), 0, said)
        for error in said:
            self.assertIn("rank 1", error)

    def test_an_illegal_access_is_reported_on_its_rank(self):
        said = self.survivors("illegal")
        self.assertTrue(all(one["error"] for one in said), said)
        self.assertIn("an illegal memory access", " ".join(one["error"] for one in said))


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

    def test_where_it_is_too_old(self):
        self.assertIn("10.2", self.said(REPORT, **{**GPUS, "HVD_FAKE_CUDA": "10020"})[0])

    def test_where_nothing_is_visible(self):
        self.assertIn("CUDA_VISIBLE_DEVICES", self.said(REPORT, **{**GPUS, "CUDA_VISIBLE_DEVICES": ""})[0])

    def test_where_it_is_turned_off(self):
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
