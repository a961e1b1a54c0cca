# SPDX-License-Identifier: Apache-2.0
"""``import horovod.tensorflow as hvd``: names of ``_hvd.tensorflow``."""

from _hvd.tensorflow import *
from _hvd.tensorflow import __all__, __version__
