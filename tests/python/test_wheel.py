# SPDX-License-Identifier: Apache-2.0
"""The wheel: its record, its promises to the dynamic linker, installation, and an older system.

The older system is Debian 11 (older_system.py). That the objects load with the glibc of 2018 (2.27, 2.28) and of manylinux2014 (2.17) is shown by
their symbol versions: none above GLIBC_2.17.
"""

import base64
import hashlib
import re
import shutil
import subprocess
import tempfile
import unittest
import zipfile
from pathlib import Path

from job import BUILD, DEBIAN_PYTHON, ROOT, STAGE, command
from older_system import inside

ALLOWED = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so\.\d+|libhvd\.so")
USE = """if 1:
    import _hvd, horovod, perseus, horovod.common.exceptions
    import _hvd.basics as hvd, _hvd.objects as o
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (0, 1)
    assert o.broadcast_object([1, 2]) == [1, 2] and o.allgather_object("x") == ["x"]
    hvd.shutdown()
    print("WORKS", horovod.__version__)
"""

# A lambda is what plain pickle cannot send.
RUN = "import _hvd.basics as b, horovod; print(horovod.run(lambda: (b.init(), b.rank())[1], num_proc=2))"


def the_wheel():
    found = sorted(BUILD.glob("ringmaster_horovod-*.whl"))
    assert len(found) == 1, f"want one wheel in {BUILD}, found {found}"
    return found[0]


def output_of(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


def pack_cloudpickle(folder):
    """A wheel of Debian's cloudpickle, in place of a registry's."""
    name = command([DEBIAN_PYTHON, "-c", "import cloudpickle as c; print(c.__path__[0], c.__version__)"])
    source, version = name.out.split()
    info = f"cloudpickle-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: cloudpickle\nVersion: {version}\n"
    with zipfile.ZipFile(Path(folder) / f"cloudpickle-{version}-py3-none-any.whl", "w") as z:
        for file in sorted(Path(source).glob("*.py")):
            z.write(file, f"cloudpickle/{file.name}")
        z.writestr(f"{info}/METADATA", about)
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")


class Wheel(unittest.TestCase):
    def test_record_lists_every_file_with_its_hash(self):
        with zipfile.ZipFile(the_wheel()) as z:
            record = next(n for n in z.namelist() if n.endswith("/RECORD"))
            lines = z.read(record).decode().splitlines()
            listed = dict(line.split(",", 1) for line in lines)
            self.assertEqual(sorted(listed), sorted(z.namelist()))
            self.assertEqual(listed.pop(record), ",")
            for name, rest in listed.items():
                content = z.read(name)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                self.assertEqual(rest, f"sha256={digest},{len(content)}", name)

    def test_types_come_along(self):
        """py.typed and the stubs: all that the tree has, at their places."""
        with zipfile.ZipFile(the_wheel()) as z:
            packed = {n for n in z.namelist() if n.endswith((".pyi", "py.typed"))}
        tree = ROOT / "runtime/python"
        ours = {str(p.relative_to(tree)) for pattern in ("*.pyi", "py.typed") for p in tree.rglob(pattern)}
        of_framework = re.compile(r"horovod/(torch|tensorflow|keras)/(.*pyi)")
        perseus = {of_framework.sub(r"perseus/\1/horovod/\2", n) for n in ours if of_framework.match(n)}
        self.assertEqual(packed, ours | perseus)
        self.assertLessEqual({"horovod/py.typed", "perseus/py.typed", "horovod/torch/mpi_ops.pyi"}, packed)

    def test_same_input_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as directory:
            again = Path(directory) / "again.whl"
            version = the_wheel().name.split("-")[1]
            tool = ROOT / "runtime/python/mkwheel.py"
            ended = command([DEBIAN_PYTHON, tool, STAGE / "python", STAGE / "bin", version, again])
            self.assertEqual(ended.code, 0, ended)
            self.assertEqual(again.read_bytes(), the_wheel().read_bytes())

    def test_installs_without_network_and_compiler_and_works(self):
        with tempfile.TemporaryDirectory() as directory:
            env = Path(directory) / "env"
            self.assertEqual(command([DEBIAN_PYTHON, "-m", "venv", env]).code, 0)
            pip = [env / "bin/python", "-m", "pip", "install", "--no-index", "--disable-pip-version-check"]
            ended = command([*pip, "--no-deps", the_wheel()], PYTHONPATH="")
            self.assertEqual(ended.code, 0, ended)
            ended = command([env / "bin/python", "-c", USE], PYTHONPATH="", cwd=directory)
            self.assertIn("WORKS 0.28.1+ringmaster", ended.out)
            pack_cloudpickle(directory)
            ended = command([*pip, "--find-links", directory, the_wheel()], PYTHONPATH="")
            self.assertRegex(ended.out, "Successfully installed cloudpickle-", ended)
            ended = command([env / "bin/python", "-c", RUN], PYTHONPATH="", cwd=directory)
            self.assertIn("[0, 1]", ended.out)
            for launcher in ("horovodrun", "perseusrun"):
                ended = command([env / "bin" / launcher, "--version"])
                self.assertEqual(ended.code, 0, ended)
            ended = command([env / "bin/hvd-gpu", "info"])
            self.assertEqual(ended.code, 0, ended)
            self.assertRegex(ended.out, r"(?m)^kernels sm_70 .*ptx_70$")
            job = [env / "bin/horovodrun", "-np", 2, env / "bin/python", "-c"]
            code = (
                "import _hvd.basics as h, _hvd.objects as o; h.init(); print(o.allgather_object(h.rank()))"
            )
            ended = command([*job, code], PYTHONPATH="", cwd=directory)
            self.assertEqual(ended.code, 0, ended)
            self.assertEqual(ended.out.count("[0, 1]"), 2, ended)


class Objects(unittest.TestCase):
    def objects(self):
        found = sorted((STAGE / "python/_hvd").glob("*.so"))
        names = ["_native.abi3.so", "libhvd.so", "libhvd_cuda.so", "libhvd_tf.so"]
        self.assertEqual([p.name for p in found], names)
        return found

    def test_no_symbol_needs_a_glibc_newer_than_2_17(self):
        for path in self.objects():
            versions = set(re.findall(r"GLIBC_(\d+)\.(\d+)", output_of("objdump", "-T", path)))
            self.assertTrue(versions, path)
            newest = max((int(a), int(b)) for a, b in versions)
            self.assertLessEqual(newest, (2, 17), f"{path} needs GLIBC {newest}")

    def test_only_libc_and_ourselves_are_needed(self):
        for path in self.objects():
            needed = re.findall(r"NEEDED +(\S+)", output_of("objdump", "-p", path))
            for name in needed:
                if path.name == "libhvd_tf.so" and name == "libtensorflow_framework.so.2":
                    continue
                self.assertRegex(name, f"^({ALLOWED.pattern})$", path)
            if path.name not in ("libhvd.so", "libhvd_cuda.so"):
                self.assertIn("libhvd.so", needed, path)
                self.assertIn("$ORIGIN", output_of("objdump", "-p", path))

    def test_exports_are_few(self):
        for path, wanted in zip(
            self.objects(), ("PyInit__native$", "hvd_[a-z_]+$", "hvd_cuda_device_ops$", "hvd_tf_use_gpu$")
        ):
            names = output_of("nm", "-D", "--defined-only", path).split()[2::3]
            for name in names:
                self.assertRegex(name, wanted, path)

    def test_loads_in_every_python_from_3_8(self):
        """With the interpreters of this machine: python3.N on the path, or pyenv's."""
        tried = []
        for minor in range(8, 20):
            pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
            found = pyenv[-1] if pyenv else shutil.which(f"python3.{minor}")
            if found:
                ended = command([found, "-c", USE])
                self.assertIn("WORKS", ended.out, f"Python 3.{minor}: {ended}")
                tried.append(f"3.{minor}")
        self.assertTrue(tried)
        self.hvd_points = [(f"tried with Python {' '.join(tried)}", None, None)]


class OlderSystem(unittest.TestCase):
    def test_loads_with_glibc_2_31_and_python_3_9(self):
        with tempfile.TemporaryDirectory() as site:
            with zipfile.ZipFile(the_wheel()) as z:
                z.extractall(site)
            ended = inside(site, "/usr/bin/python3", "-c", USE, PYTHONPATH="/mnt")
            self.assertIn("WORKS 0.28.1+ringmaster", ended.out)
            code = "import os; print(os.confstr('CS_GNU_LIBC_VERSION'))"
            self.assertIn("glibc 2.31", inside(site, "/usr/bin/python3", "-c", code).out)
