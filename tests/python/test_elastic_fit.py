# SPDX-License-Identifier: Apache-2.0
"""fit() of Keras continues in the middle of an epoch when ranks are killed."""

import unittest

from elastic_job import lose_ranks
from job import venv


class Fit(unittest.TestCase):
    def test_with_tensorflow(self):
        lose_ranks(self, "fit.py", venv("tf"), KERAS_BACKEND="tensorflow", TF_NUM_INTRAOP_THREADS="1")
