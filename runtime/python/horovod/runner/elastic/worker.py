# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.elastic``."""

from _hvd.elastic import HostUpdateResult, WorkerNotificationManager

__all__ = ["HostUpdateResult", "WorkerNotificationManager"]
