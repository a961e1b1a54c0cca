# SPDX-License-Identifier: Apache-2.0
"""The GPU kit (make gpu-carry): it runs alone, on an older system, to a summary, whatever hangs or stops it.

The row gpu of tests/suites runs all of its steps on the fakes; here are few steps and many ways to end.
"""

import json
import os
import re
import signal
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from job import BUILD, DEBIAN_PYTHON, ROOT, command, environment
from older_system import inside

KIT = BUILD / "gpu"
MOST_BYTES = 60 << 20
HANGS = {"RM_FAKE_FAULTS": "kernel_hang=1@20"}  # the 20th kernel
COMPILE = """if 1:
    import pathlib
    for path in pathlib.Path("/mnt").rglob("*.py"):
        compile(path.read_bytes(), path, "exec")
    print("COMPILED")
"""


def rows_of(out):
    return [json.loads(line) for line in (Path(out) / "fake.jsonl").read_text().splitlines()]


class Folder(unittest.TestCase):
    def test_it_is_small_and_names_nothing_outside(self):
        size = 0
        with tarfile.open(BUILD / "gpu.tar.gz") as tar:
            for member in tar:
                self.assertTrue(member.name.split("/")[0] == "gpu" and ".." not in member.name, member.name)
                if member.issym():
                    target = os.path.normpath(os.path.join(os.path.dirname(member.name), member.linkname))
                    self.assertTrue(target.startswith("gpu/"), f"{member.name} -> {member.linkname}")
                elif member.isfile():
                    size += member.size
                    self.assertNotIn(str(ROOT).encode(), tar.extractfile(member).read(), member.name)
        self.assertLessEqual(size, MOST_BYTES)

    def test_the_target_fails_above_its_limit(self):
        with tempfile.TemporaryDirectory() as kit:
            words = ["make", "-C", ROOT, "--no-print-directory", f"GPU_KIT={kit}/gpu", "GPU_KIT_KIB=100"]
            ended = command([*words, "gpu-carry"])
            self.assertIn("KiB, at most 100", ended.out)
            self.assertNotEqual(ended.code, 0)
            self.assertFalse((Path(kit) / "gpu.tar.gz").exists())

    def test_programs_need_no_glibc_newer_than_2_17(self):
        programs = [p for name in ("gpu", "bin", "lib", "fakes") for p in sorted((KIT / name).iterdir())]
        self.assertGreater(len(programs), 10)
        for path in programs:
            ended = command(["objdump", "-T", path])
            versions = [(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", ended.out)]
            self.assertLessEqual(max(versions, default=(2, 17)), (2, 17), path)

    def test_kernels_programs_are_position_independent(self):
        """Else small numbers look like addresses of their variables, which kernels_device.c would replace."""
        programs = sorted((KIT / "gpu").glob("gpu_*kernels"))
        self.assertGreater(len(programs), 3)
        for path in programs:
            self.assertEqual(int.from_bytes(path.read_bytes()[16:18], "little"), 3, f"{path}: not ET_DYN")


class OlderSystem(unittest.TestCase):
    def test_without_a_gpu_all_is_skipped(self):
        ended = inside(KIT, "/mnt/first-contact.sh", "--out", "/tmp/out")
        self.assertEqual(ended.code, 77, ended)
        self.assertRegex(ended.out, r"(?m)^inventory +1 +0 .* passed$")
        for step in ("driver", "kernels", "nccl", "sanitizer"):
            self.assertRegex(ended.out, rf"(?m)^{step} .*skipped: no NVIDIA driver answers")
        self.assertRegex(ended.out, r"(?m)^matrix .*skipped: .* has no numpy$")

    def test_programs_run_on_the_fakes(self):
        words = ["/mnt/first-contact.sh", "--out", "/tmp/out", "--mode", "fake", "driver", "nccl"]
        ended = inside(KIT, *words)
        self.assertEqual(ended.code, 0, ended)
        self.assertRegex(ended.out, r"(?m)^fake: driver +[1-9]\d+ +0 .* passed$")
        self.assertRegex(ended.out, r"(?m)^fake: nccl +5 +0 .* passed$")

    def test_programs_run_without_python(self):
        words = ["/mnt/first-contact.sh", "--out", "/tmp/out", "--mode", "fake", "driver", "nccl"]
        ended = inside(KIT, *words, PYTHON="none")
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("\n3 passed, 0 failed; skipped: what needs Python", ended.out)

    def test_scripts_are_python_3_9(self):
        ended = inside(KIT, "/usr/bin/python3", "-c", COMPILE)
        self.assertIn("COMPILED", ended.out, ended)


class Ends(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def words(self, *more):
        return [KIT / "first-contact.sh", "--mode", "fake", "--out", self.out, *more]

    def summary(self):
        return (self.out / "summary.txt").read_text()

    def test_a_step_that_hangs_is_killed_and_the_next_one_runs(self):
        ended = command(self.words("--limit", "12", "kernels", "driver"), PYTHON=DEBIAN_PYTHON, **HANGS)
        self.assertEqual(ended.code, 1, ended)
        points = [r["point"] for r in rows_of(self.out) if r.get("stage") == "kernels" and "point" in r]
        self.assertIn("hvd-gpu sees the GPU and NCCL", points)
        self.assertTrue([p for p in points if re.match(r"gpu_\w*kernels, sm: ", p)], points)
        self.assertRegex(self.summary(), r"(?m)^fake: kernels .*stopped at its limit of 12 s$")
        self.assertRegex(self.summary(), r"(?m)^fake: driver .*passed$")
        self.assertIn("failed first: fake: kernels: ", self.summary())

    def test_a_measurement_that_hangs_is_killed_and_the_next_one_runs(self):
        words = [
            DEBIAN_PYTHON,
            KIT / "tests/gpu/bench.py",
            "--mode",
            "fake",
            "--out",
            self.out,
            "--limit",
            "12",
        ]
        ended = command([*words, "kernels", "latency"], RM_FAKE_FAULTS="kernel_hang=1@1")
        self.assertEqual(ended.code, 1, ended)
        rows = [
            json.loads(r) for r in (self.out / "bench-kernels-latency-fake.jsonl").read_text().splitlines()
        ]
        self.assertIn("stopped at its limit of 12 s", [r["text"] for r in rows if r["part"] == "problem"])
        self.assertTrue([r for r in rows if r["part"] == "latency"], rows)

    def stopped(self, after, **extra):
        """It is stopped in the middle of step kernels, when it has printed this; returns its code and output."""
        env = environment(RM_FAKE_FAULTS="kernel_hang=1@1", **extra)
        words = [str(w) for w in self.words("driver", "kernels", "nccl")]
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as child:
            self.addCleanup(child.kill)
            said = [next(line for line in child.stdout if after in line)]
            child.send_signal(signal.SIGTERM)
            said += child.stdout.readlines()
            return child.wait(60), "".join(said)

    def test_a_run_that_is_stopped_has_a_summary(self):
        code, said = self.stopped("kernels: hvd-gpu sees the GPU", PYTHON=DEBIAN_PYTHON)
        self.assertEqual(code, 1, said)
        self.assertTrue(said.endswith(self.summary() + "\n"), said)
        self.assertIn("stopped by SIGTERM", self.summary().splitlines()[1])
        self.assertRegex(self.summary(), r"(?m)^fake: driver .*passed$")
        self.assertRegex(self.summary(), r"(?m)^fake: kernels .*stopped by SIGTERM$")
        self.assertRegex(self.summary(), r"(?m)^fake: nccl .*skipped: the run was stopped by SIGTERM$")

    def test_so_it_has_without_python(self):
        code, said = self.stopped("# kernels ", PYTHON="none")
        self.assertEqual(code, 1, said)
        self.assertIn("\ndriver: passed\nstopped by a signal\n1 passed", self.summary())
