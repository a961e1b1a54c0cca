# SPDX-License-Identifier: Apache-2.0
"""``import horovod.keras as hvd``: names of ``_hvd.keras.standalone``."""

from _hvd.keras.standalone import *
from _hvd.keras.standalone import __all__, __version__

from horovod.keras import callbacks, elastic
