# SPDX-License-Identifier: Apache-2.0
"""Disks that are full or do not answer. Needs root; mounts are seen by this program and its children only."""

import contextlib
import ctypes
import os
import subprocess

from tap import Skip, wait_until

CLONE_NEWNS = 0x20000


def sh(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}"


def enter_namespace():
    """Gives the calling thread, and what it starts, mounts of its own."""
    if os.geteuid() != 0:
        raise Skip("mounts need root")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise Skip("mount namespaces are not allowed here")
    sh("mount", "--make-rprivate", "/")


def unmount(path):
    """A killed process may still be closing its files there."""
    command = ["umount", path]
    wait_until(
        "it is unmounted", lambda: not subprocess.run(command, capture_output=True, check=False).returncode
    )


@contextlib.contextmanager
def small_disk(path, size="64k"):
    os.mkdir(path)
    sh("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
    try:
        yield path
    finally:
        unmount(path)


class StallingDisk:
    """An ext4 disk. While it is stalled, a process that writes there hangs in the kernel and cannot be killed."""

    def __init__(self, path):
        self.path = path
        self.image = f"{path}.img"
        self.holder = None

    def __enter__(self):
        os.mkdir(self.path)
        with open(self.image, "wb") as f:
            f.truncate(32 << 20)
        sh("mkfs.ext4", "-q", self.image)
        sh("mount", "-o", "loop", self.image, self.path)
        return self

    def stall(self):
        # The disk answers again when this pipe ends, also when this program is killed, and after a minute:
        # nothing can end a process that hangs there.
        script = 'fsfreeze -f "$0" && echo stalled && read -r -t 60 _; fsfreeze -u "$0"'
        self.holder = subprocess.Popen(
            ["bash", "-c", script, self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.holder.stdout.readline() == b"stalled\n"

    def resume(self):
        if self.holder:
            self.holder.communicate()
            self.holder = None

    def __exit__(self, *_):
        self.resume()
        unmount(self.path)
