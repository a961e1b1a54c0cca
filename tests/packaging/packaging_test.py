#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installation and user input against a real API server, in TAP. usage: packaging_test.py [TEST ...]

The modules below hold the tests, run in this order; run.sh starts the cluster.
"""

import sys

import access  # noqa: F401
import alerts  # noqa: F401
import chart  # noqa: F401
import examples  # noqa: F401
import images  # noqa: F401
import kinds  # noqa: F401
import monitoring  # noqa: F401
import mpijob  # noqa: F401
import told  # noqa: F401
import upgrade  # noqa: F401
import wrong  # noqa: F401
from common import suite, world

if __name__ == "__main__":
    try:
        code = suite.main(sys.argv[1:])
    finally:
        world.stop()
    sys.exit(code)
