# SPDX-License-Identifier: Apache-2.0
"""Every public symbol of Horovod 0.28.1 for PyTorch is here, with its signature, and is tested (parity.py)."""

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
