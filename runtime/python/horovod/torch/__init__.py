# SPDX-License-Identifier: Apache-2.0
"""``import horovod.torch as hvd``: names of ``_hvd.torch``."""

from _hvd.torch import *
from _hvd.torch import __all__, __version__
