# SPDX-License-Identifier: Apache-2.0
"""Names of ``_hvd.tensorflow.mpi_ops`` and the common functions."""

from _hvd.basics import *
from _hvd.basics import __all__ as _basics
from _hvd.process_sets import global_process_set
from _hvd.tensorflow.mpi_ops import *
from _hvd.tensorflow.mpi_ops import __all__ as _ops

__all__ = ["global_process_set", *_basics, *_ops]
