# SPDX-License-Identifier: Apache-2.0
"""Run with the Python of an environment that has TensorFlow: builds the original Horovod against it.

pip builds all packages of a list before it installs any, and Horovod's build imports TensorFlow, so both
cannot be in one list. horovod.sh sets the options of the build.
"""

import subprocess
import sys

PIP = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
subprocess.run([*PIP, "--no-deps", "--no-build-isolation", "horovod==0.28.1"], check=True)
