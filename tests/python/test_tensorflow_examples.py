# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's and Keras' part of runtime/examples/README.md and of runtime/python/README.md, as test_examples.py and
test_howto.py do it for torch's.

Here under the newest TensorFlow; under 2.15, and by Keras 3 without it on torch and on JAX, in test_full.py.
"""

import functools
import re
import shlex
import tempfile
from pathlib import Path

import test_examples as examples
from job import RANKS, venv
from test_examples import number
from test_howto import PAGES, section

# These share a start: the first one sets TensorFlow's threads, the last one ends eager execution.
KERAS = "^horovodrun -np 2 python3 runtime/examples/keras_digits.py"
BENCHMARK = "tensorflow_synthetic_benchmark.py"
SHARED = ("tape_digits.py", KERAS, BENCHMARK, "allreduce_tf.py", "tf1_digits.py")
FIRST = section(PAGES / "README.md", "Keras on two processes")
FEWER = " --num-warmup-batches 1 --num-batches-per-iter 1"


@functools.lru_cache(maxsize=None)
def run_shared(python):
    """The commands of SHARED and the first page's, their programs one after another in the same two ranks; BENCHMARK
    with FEWER batches."""
    launch = "horovodrun -np 2 python3 "
    lines = [examples.line_of(words) + FEWER * (words == BENCHMARK) for words in SHARED]
    with tempfile.TemporaryDirectory() as folder:
        program, line, _ = FIRST
        (Path(folder) / "train.py").write_text(program)
        lines.insert(1, line.replace(" train.py", f" {folder}/train.py"))
        assert all(line.startswith(launch) for line in lines), lines
        programs = " ".join(shlex.quote(line[len(launch) :]) for line in lines)
        return examples.run_line(f"{launch}{RANKS / 'programs.py'} {programs}", python)


class TensorFlowExamples(examples.Runs):
    tf = "tf"

    @property
    def python(self):
        return venv(self.tf)

    def learned(self, ended, name, least):
        self.assertGreaterEqual(number(rf"{name}.*: held-out accuracy ([01]\.\d+)", ended), least)
        self.assertNotRegex(ended.out, r"\[1\]<stdout>:(?!rank 1 of 2: (average|loss))")

    def shared(self, words):
        ended = run_shared(self.python)
        self.assertEqual(ended.code, 0, ended)
        self.assert_shown(examples.line_of(words), ended)
        return ended

    def test_tape(self):
        ended = self.shared("tape_digits.py")
        self.learned(ended, "tape_digits", 0.9)
        self.assertIn("all 2 workers hold identical weights", ended.out)
        self.assertEqual(len(re.findall(r"epoch \d  loss \d", ended.out)), 8, ended)

    def test_an_elastic_job_resumes_on_another_number_of_workers(self):
        ended = self.run_example("elastic_keras_digits.py --epochs 3")
        found = re.findall(r"<stdout>:epoch (\d) on (\d) workers", ended.out)
        self.assertEqual(found, examples.RESUMED, ended)

    def test_synthetic_benchmark(self):
        self.assert_benchmarked(self.shared(BENCHMARK))

    def test_allreduce(self):
        ended = self.shared("allreduce_tf.py")
        self.assertEqual(len(re.findall(r"rank [01] of 2: average \[1\.5 3", ended.out)), 2, ended)

    def test_the_command_of_the_first_page(self):
        line = next(line for line in examples.shown() if "/keras_digits" in line)
        self.assertIn(f"    {line}\n", (examples.ROOT / "README.md").read_text())

    def test_the_program_of_the_packages_first_page(self):
        ended = run_shared(self.python)
        self.assertEqual(ended.code, 0, ended)
        lost = dict(re.findall(r"rank (\d) of 2: loss (\d\.\d{4})$", ended.out, re.M))
        self.assertEqual(sorted(lost), ["0", "1"], ended)
        self.assertLess(max(map(float, lost.values())), 0.01)
        printed = {examples.form(one) for one in ended.out.splitlines()}
        self.assertLessEqual({examples.form(one) for one in FIRST[2]}, printed)

    def test_keras(self):
        ended = self.shared(KERAS)
        self.learned(ended, "keras_digits", 0.9)

    def test_tensorflow_1(self):
        self.learned(self.shared("tf1_digits.py"), "tf1_digits", 0.92)


class Estimator(examples.Runs):
    python = property(lambda self: venv("tf215"))  # the last that has it

    def test_estimator(self):
        ended = self.run_example("estimator_digits.py")
        self.assertGreaterEqual(number(r"estimator_digits: held-out accuracy ([01]\.\d+)", ended), 0.92)
        self.assertRegex(ended.out, r"means over 2 ranks after 200 runs: loss = \d")
