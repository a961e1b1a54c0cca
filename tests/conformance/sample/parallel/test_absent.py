# SPDX-License-Identifier: Apache-2.0
"""Needs a framework and parts of Horovod's launcher that are nowhere: left out, with the reason."""

import horovod.runner.gloo_run
import mxnet
from horovod.runner.util import network, threads


def test_never():
    assert horovod and mxnet and network and threads
