# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.keras.standalone.elastic``."""

from _hvd.keras.standalone.elastic import *
from _hvd.keras.standalone.elastic import __all__
