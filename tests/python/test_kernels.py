# SPDX-License-Identifier: Apache-2.0
"""compile.py: which compiler builds which part of the CUDA kernels' image. The compiler here is a fake;
tests/unit/gpu_image_test.c checks the real image."""

import os
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from job import ROOT

COMPILE = ROOT / "runtime/backend/nccl/kernels/compile.py"
ALL = (70, 75, 80, 86, 89, 90, 100, 120)

# Logs its arguments, and writes a cubin or PTX that names the architecture.
NVCC = """#!/bin/sh
echo "$*" >>"$NVCC_LOG"
case " $* " in
    *" --version "*) echo "Cuda compilation tools, release $NVCC_RELEASE, V$NVCC_RELEASE.1"; exit;;
    *" --list-gpu-code "*) for a in $NVCC_ARCHS; do echo "sm_$a"; done; exit;;
esac
[ -z "$NVCC_FAILS" ] || { echo "kernels.cu(7): error: a planted one" >&2; exit 1; }
for a; do
    [ "$last" != -o ] || out=$a
    last=$a
    case $a in -arch=*) arch=${a#-arch=};; -ptx) ptx=y;; esac
done
if [ -n "$ptx" ]; then
    printf '// by a stand-in\\n.version 8.8\\n.target %s\\n%s\\n' "$arch" "$NVCC_PTX" >"$out"
else
    printf '\\177ELF%s' "$arch" >"$out"
fi
"""


class Kernels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.log = self.dir / "log"
        (self.dir / "bin").mkdir()
        nvcc = self.dir / "bin/nvcc"
        nvcc.write_text(NVCC)
        nvcc.chmod(0o755)

    def build(self, release="12.4", archs=ALL, nvrtc="false", **env):
        """(exit code, {(arch, kind): data}, stderr)"""
        out = self.dir / "out.bin"
        out.unlink(missing_ok=True)
        self.log.write_text("")
        env = {
            "PATH": os.environ["PATH"],
            "CUDA_HOME": str(self.dir),
            "NVCC_LOG": str(self.log),
            "NVCC_RELEASE": release,
            "NVCC_ARCHS": " ".join(map(str, archs)),
            **env,
        }
        command = [COMPILE, out, "--cache", self.dir / "cache", "--nvrtc", nvrtc]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        parts = {}
        if out.exists():
            image = out.read_bytes()
            magic, version, n, _ = struct.unpack_from("<4sIII", image)
            self.assertEqual((magic, version), (b"HVDK", 1))
            for i in range(n):
                arch, kind, at, size = struct.unpack_from("<IIQQ", image, 16 + 24 * i)
                self.assertEqual(at % 16, 0)
                parts[arch, kind] = image[at : at + size]
        return done.returncode, parts, done.stderr

    def compiled(self):
        return [line for line in self.log.read_text().splitlines() if "-arch=" in line]

    def test_toolkit_that_knows_all_gpus_is_used_alone(self):
        asked = self.dir / "asked"
        code, parts, _ = self.build(nvrtc=f"touch {asked}")
        self.assertEqual(code, 0)
        self.assertEqual(sorted(parts), sorted([(a, 0) for a in ALL] + [(70, 1)]))
        for arch in ALL:
            self.assertEqual(parts[arch, 0], b"\177ELFsm_%d" % arch)
        self.assertFalse(asked.exists())
        self.assertTrue(all("--fmad=false" in line for line in self.compiled()), self.compiled())

    def test_ptx_is_declared_as_of_the_least_driver(self):
        _, parts, _ = self.build()
        lines = parts[70, 1].decode().split("\n")
        self.assertEqual(lines[:3], ["// by a stand-in", ".version 7.0", ".target compute_70"])
        self.assertTrue(lines[-1].endswith("\0"))

    def test_ptx_with_words_that_are_not_known_to_be_so_old_is_refused(self):
        code, parts, err = self.build(NVCC_PTX="{ mov.u32 %r1, 0;\n@%p1 fence.proxy.async; }")
        self.assertNotEqual(code, 0)
        self.assertEqual(parts, {})
        self.assertIn("is this in PTX 7.0? If so, add it to PTX_LINES: fence", err)

    def test_same_text_and_compiler_compile_once(self):
        self.build()
        self.assertEqual(len(self.compiled()), len(ALL) + 1)
        code, parts, _ = self.build()
        self.assertEqual((code, len(parts), self.compiled()), (0, len(ALL) + 1, []))
        self.build(release="12.5")
        self.assertEqual(len(self.compiled()), len(ALL) + 1)

    def test_error_of_the_compiler_fails_and_leaves_nothing(self):
        code, parts, err = self.build(NVCC_FAILS="y")
        self.assertNotEqual(code, 0)
        self.assertEqual(parts, {})
        self.assertIn("a planted one", err)
        code, parts, _ = self.build()
        self.assertEqual((code, len(parts)), (0, len(ALL) + 1))

    def test_toolkit_without_some_gpus_requests_nvrtc_and_works_without(self):
        asked = self.dir / "asked"
        asker = self.dir / "asker"
        asker.write_text(f"#!/bin/sh\ntouch {asked}; exit 1\n")
        asker.chmod(0o755)
        for release, archs in (("11.8", ALL[:6]), ("13.0", ALL[1:]), ("13.0", ALL)):
            asked.unlink(missing_ok=True)
            code, parts, err = self.build(release, archs, nvrtc=str(asker))
            self.assertEqual(code, 0, err)
            self.assertTrue(asked.exists())
            self.assertEqual({a for a, kind in parts if kind == 0}, set(archs))
            self.assertIn((archs[0], 1), parts)
            self.assertIn("NVRTC could not be had: all kernels are by nvcc", err)

    def test_no_compiler_is_a_sentence(self):
        code, parts, err = self.build(CUDA_HOME=str(self.dir / "none"))
        self.assertNotEqual(code, 0)
        self.assertEqual(parts, {})
        self.assertIn("KERNELS=none builds without them", err)
        code, _, err = self.build(CUDA_HOME=str(self.dir / "none"), KERNELS="nvcc")
        self.assertIn("there is no nvcc in CUDA_HOME or PATH", err)

    def test_none_is_an_image_without_kernels(self):
        code, parts, _ = self.build(KERNELS="none")
        self.assertEqual((code, parts), (0, {}))
        self.assertTrue((self.dir / "out.bin").exists())
        code, _, err = self.build(KERNELS="some")
        self.assertNotEqual(code, 0)
        self.assertIn("KERNELS=some", err)


if __name__ == "__main__":
    unittest.main()
