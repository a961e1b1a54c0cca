# SPDX-License-Identifier: Apache-2.0
"""AIACC Perseus' names over Ringmaster's runtime; the code is in ``_hvd``."""

from _hvd import __version__

__all__ = ["__version__"]
