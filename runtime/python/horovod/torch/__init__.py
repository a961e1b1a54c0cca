# SPDX-License-Identifier: Apache-2.0
"""``import horovod.torch as hvd``: names of ``_hvd.torch``."""

from _hvd.torch import *
from _hvd.torch import __all__, __version__

import horovod.common.basics
import horovod.common.elastic
import horovod.common.exceptions
import horovod.common.process_sets
import horovod.common.util
from horovod.torch import compression, functions, mpi_ops, optimizer, sync_batch_norm
