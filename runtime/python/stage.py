# SPDX-License-Identifier: Apache-2.0
"""stage.py FROM TO FILE...: makes TO hold exactly these files of FROM, libraries stripped of debug
information. Files that are already there and newer are kept, so that it costs nothing when nothing
has changed; files that are no longer wanted are removed."""

import os
import shutil
import subprocess
import sys


def place(source, target):
    if os.path.exists(target) and os.path.getmtime(target) >= os.path.getmtime(source):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    partial = target + ".new"
    shutil.copyfile(source, partial)
    if target.endswith(".so"):
        subprocess.run(["strip", "--strip-debug", partial], check=True)
    os.chmod(partial, 0o755 if target.endswith(".so") else 0o644)
    os.replace(partial, target)


def main():
    source, target, *files = sys.argv[1:]
    for file in files:
        place(os.path.join(source, file), os.path.join(target, file))
    wanted = {os.path.join(target, f) for f in files}
    for directory, _, names in os.walk(target):
        for name in names:
            path = os.path.join(directory, name)
            if path not in wanted:
                os.remove(path)


if __name__ == "__main__":
    main()
