# SPDX-License-Identifier: Apache-2.0
"""Refuses to run when real Horovod's files are in the same directory as ours.

Two cases look alike and are not:

* Ours comes first on the path (``PYTHONPATH`` in a pod) and real Horovod sits in the image's
  site-packages: only ours is imported, which is what the user chose.
* Both were installed by pip into one site-packages: both own ``horovod/__init__.py``, the later one
  has overwritten files of the earlier one, and what would run is a mixture. That is refused.
"""

import glob
import os

MIXED = (
    "Ringmaster's horovod and the package horovod {found} are both installed in {where} and "
    "overwrite each other's files; remove both and install one: "
    "pip uninstall -y horovod ringmaster-horovod && pip install ringmaster-horovod"
)


def find_real_horovod(directory):
    """Version of a real Horovod installed in this directory, or None."""
    for pattern in ("horovod-*.dist-info", "horovod-*.egg-info"):
        for path in sorted(glob.glob(os.path.join(glob.escape(directory), pattern))):
            return os.path.basename(path)[len("horovod-") :].rsplit(".", 1)[0]
    return None


def refuse_mixed_install(directory=None):
    """Raises ImportError when real Horovod is installed in the same directory."""
    where = directory or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = find_real_horovod(where)
    if found is not None:
        raise ImportError(MIXED.format(found=found, where=where))
