# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.mpi_ops`` and the common functions, as Horovod's module of this name has."""

from _hvd import basics as _basics
from _hvd.basics import *
from _hvd.basics import __all__ as _common
from _hvd.exceptions import HorovodInternalError
from _hvd.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from _hvd.torch.autograd import (
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
from _hvd.torch.compression import Compression
from _hvd.torch.mpi_ops import *
from _hvd.torch.mpi_ops import __all__ as _ops
from _hvd.util import (
    get_average_backwards_compatibility_fun,
    handle_average_backwards_compatibility,
    num_rank_is_power_2,
)

__all__ = [
    "Compression",
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodInternalError",
    "HorovodReducescatter",
    "ProcessSet",
    "add_process_set",
    "get_average_backwards_compatibility_fun",
    "global_process_set",
    "handle_average_backwards_compatibility",
    "num_rank_is_power_2",
    "remove_process_set",
    *_common,
    *_ops,
]
