# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.functions``."""

from _hvd.process_sets import ProcessSet, global_process_set
from _hvd.tensorflow.functions import *
from _hvd.tensorflow.functions import __all__ as _functions
from _hvd.tensorflow.mpi_ops import allgather, broadcast, broadcast_

__all__ = ["ProcessSet", "allgather", "broadcast", "broadcast_", "global_process_set", *_functions]
