# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.threads``."""

from _hvd.threads import execute_function_multithreaded, in_thread, on_event

__all__ = ["execute_function_multithreaded", "in_thread", "on_event"]
