# SPDX-License-Identifier: Apache-2.0
"""``from horovod.runner import run``."""

from _hvd.run import run

__all__ = ["run"]
