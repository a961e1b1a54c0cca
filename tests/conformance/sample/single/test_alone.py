# SPDX-License-Identifier: Apache-2.0
"""Runs in one process, without a launcher."""

import sample_helper


def test_alone():
    assert sample_helper.RANK == -1
