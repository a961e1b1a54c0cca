# SPDX-License-Identifier: Apache-2.0
"""Run with the Python of an environment that has TensorFlow: builds the original Horovod against it.

pip builds a package before it installs those beside it, so Horovod, whose build imports TensorFlow,
cannot stand in the same list. horovod.sh sets what it is built with.
"""

import subprocess
import sys

PIP = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
subprocess.run([*PIP, "--no-deps", "--no-build-isolation", "horovod==0.28.1"], check=True)
