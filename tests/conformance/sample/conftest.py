# SPDX-License-Identifier: Apache-2.0
"""As Horovod's test/conftest.py: the tests find their helpers by it."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "utils"))
