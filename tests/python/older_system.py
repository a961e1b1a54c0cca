# SPDX-License-Identifier: Apache-2.0
"""An older system to run our objects in: Debian 11 (glibc 2.31, Python 3.9), the oldest that Debian's mirrors
still have. Needs root and mmdebstrap; where they are missing the test is skipped."""

import os
import shutil
import subprocess
import unittest
from pathlib import Path

from job import command

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ringmaster"
ENTER = """
mount --bind "$1" "$0/mnt" && mount --bind -o ro "$0/mnt" "$0/mnt" && mount --rbind /proc "$0/proc" &&
    mount -t tmpfs none "$0/tmp" || exit
root=$0
shift
exec chroot "$root" "$@"
"""


def inside(folder, *argv, **env):
    """Runs a command in the older system, which sees the folder at /mnt, has an empty /tmp, and is not changed."""
    env = {"TMPDIR": "/tmp", **env}  # not the one of our row
    return command(["unshare", "--mount", "sh", "-c", ENTER, root(), folder, *argv], **env)


def root():
    """A Debian 11 root with Python, made once (about half a minute, 40 MB down, 200 MB there)."""
    if os.geteuid():
        raise unittest.SkipTest("needs root for chroot")
    if not shutil.which("mmdebstrap"):
        raise unittest.SkipTest("mmdebstrap is not installed (tests/setup/deb.sh cluster)")
    folder = CACHE / "root-debian11"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = folder.with_suffix(f".{os.getpid()}")
        words = ["--quiet", "--variant=minbase", "--format=directory", "--include=python3"]
        made = subprocess.run(
            ["mmdebstrap", *words, "bullseye", partial],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        if made.returncode:
            shutil.rmtree(partial, ignore_errors=True)
            raise unittest.SkipTest(f"no Debian 11 root can be made: {made.stdout.strip()[-200:]}")
        partial.rename(folder)
    return folder
