# SPDX-License-Identifier: Apache-2.0
"""``import horovod.torch.distributed`` makes ``init_process_group("hvd")`` known; names of
``_hvd.torch.distributed``."""

from _hvd.torch.distributed import HvdProcessGroup, HvdWork, register

__all__ = ["HvdProcessGroup", "HvdWork", "register"]
