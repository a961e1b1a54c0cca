# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.keras.of_tensorflow.callbacks``."""

from _hvd.keras.of_tensorflow.callbacks import *
from _hvd.keras.of_tensorflow.callbacks import __all__
