# SPDX-License-Identifier: Apache-2.0
"""Which files belong to libraries, and not to the program that the user wrote."""

import contextlib
import functools
import os
import site
import sysconfig


@functools.lru_cache(maxsize=1)
def _folders():
    folders = [sysconfig.get_path("stdlib"), os.path.dirname(os.__file__), os.path.dirname(__file__)]
    for name in ("purelib", "platlib"):
        folders.append(sysconfig.get_path(name))
    with contextlib.suppress(AttributeError):  # an older virtualenv
        folders += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({os.path.join(folder, "") for folder in folders if folder})


def is_library(file):
    """Whether a file, by its name in a code object, is Python's, an installed package's or ours."""
    return file.startswith(("<frozen ", *_folders()))
