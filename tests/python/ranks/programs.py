# SPDX-License-Identifier: Apache-2.0
"""programs.py "SCRIPT ARGUMENT..." ...: several programs in the same ranks, one after another, up to one that fails."""

import os
import runpy
import shlex
import sys

for words in sys.argv[1:]:
    sys.argv = shlex.split(words)
    sys.path[0] = os.path.dirname(sys.argv[0])
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as e:
        if e.code:
            raise
