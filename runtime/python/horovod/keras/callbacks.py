# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.keras.standalone.callbacks``."""

from _hvd.keras.standalone.callbacks import *
from _hvd.keras.standalone.callbacks import __all__
