# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there: written beside their name, synced to the disk, then renamed.

Called by State.save_to() in elastic.py.
"""

import contextlib
import os


def _sync_folder(path):
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write(path, write_to):
    """write_to(file) writes the content; when this returns, it has survived a loss of power."""
    path = os.fspath(path)
    partial = f"{path}.new"
    try:
        with open(partial, "wb") as file:
            write_to(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    _sync_folder(path)
