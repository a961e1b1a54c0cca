# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.keras.of_tensorflow.elastic``."""

from _hvd.keras.of_tensorflow.elastic import *
from _hvd.keras.of_tensorflow.elastic import __all__
