# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.basics_object``."""

from _hvd.basics_object import HorovodBasics

__all__ = ["HorovodBasics"]
