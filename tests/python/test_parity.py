# SPDX-License-Identifier: Apache-2.0
"""Every public symbol of Horovod 0.28.1 for PyTorch is here, with its signature, and is tested (parity.py)."""

import unittest

import parity
import parity_tests
from job import DEBIAN_PYTHON, each_torch


@each_torch
class Cases(parity_tests.AllCases):
    suite, framework = parity.TORCH, "torch"


class Parity(parity_tests.Parity):
    suite = parity.TORCH

    @staticmethod
    def pythons():
        return [DEBIAN_PYTHON]


class Comparison(unittest.TestCase):
    """The comparison finds what it is there to find."""

    def test_a_missing_name(self):
        self.assertEqual(parity.compare({"args": []}, {"absent": "why"}), ["missing: why"])

    def test_parameters(self):
        want = ["a", "b=1", "c=None"]
        for here in (
            want,
            [*want, "more=2"],
            [*want, "*, flag=False"],
            ["a=5", *want[1:]],
            [*want, "**rest"],
        ):
            self.assertEqual(parity.compare_arguments(want, here), [], here)
        for here in (
            ["a", "c=None", "b=1"],
            ["a", "b=2", "c=None"],
            ["a", "b=1"],
            ["x", *want[1:]],
            [*want, "d"],
        ):
            self.assertNotEqual(parity.compare_arguments(want, here), [], here)

    def test_classes(self):
        want = {"class": ["Base"], "args": [], "members": {"run": {"args": ["x"]}}}
        here = {
            "class": ["Other", "Base"],
            "args": ["y=1"],
            "members": {"run": {"args": ["x"]}, "more": {"args": []}},
        }
        self.assertEqual(parity.compare(want, here), [])
        self.assertEqual(parity.compare(want, {**here, "class": []}), ["is no Base"])
        self.assertEqual(parity.compare(want, {**here, "members": {}}), ["run: missing: run"])

    def test_values(self):
        self.assertEqual(parity.compare({"value": "1"}, {"value": "1"}), [])
        self.assertEqual(parity.compare({"value": "1"}, {"value": "2"}), ["is 2, not 1"])
        self.assertNotEqual(parity.compare({"value": "1"}, {"args": []}), [])
        self.assertNotEqual(parity.compare({"same": "a.b"}, {"args": []}), [])

    def test_a_case_that_fails_on_one_rank_tests_nothing(self):
        good, bad = ({"cases": {"case": {"symbols": ["s"], "error": e}}} for e in (None, "error"))
        self.assertEqual(parity.passed([good, good]), {"s": ["case"]})
        self.assertEqual(parity.passed([good, bad]), {})
        self.assertEqual(parity.passed([good, {"cases": {}}]), {})
