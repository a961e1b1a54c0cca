# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.exceptions``."""

from _hvd.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    get_version_mismatch_message,
)

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]
