# SPDX-License-Identifier: Apache-2.0
"""``import horovod.torch as hvd``: everything of it."""

from _hvd import __version__, frameworks

frameworks.need("torch", "horovod.torch")

from _hvd.basics import *
from _hvd.basics import __all__ as _basics
from _hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from _hvd.gpu import hint_at_wheel
from _hvd.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from _hvd.torch import elastic
from _hvd.torch.compression import Compression
from _hvd.torch.dynamo import hide_from_dynamo
from _hvd.torch.functions import *
from _hvd.torch.functions import __all__ as _functions
from _hvd.torch.guarding import Guard, guard
from _hvd.torch.memory import use_huge_pages
from _hvd.torch.mpi_ops import *
from _hvd.torch.mpi_ops import __all__ as _ops
from _hvd.torch.optimizer import DistributedOptimizer
from _hvd.torch.replica import check_replicas
from _hvd.torch.sync_batch_norm import SyncBatchNorm, convert_sync_batchnorm

hide_from_dynamo()
use_huge_pages()
hint_at_wheel()

__all__ = sorted(
    [
        "__version__",
        "Compression",
        "DistributedOptimizer",
        "Guard",
        "HorovodInternalError",
        "HostsUpdatedInterrupt",
        "ProcessSet",
        "SyncBatchNorm",
        "add_process_set",
        "check_replicas",
        "convert_sync_batchnorm",
        "elastic",
        "global_process_set",
        "guard",
        "remove_process_set",
        *_basics,
        *_functions,
        *_ops,
    ]
)
