# SPDX-License-Identifier: Apache-2.0
"""Tests of every outcome, for the runner's own test."""

import os
import threading
import unittest

import sample_helper


class Sample(unittest.TestCase):
    def test_a_passes(self):
        pass

    def test_b_fails(self):
        self.assertEqual(1, 2, "one is not two")

    def test_c_skips(self):
        self.skipTest("no reason at all")

    def test_d_differs(self):
        self.assertNotEqual(sample_helper.RANK, 1)

    def test_e_hangs(self):
        if sample_helper.RANK == 1:
            threading.Event().wait()

    def test_f_passes_between(self):
        pass

    def test_g_dies(self):
        if sample_helper.RANK == 1:
            sample_helper.wait_for_the_other("test_g_dies")
            os.abort()

    @unittest.expectedFailure
    def test_h_fails_as_expected(self):
        self.fail("known")

    def test_i_passes_last(self):
        pass
