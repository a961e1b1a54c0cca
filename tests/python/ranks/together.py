# SPDX-License-Identifier: Apache-2.0
"""together.py "SCRIPT ARGUMENT..." ...: several scripts of checks in the same ranks, one after another.

Each runs as a program of its own (its argv, its checks), but in the same modules: a script that changes
them must be started alone.
"""

import os
import runpy
import shlex
import sys

import checks

HERE = os.path.dirname(os.path.abspath(__file__))


def main(scripts):
    bad = False
    for words in scripts:
        script, *args = shlex.split(words)
        checks.begin(words)
        sys.argv = [os.path.join(HERE, script), *args]
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as e:
            bad |= bool(e.code)
        else:
            sys.exit(f"{words}: ended without checks.main(rank)")
    sys.exit(1 if bad else 0)


main(sys.argv[1:])
