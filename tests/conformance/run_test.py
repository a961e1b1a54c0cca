#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The own tests of run.py and examples.py: sample/ has a test of every outcome, and run.py must tell each.

Needs `make all`; uses no framework, so it takes seconds.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import examples

HERE = Path(__file__).resolve().parent
SAMPLE = HERE / "sample"


class Runner(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.dir = Path(directory.name)

    def run_it(self, *words):
        command = [HERE / "run.py", "--out", self.dir / "out", "--expected", self.dir, *words]
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=250, check=False
        )
        return ended.returncode, ended.stdout

    def expect(self, **columns):
        rows = ["test\t" + "\t".join(columns)]
        names = next(iter(columns.values()))
        rows += ["\t".join([n, *(c.get(n, "-") for c in columns.values())]) for n in names]
        (self.dir / "test_sample.tsv").write_text("\n".join(rows) + "\n")

    def row(self, out, name):
        return next(line.split() for line in out.splitlines() if line.startswith(name + "  "))

    def test_every_outcome_is_reported(self):
        launcher = ["--launcher", "horovodrun", "--np", "2", "--limit", "6"]
        code, out = self.run_it(SAMPLE, *launcher)
        self.assertEqual(code, 1, out)
        for text in (
            "test_sample.py::Sample::test_b_fails: failed\n    failed: AssertionError: 1 != 2",
            "skipped in test_sample.py: 1 x no reason at all",
            "test_d_differs: disagree\n    rank 0: passed\n    rank 1: failed: AssertionError: 1 == 1",
            "test_e_hangs: hung\n    rank 0: passed\n    rank 1: hung: in it",
            "rank 1:   File",
            "in test_e_hangs\n",
            "test_g_dies: crashed\n    rank 0: passed\n    rank 1: crashed: in it",
            "rank 1: Fatal Python error: Aborted",
            "left out test_absent.py: needs horovod.runner.gloo_run, horovod.runner.util.network, mxnet, which",
            "which /usr/bin/python3 cannot import",
            "test_broken.py: cannot be collected: ModuleNotFoundError: No module named 'horovod.no_such_module'",
        ):
            self.assertIn(text, out)
        # what comes after a hang or a crash still runs: 3 of the sample, and the one alone
        self.assertEqual(self.row(out, "test_sample.py")[1:5], ["3", "4", "2", "1"], out)
        self.assertEqual(self.row(out, "test_alone.py")[1:5], ["1", "0", "0", "0"], out)
        self.assertEqual(self.row(out, "test_broken.py")[2], "1", out)
        self.assertEqual(out.splitlines()[-1], "4 passed, 5 failed, 2 skipped")
        self.assertTrue((self.dir / "out/test_sample/0/rank.0.jsonl").exists())
        self.assertTrue((self.dir / "out/test_alone/0/rank.0.xml").exists(), "pytest's own report")

    def test_comparison_with_the_record(self):
        file = SAMPLE / "parallel/test_sample.py"
        as_it_is = {f"Sample::{n}": o for n, o in (
            ("test_a_passes", "passed"),
            ("test_b_fails", "failed"),
            ("test_c_skips", "skipped"),
            ("test_d_differs", "passed"),  # with one rank there is nobody to differ from
            ("test_e_hangs", "passed"),
            ("test_f_passes_between", "passed"),
            ("test_g_dies", "passed"),
            ("test_h_fails_as_expected", "skipped"),
            ("test_i_passes_last", "passed"),
        )}  # fmt: skip
        other = dict(as_it_is)
        other["Sample::test_b_fails"] = "passed"
        other["Sample::test_c_skips"] = "passed"
        other["Sample::test_i_passes_last"] = "failed"
        other["Sample::test_z_is_gone"] = "passed"
        self.expect(**{"mpirun-1": other, "horovodrun-1": as_it_is})
        code, out = self.run_it(file, "--launcher", "horovodrun", "--np", "1")
        self.assertEqual(code, 0, out)
        self.assertIn("0 worse, 0 better", out)
        self.assertEqual(out.splitlines()[-1], "6 passed, 1 failed, 2 skipped")
        code, out = self.run_it(file, "--launcher", "mpirun", "--np", "1")
        self.assertEqual(code, 1, out)
        for text in (
            "worse: test_sample.py::Sample::test_b_fails: failed, with the original passed",
            "worse: test_sample.py::Sample::test_c_skips: skipped, with the original passed",
            "worse: test_sample.py::Sample::test_z_is_gone: did not run, with the original passed",
            "3 worse, 1 better",
        ):
            self.assertIn(text, out)

    def test_failures_that_are_not_ours_are_not_worse(self):
        row = "test_sample.py\tSample::test_b_fails\t{}\tone and two differ everywhere\n"
        command = [SAMPLE / "parallel/test_sample.py", "--np", "1"]
        (self.dir / "not-ours.tsv").write_text(row.format("AssertionError: 1 != 2"))
        code, out = self.run_it(*command)
        self.assertEqual(code, 0, out)
        self.assertIn("    not ours: one and two differ everywhere\n", out)
        self.assertEqual(out.splitlines()[-1], "6 passed, 1 failed, 2 skipped")
        (self.dir / "not-ours.tsv").write_text(row.format("another text"))
        code, out = self.run_it(*command)
        self.assertEqual(code, 1, out)
        self.assertNotIn("not ours", out)


class Examples(unittest.TestCase):
    """examples.py, with scripts of our own."""

    def test_examples_run_and_what_they_need_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (
                (
                    "ends.py",
                    "import beside, os, sys\nassert 'HOME' in os.environ\nprint('loss 0.5', *sys.argv[1:])",
                ),
                ("beside.py", "print('step 1')"),
                ("wrong.py", "import numpy\ndef train():\n    from horovod.common import util\n1 / 0"),
                ("absent.py", "def train():\n    import mxnet.gluon, horovod.mxnet\n"),
            ):
                (Path(folder) / name).write_text(text + "\n")
            command = [HERE / "examples.py", folder, "--python", "debian", "--out", f"{folder}/out"]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=250, check=False)
        self.assertEqual(
            (ended.returncode, ended.stdout),
            (
                1,
                "| absent.py | left out | needs horovod.mxnet, mxnet |\n"
                "| beside.py | ran | step 1 |\n"
                "| ends.py | ran | loss 0.5 |\n"
                "| wrong.py | failed | ZeroDivisionError: division by zero |\n"
                "2 ran, 0 trained, 1 failed, 1 left out\n",
            ),
        )

    def test_an_example_that_is_stopped_has_trained_or_failed(self):
        for said, wanted in (
            ("[0]<stdout>:Epoch 1\n[0]<stderr>: 3/9 - loss: 0.25\r[0]<stderr>: 4/9 - loss: 0.2", "trained"),
            ("[1]<stderr>:ValueError: bad batch\n[0]<stdout>:loss: 0.2", "failed"),
            ("[0]<stdout>:waiting", "failed"),
        ):
            self.assertEqual(examples.outcome(None, said)[0], wanted, said)
        self.assertEqual(
            examples.outcome(None, "[0]<stdout>:loss: 3\r[0]<stdout>:loss: 2"), ("trained", "loss: 2")
        )


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, 0 skipped")
    sys.exit(1 if bad else 0)
