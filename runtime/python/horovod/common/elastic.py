# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.elastic``."""

from _hvd.elastic import ObjectState, State, notification_manager, run_fn

__all__ = ["ObjectState", "State", "notification_manager", "run_fn"]
