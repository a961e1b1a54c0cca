# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.functions``."""

from _hvd.torch.functions import *
from _hvd.torch.functions import __all__
