# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.torch.mpi_ops`` and the common functions, as Horovod's module of this name has."""

from _hvd.basics import *
from _hvd.basics import __all__ as _basics
from _hvd.process_sets import global_process_set
from _hvd.torch.mpi_ops import *
from _hvd.torch.mpi_ops import (
    HorovodAllgather,
    HorovodAllreduce,
    HorovodBroadcast,
)
from _hvd.torch.mpi_ops import __all__ as _ops

__all__ = [
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodBroadcast",
    "global_process_set",
    *_basics,
    *_ops,
]
