# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.timeouts``."""

from _hvd.timeouts import Timeout, TimeoutException

__all__ = ["Timeout", "TimeoutException"]
