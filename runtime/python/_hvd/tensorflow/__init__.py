# SPDX-License-Identifier: Apache-2.0
"""``import horovod.tensorflow as hvd``: everything of it.

- mpi_ops.py: the raw operations and their gradients
- reductions.py: allreduce and reducescatter, with compression, IndexedSlices and averages
- functions.py: variables and objects of one rank for all
- gradients.py, aggregation.py: DistributedGradientTape, and what optimizers share with it
- optimizer_v1.py, hooks.py: TensorFlow 1's optimizers and sessions
- sync_batch_norm.py, elastic.py: batch normalization and elastic states
"""

from _hvd import __version__, frameworks

frameworks.need("tensorflow", "horovod.tensorflow")

from _hvd.basics import *
from _hvd.basics import __all__ as _basics
from _hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from _hvd.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from _hvd.tensorflow import (
    elastic,
    functions,
    gradients,
    hooks,
    mpi_ops,
    optimizer_v1,
    reductions,
    sync_batch_norm,
    util,
)
from _hvd.tensorflow.aggregation import LocalGradientAggregationHelper
from _hvd.tensorflow.compression import Compression
from _hvd.tensorflow.functions import *
from _hvd.tensorflow.gradients import *
from _hvd.tensorflow.hooks import *
from _hvd.tensorflow.mpi_ops import *
from _hvd.tensorflow.optimizer_v1 import *
from _hvd.tensorflow.reductions import *
from _hvd.tensorflow.replica import check_replicas
from _hvd.tensorflow.sync_batch_norm import *
from _hvd.tensorflow.util import *
from _hvd.util import (
    check_extension,
    gpu_available,
    handle_average_backwards_compatibility,
    split_list,
)

__all__ = sorted(
    {
        "__version__",
        "Compression",
        "HorovodInternalError",
        "HostsUpdatedInterrupt",
        "LocalGradientAggregationHelper",
        "ProcessSet",
        "add_process_set",
        "check_extension",
        "check_replicas",
        "elastic",
        "global_process_set",
        "gpu_available",
        "handle_average_backwards_compatibility",
        "remove_process_set",
        "split_list",
        *_basics,
        *functions.__all__,
        *gradients.__all__,
        *hooks.__all__,
        *mpi_ops.__all__,
        *optimizer_v1.__all__,
        *reductions.__all__,
        *sync_batch_norm.__all__,
        *util.__all__,
    }
)
