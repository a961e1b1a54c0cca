# SPDX-License-Identifier: Apache-2.0
"""The type stubs: mypy's results for a right and a wrong script, and stubtest.

stubtest compares every stub with the running module, so names, parameters and defaults of the stubs
are those of the code. Checked with Debian's PyTorch 1.13, which has types of its own, and with the newest
TensorFlow, whose types are those of types-tensorflow.
"""

import os
import re
import unittest
from pathlib import Path

from job import BUILD, STAGE, command, venv

TYPES = Path(__file__).resolve().parent / "types"
# What mypy knows of torch goes from clone to clone; it looks whether files have changed.
MYPY = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ringmaster/mypy"
DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"


def site_packages(name):
    """Where an environment of tests/setup/venv has its packages."""
    return next(Path(venv(name)).parent.parent.glob("lib/python3*/site-packages"))


class Types(unittest.TestCase):
    def mypy(self, *arguments, module="mypy", packages=(DEBIAN_PACKAGES,)):
        """Runs mypy as a user would, with the staged tree and these packages installed, Debian's torch among them."""
        path = ":".join([str(STAGE / "python"), *map(str, packages)])
        return command([venv("lint"), "-m", module, *arguments], timeout=600, cwd=TYPES, PYTHONPATH=path)

    def check(self, script, **options):
        return self.mypy("--strict", "--no-error-summary", "--cache-dir", MYPY, script, **options)

    def check_bad(self, script, **options):
        """Each line with a # [code] is found, and no other."""
        ended = self.check(script, **options)
        pattern = rf"^{re.escape(script)}:(\d+): error: .*(\[[a-z-]+\])$"
        found = set(re.findall(pattern, ended.out, re.MULTILINE))
        lines = (TYPES / script).read_text().splitlines()
        wanted = {
            (str(i), m[1]) for i, s in enumerate(lines, 1) for m in [re.search(r"# (\[.*\])$", s)] if m
        }
        self.assertEqual(found, wanted, ended)
        self.assertEqual(ended.code, 1)

    def test_a_right_script_is_right(self):
        ended = self.check("good.py")
        self.assertEqual((ended.code, ended.out), (0, ""), ended)

    def test_each_mistake_is_found(self):
        self.check_bad("bad.py")

    def test_scripts_for_tensorflow(self):
        packages = [site_packages("types")]
        ended = self.check("good_tf.py", packages=packages)
        self.assertEqual((ended.code, ended.out), (0, ""), ended)
        self.check_bad("bad_tf.py", packages=packages)

    def stubtest(self, names, packages):
        config = BUILD / "mypy.ini"
        config.write_text(f"[mypy]\ncache_dir = {BUILD / 'mypy'}\n")
        options = ["--concise", "--mypy-config-file", config, "--allowlist", TYPES / "stubtest.allow"]
        options += ["--ignore-unused-allowlist"]
        ended = self.mypy(*options, *names, module="mypy.stubtest", packages=packages)
        self.assertEqual(ended.code, 0, ended)

    def test_stubs_are_what_the_modules_are(self):
        names = ["horovod.common", "horovod.compat", "horovod.torch", "horovod.runner", "perseus.torch"]
        self.stubtest(names, [DEBIAN_PACKAGES])

    def test_stubs_for_tensorflow_are_what_the_modules_are(self):
        packages = [site_packages("types"), site_packages("tf")]
        self.stubtest(["horovod.tensorflow", "horovod.keras"], packages)

    def test_every_module_has_a_stub(self):
        """But for examples, which are programs."""
        for package in ("horovod", "perseus"):
            self.assertTrue((STAGE / "python" / package / "py.typed").exists(), package)
            for path in (STAGE / "python" / package).rglob("*.py"):
                has_names = re.search(r"^(from|import|def|class) ", path.read_text(), re.MULTILINE)
                is_example = path.parent.name == "examples"
                self.assertTrue(path.with_suffix(".pyi").exists() or is_example or not has_names, path)
