# SPDX-License-Identifier: Apache-2.0
"""The commands of runtime/examples/README.md, run as they stand there."""

import os
import re
import unittest

from job import ROOT, STAGE, command, venv

README = ROOT / "runtime/examples/README.md"


def commands():
    return re.findall(r"^    (horovodrun .*)$", README.read_text(), re.MULTILINE)


class Examples(unittest.TestCase):
    def run_line(self, words, python=None):
        line = next(c for c in commands() if words(c))
        if python:
            line = line.replace("python3", python)
        path = f"{STAGE / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return command(["/bin/sh", "-c", line], timeout=150, cwd=ROOT, PATH=path)

    def accuracy(self, ended):
        # as rank 0 says it: horovodrun may repeat it among the last lines of a rank that failed
        found = re.findall(r"^\[0\]<stdout>:.*accuracy on all ten digits: ([01]\.\d+)", ended.out, re.M)
        self.assertEqual(len(found), 1, ended)
        return float(found[0])

    def test_every_command_has_a_test(self):
        self.assertEqual(len(commands()), 3)

    def test_digits_are_learned_together(self):
        ended = self.run_line(lambda c: c.endswith("train_digits.py"))
        self.assertEqual(ended.code, 0, ended)
        self.assertGreaterEqual(self.accuracy(ended), 0.97)
        self.assertIn("all 2 workers hold identical weights", ended.out)
        self.assertIn("trains on the digits 0 1 2 3 4 ", ended.out)
        self.assertIn("trains on the digits 5 6 7 8 9 ", ended.out)
        self.assertEqual(len(re.findall(r"epoch +\d+ +loss \d", ended.out)), 15, ended)
        self.assertLess(ended.seconds, 60, ended)

    def test_without_averaging_half_of_the_digits_are_unknown(self):
        ended = self.run_line(lambda c: "--no-average" in c)
        self.assertNotEqual(ended.code, 0, ended)
        self.assertLess(self.accuracy(ended), 0.65)
        self.assertIn("the workers hold different weights", ended.out)
        self.assertIn("is below the target 0.97", ended.out)

    def test_tensorflow_example(self):
        ended = self.run_line(lambda c: "allreduce_tf" in c, venv("tf"))
        self.assertEqual(ended.code, 0, ended)
        self.assertEqual(len(re.findall(r"rank [01] of 2: average \[1\.5 3", ended.out)), 2, ended)
