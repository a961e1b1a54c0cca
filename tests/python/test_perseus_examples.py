# SPDX-License-Identifier: Apache-2.0
"""perseus as its documents use it, from the installed wheel: the folder of the package is cut out of what
print(perseus) prints, the examples in it run under perseusrun, and variables of Horovod's build do no harm.
"""

import functools
import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from job import DEBIAN_PYTHON, ROOT, STAGE, command, venv
from test_wheel import the_wheel

GUIDE = ROOT / "runtime/python/GUIDE.md"
# As documents write it.
CUT = r"""python -c "import perseus; print(perseus)" | cut -d\' -f 4"""
BUILD_VARIABLES = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_GPU_OPERATIONS": "NCCL",
}
LOSS = {  # example: what it prints before each loss
    "keras_mnist": r"\bloss: ",
    "pytorch_mnist": r"epoch +\d+  loss ",
    "tensorflow2_mnist": r"epoch \d+  loss ",
    "tensorflow_keras_mnist": r"\bloss: ",
    "tensorflow_mnist": r"step \d+  loss ",
    "tensorflow_mnist_estimator": r"after \d+ runs: .*\bloss = ",
}


@functools.lru_cache(maxsize=None)
def installed():
    """The folder that pip has installed the wheel into, with the variables of a build of Horovod set."""
    folder = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, folder)
    words = [
        DEBIAN_PYTHON,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        "--disable-pip-version-check",
    ]
    ended = command([*words, "--target", folder, the_wheel()], PYTHONPATH="", **BUILD_VARIABLES)
    assert ended.code == 0, ended
    return Path(folder)


def shell(line, python, **options):
    """Runs a line of a document: python and perseusrun are those under test."""
    folders = [str(installed() / "bin"), str(Path(python).parent), "/usr/bin", "/bin"]
    extra = {"PATH": os.pathsep.join(folders), "PYTHONPATH": str(installed()), **options}
    return command(["/bin/sh", "-c", line], **extra)


class PerseusExamples(unittest.TestCase):
    def folder(self, python):
        """The folder of the examples, found as the documents find it."""
        ended = shell(f'dirname "$({CUT})"', python)
        self.assertEqual((ended.code, ended.out), (0, f"{installed()}/perseus\n"))
        return installed() / "perseus/examples"

    def run_example(self, name, python):
        folder = self.folder(python)
        before = sorted(os.listdir(folder))
        ended = shell(f"perseusrun -np 2 -H localhost:2 python {name}.py", python, cwd=folder)
        self.assertEqual(sorted(os.listdir(folder)), before)
        return ended

    def learn(self, name, python):
        self.assert_learned(name, self.run_example(name, python))

    def assert_learned(self, name, ended):
        self.assertEqual(ended.code, 0, ended)
        losses = [float(x) for x in re.findall(rf"(?m)^\[0\].*?{LOSS[name]}(\d[\d.e+-]*)", ended.out)]
        self.assertGreater(len(losses), 2, ended)
        self.assertLess(losses[-1], losses[0] / 2, ended)

    def test_torch(self):
        self.learn("pytorch_mnist", venv("torch"))

    def test_tensorflow_1(self):
        self.learn("tensorflow_mnist", venv("tf"))

    def test_tensorflow_2(self):
        self.learn("tensorflow2_mnist", venv("tf"))

    def test_keras_of_tensorflow_by_the_lines_of_the_guide(self):
        lines = re.search(r"(?m)^    cd \$.*\n    perseusrun .*\n", GUIDE.read_text())[0]
        self.assertIn(CUT, lines)
        self.assert_learned("tensorflow_keras_mnist", shell(lines, venv("tf")))

    def test_keras(self):
        self.learn("keras_mnist", venv("tf"))

    def test_estimator(self):
        self.learn("tensorflow_mnist_estimator", venv("tf215"))

    def test_without_an_estimator_there_is_one_sentence(self):
        ended = self.run_example("tensorflow_mnist_estimator", venv("tf"))
        self.assertEqual(ended.code, 1, ended)
        self.assertRegex(
            ended.out,
            r"(?m)^\[0\]<stderr>:tensorflow_mnist_estimator: TensorFlow 2\.\d+\.\d+ has no Estimator; "
            r"2\.15 is the last that has$",
        )
        self.assertNotIn("Traceback", ended.out)

    def test_each_example_has_a_test(self):
        names = {p.stem for p in (installed() / "perseus/examples").glob("*.py")}
        self.assertEqual(names - {"digits"}, set(LOSS))
        for name in LOSS:
            self.assertIn(f"`{name}.py`", GUIDE.read_text())


class Repr(unittest.TestCase):
    def test_it_is_cut_out_of_the_staged_tree_too(self):
        ended = shell(CUT, venv("tf"), PYTHONPATH=str(STAGE / "python"))
        self.assertEqual(ended.out, f"{STAGE}/python/perseus/__init__.py\n")


class BuildVariables(unittest.TestCase):
    def test_the_installed_wheel_has_every_framework_that_is_there(self):
        ended = shell("horovodrun --check-build", venv("tf"), **BUILD_VARIABLES)
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("[X] TensorFlow\n    [ ] PyTorch\n", ended.out)
        self.assertIn(f"runtime: {installed()}/_hvd\n", ended.out)
        for name, value in BUILD_VARIABLES.items():
            self.assertIn(f"    {name}={value}: without effect, the wheel is complete", ended.out)
        ended = shell("horovodrun --check-build", venv("torch"))
        self.assertIn("[ ] TensorFlow\n    [X] PyTorch\n", ended.out)
        self.assertNotIn("without effect", ended.out)

    def test_init_logs_that_they_have_no_effect(self):
        code = "import _hvd.basics as hvd; hvd.init(); hvd.shutdown()"
        line = f"perseusrun -np 2 python -c '{code}'"
        ended = shell(line, venv("tf"), HOROVOD_LOG_LEVEL="info", **BUILD_VARIABLES)
        self.assertEqual(ended.code, 0, ended)
        for name, value in BUILD_VARIABLES.items():
            sentence = (
                f"{name}={value} has no effect: it belongs to building Horovod; nothing is compiled here"
            )
            self.assertEqual(ended.out.count(sentence), 1, ended)
