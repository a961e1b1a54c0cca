# SPDX-License-Identifier: Apache-2.0
"""A trainer with hooks continues in the middle of an epoch when ranks are killed."""

import unittest

from elastic_job import lose_ranks


class Loops(unittest.TestCase):
    def test_hooks_of_a_trainer(self):
        lose_ranks(self, "hooks.py")
