# SPDX-License-Identifier: Apache-2.0
"""The same as test_parity.py for TensorFlow and Keras, under each TensorFlow."""

import parity
import parity_tests
from job import TENSORFLOWS, each_tf, venv


@each_tf
class Cases(parity_tests.AllCases):
    suite, framework = parity.TENSORFLOW, "tensorflow"


class Parity(parity_tests.Parity):
    suite = parity.TENSORFLOW

    @staticmethod
    def pythons():
        return [venv(tf) for tf in TENSORFLOWS]
