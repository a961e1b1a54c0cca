# SPDX-License-Identifier: Apache-2.0
"""python -m horovod.compat.tf1: the scripts of tf1/, which are written for TensorFlow 1, train on today's."""

import os
import re
import shutil
import tempfile
import textwrap
import unittest
from pathlib import Path

from job import (
    DEBIAN_PYTHON,
    HOROVODRUN,
    ROOT,
    STAGE,
    command,
    each_tf,
    only_tf,
    packages,
)

SCRIPTS = ROOT / "tests/python/tf1"
RUN = ["-m", "horovod.compat.tf1"]
TRAINED = r"rank (\d): loss (\d+\.\d+) to (\d+\.\d+), weights (?:np\.float32\()?(-?\d+\.\d+)"
LAUNCHERS = {"mpirun": ["mpirun", "-np", 2], "perseusrun": [STAGE / "bin/perseusrun", "-np", 2]}


def with_packages(*more):
    """PYTHONPATH: the tree under test and other folders."""
    return {"PYTHONPATH": os.pathsep.join([str(STAGE / "python"), *map(str, more)])}


@each_tf
class Tf1(unittest.TestCase):
    def train(self, script, *saved, launcher=(HOROVODRUN, "-np", 2), **options):
        """Runs a script of tf1/ on 2 ranks in a folder of its own, where it leaves these files: patterns.

        Returns how it ended. The loss has fallen, and the ranks' weights are equal.
        """
        with tempfile.TemporaryDirectory() as folder:
            words = [*launcher, self.python, *RUN, SCRIPTS / script]
            ended = command(words, timeout=600, cwd=folder, **options)
            files = sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file())
        self.assertEqual(ended.code, 0, ended)
        ranks = sorted(re.findall(TRAINED, ended.out))
        self.assertEqual([rank for rank, *_ in ranks], ["0", "1"], ended)
        for _, first, last, _ in ranks:
            self.assertLess(float(last), 0.6 * float(first), ended)
        self.assertEqual(ranks[0][3], ranks[1][3], ended)
        self.assertEqual(len(files), len(saved), files)
        for pattern in saved:
            self.assertEqual(len([f for f in files if re.fullmatch(pattern, f)]), 1, (pattern, files))
        return ended

    def checkpoints(self, folder, *steps):
        """Patterns of what one writer leaves there; a second one would add a file of events."""
        files = [rf"model\.ckpt-{step}\.{kind}" for step in steps for kind in ("index", "meta", "data-.*")]
        return [f"{folder}/{name}" for name in ("checkpoint", r"graph\.pbtxt", r"events\.out.*", *files)]

    def test_a_monitored_session_with_hooks(self):
        self.train("monitored.py", *self.checkpoints("checkpoints", 0, 20, 40))

    @only_tf("tf")  # how a rank is started is not TensorFlow's
    def test_under_mpirun_and_perseusrun(self):
        for name, launcher in LAUNCHERS.items():
            with self.subTest(name):
                self.train("monitored.py", *self.checkpoints("checkpoints", 0, 20, 40), launcher=launcher)

    def test_a_session_averages_once(self):
        kinds = ("index", "meta", "data-.*")
        saved = ["model/checkpoint", *[rf"model/model\.ckpt-40\.{kind}" for kind in kinds]]
        ended = self.train("session.py", *saved)
        for rank in range(2):
            self.assertIn(f"rank {rank}: 10 became 8.5 8.5", ended.out)

    def test_keras_by_itself(self):
        """The newest TensorFlow has Keras 3; tf_keras is its Keras 2."""
        more = with_packages(packages("keras2")) if self.tf == "tf" else {}
        self.train("keras_alone.py", **more)

    @only_tf("tf215")  # the other way of importing what keras_alone.py uses
    def test_keras_of_tensorflow(self):
        self.train("keras_session.py", *[f"checkpoint-{epoch}.h5" for epoch in (1, 2, 3, 4)])

    @only_tf("tf215")  # the last that has it
    def test_an_estimator(self):
        evaluated = r"mnist_convnet_model/eval/events\.out.*"
        self.train("estimator.py", *self.checkpoints("mnist_convnet_model", 0, 1, 61), evaluated)

    def test_eager_execution_and_a_module_that_tensorflow_imports_too(self):
        """The program brings its own six: TensorFlow imports that one, in the middle of its own import."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(
                next(Path(self.python).parent.parent.glob("lib/python3*/site-packages/six.py")), folder
            )
            ended = command([self.python, *RUN, SCRIPTS / "eager.py"], **with_packages(folder))
        self.assertEqual(ended.code, 0, ended)
        wanted = f"weights 1.265625 1.6875 step 3\neager True threads 1\nsix of {folder}/six.py\n"
        self.assertIn(wanted, ended.out)

    @only_tf("tf")
    def test_the_guides_program(self):
        section = (ROOT / "runtime/python/GUIDE.md").read_text().split("\n## Scripts for TensorFlow 1,")[1]
        line = re.search(r"\n    horovodrun (.*)\n", section)[1].replace("python", str(self.python), 1)
        program = re.search(r"^    import .*\n(?:(?:    .*)?\n)+", section, re.MULTILINE)[0]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(textwrap.dedent(program))
            ended = command([HOROVODRUN, *line.split()], timeout=600, cwd=folder)
            files = sorted(os.listdir(folder))
        self.assertEqual(ended.code, 0, ended)
        self.assertEqual(files, ["checkpoints", "train.py"])
        losses = re.findall(r"rank \d: loss (\d+\.\d+)", ended.out)
        self.assertEqual(len(losses), 2, ended)
        self.assertLess(max(map(float, losses)), 0.5, ended)

    def test_what_is_not_there_is_named_and_libraries_see_tensorflow_2(self):
        ended = command([self.python, *RUN, SCRIPTS / "absent.py"], **with_packages(SCRIPTS / "installed"))
        self.assertEqual(ended.code, 0, ended)
        said = dict(re.findall(r"(.+) -> (.+)", ended.out))
        contrib = "tf.contrib: TensorFlow 1 has it, 2.x does not, and this is TensorFlow 2."
        wanted = {
            "tf.contrib.layers.xavier_initializer()": "AttributeError: " + contrib,
            "import tensorflow.contrib.slim as slim": "ModuleNotFoundError: " + contrib,
            "from tensorflow import contrib": "ImportError: " + contrib,
            "from tensorflow.examples.tutorials.mnist import input_data": "ModuleNotFoundError: "
            "tensorflow.examples: TensorFlow 1 has it, 2.x does not, and this is TensorFlow 2.",
            "tf.Sitzung": "AttributeError: module 'tensorflow' has no attribute 'Sitzung'",
            "import tensorflow.nowhere": "ModuleNotFoundError: No module named 'tensorflow.nowhere'",
            "from tensorflow import nowhere": "ImportError: cannot import name 'nowhere' from 'tensorflow'",
        }
        estimator = "tf.estimator: TensorFlow up to 2.15 has it, and this is TensorFlow 2."
        keras_2 = "Keras 2 has it, and this is TensorFlow 2."
        wanted_of_newest = {
            "tf.estimator.Estimator": "AttributeError: " + estimator,
            "from tensorflow.estimator import RunConfig": "ImportError: " + estimator,
            "tf.layers.dense": "AttributeError: tf.layers: " + keras_2,
            "from tensorflow.layers import dense": "ImportError: tf.layers: " + keras_2,
            "tf.nn.rnn_cell.LSTMCell": "AttributeError: tf.nn.rnn_cell: " + keras_2,
            "from tensorflow.keras.backend import set_session": "ImportError: tf.keras.backend.set_session: "
            + keras_2,
            "import keras; keras.backend.get_session": "AttributeError: tf.keras.backend.get_session: "
            + keras_2,
        }
        self.assertEqual(len(said), len(wanted) + len(wanted_of_newest) + 7, ended)
        wanted.update(wanted_of_newest if self.tf == "tf" else {})
        for statement, text in said.items():
            with self.subTest(statement):
                self.assertEqual(text[: len(wanted.get(statement, text))], wanted.get(statement, "works"))


class Program(unittest.TestCase):
    """What has nothing to do with TensorFlow is as under python itself."""

    def both(self, *words, **options):
        """Runs words with python and with ours; the same comes out. Returns how ours ended."""
        plain = command([DEBIAN_PYTHON, *words], **options)
        ended = command([DEBIAN_PYTHON, *RUN, *words], **options)
        self.assertEqual((ended.code, ended.out), (plain.code, plain.out))
        return ended

    def test_a_script_sees_itself_and_its_errors_alone(self):
        for how, code, words in (
            ("raise", 1, "RuntimeError: because of it"),
            ("import", 1, "ValueError: bad batch"),
            ("exit", 3, "program.py"),
            ("say", 1, "said"),
        ):
            with self.subTest(how):
                ended = self.both("program.py", how, "--steps", "3", cwd=SCRIPTS / "plain")
                self.assertEqual(ended.code, code)
                self.assertIn(words, ended.out)

    def test_a_script_of_another_folder_and_a_module(self):
        self.assertEqual(self.both(SCRIPTS / "plain/program.py", "exit").code, 3)
        ended = self.both("-m", "program", "exit", **with_packages(SCRIPTS / "plain"))
        self.assertEqual(ended.code, 3)

    def test_a_syntax_error_is_the_scripts(self):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "wrong.py"
            script.write_text("x = 1\nprint 'TensorFlow 1 had Python 2'\n")
            self.assertIn("wrong.py", self.both(script).out)

    def test_a_command_that_names_no_program_is_refused(self):
        for words, text in (
            ([], "usage: python -m horovod.compat.tf1 SCRIPT [ARGUMENT...]"),
            (["--steps"], "usage: python -m horovod.compat.tf1 SCRIPT [ARGUMENT...]"),
            (["no.py"], "horovod.compat.tf1: cannot read the script no.py: No such file or directory"),
            (["-m", "no.such"], "horovod.compat.tf1: cannot run the module no.such: it is not found"),
        ):
            ended = command([DEBIAN_PYTHON, *RUN, *words], cwd=SCRIPTS)
            self.assertEqual(ended.code, 1, ended)
            self.assertTrue(ended.out.startswith(text) and ended.out.count("\n") == 1, ended)
