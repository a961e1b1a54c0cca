# SPDX-License-Identifier: Apache-2.0
"""``python -m horovod.runner.launch ...``: becomes horovodrun."""

import os
import sys

from _hvd.run import find_launcher


def run_commandline():
    launcher = find_launcher()
    os.execv(launcher, [launcher, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
