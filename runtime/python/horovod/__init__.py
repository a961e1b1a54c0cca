# SPDX-License-Identifier: Apache-2.0
"""Horovod's names over Ringmaster's runtime; the code is in ``_hvd``."""

from _hvd import __version__
from _hvd.absent import absent_function

run = absent_function("horovod", "run", "start the script with horovodrun -np N python script.py")

__all__ = ["__version__", "run"]
