# SPDX-License-Identifier: Apache-2.0
"""The torch.distributed back end "hvd": scripts for DDP, FSDP and the like run on this runtime.

    dist.init_process_group("hvd")
            |
    start.py      one world for both: hvd.init() if need be, ranks compared, process sets of groups
    group.py      HvdProcessGroup: torch's collectives ------> data.py   memory of tensors and lists
            |                                            '---> reduce.py what torch's reductions are
    work.py       HvdWork, what a collective returns: wait, futures
    operation.py  one submission to the runtime under its name; threads that wait for futures
            |
    _hvd.handles, _hvd._native

A subclass of torch.distributed.ProcessGroup in Python, through the trampoline that all versions from 1.13
on have: Python code calls it directly, C++ (DDP's reducer, functional collectives) by virtual functions.
Nothing is compiled against torch.
"""

from _hvd.torch.distributed.group import HvdProcessGroup
from _hvd.torch.distributed.work import HvdWork
from _hvd.torch_backend import register

register()

__all__ = ["HvdProcessGroup", "HvdWork", "register"]
