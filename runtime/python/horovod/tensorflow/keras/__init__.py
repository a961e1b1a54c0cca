# SPDX-License-Identifier: Apache-2.0
"""``import horovod.tensorflow.keras as hvd``: names of ``_hvd.keras.of_tensorflow``."""

from _hvd.keras.of_tensorflow import *
from _hvd.keras.of_tensorflow import __all__, __version__

from horovod.tensorflow.keras import callbacks, elastic
