# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.mpi_ops`` and the common functions, as Horovod's module of this name has."""

from _hvd import basics as _basics
from _hvd.basics import *
from _hvd.basics import __all__ as _common
from _hvd.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from _hvd.tensorflow.mpi_ops import *
from _hvd.tensorflow.mpi_ops import __all__ as _ops
from _hvd.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _normalize_name,
    _reducescatter,
)
from _hvd.util import handle_average_backwards_compatibility

__all__ = [
    "ProcessSet",
    "add_process_set",
    "global_process_set",
    "handle_average_backwards_compatibility",
    "remove_process_set",
    *_common,
    *_ops,
]
