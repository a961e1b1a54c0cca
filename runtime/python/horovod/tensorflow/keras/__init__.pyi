# SPDX-License-Identifier: Apache-2.0
from typing import Any, Mapping, Sequence, TypeAlias, TypeVar

from horovod import __version__ as __version__
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.common.exceptions import HostsUpdatedInterrupt as HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet as ProcessSet
from horovod.common.process_sets import add_process_set as add_process_set
from horovod.common.process_sets import global_process_set as global_process_set
from horovod.common.process_sets import remove_process_set as remove_process_set
from horovod.tensorflow.compression import Compression as Compression
from horovod.tensorflow.compression import Compressor, _HasCompress
from horovod.tensorflow.keras import callbacks as callbacks
from horovod.tensorflow.keras import elastic as elastic
from horovod.tensorflow.mpi_ops import Adasum as Adasum
from horovod.tensorflow.mpi_ops import Average as Average
from horovod.tensorflow.mpi_ops import Max as Max
from horovod.tensorflow.mpi_ops import Min as Min
from horovod.tensorflow.mpi_ops import Product as Product
from horovod.tensorflow.mpi_ops import Sum as Sum
from horovod.tensorflow.mpi_ops import ccl_built as ccl_built
from horovod.tensorflow.mpi_ops import cross_rank as cross_rank
from horovod.tensorflow.mpi_ops import cross_size as cross_size
from horovod.tensorflow.mpi_ops import cuda_built as cuda_built
from horovod.tensorflow.mpi_ops import ddl_built as ddl_built
from horovod.tensorflow.mpi_ops import gloo_built as gloo_built
from horovod.tensorflow.mpi_ops import gloo_enabled as gloo_enabled
from horovod.tensorflow.mpi_ops import init as init
from horovod.tensorflow.mpi_ops import is_homogeneous as is_homogeneous
from horovod.tensorflow.mpi_ops import is_initialized as is_initialized
from horovod.tensorflow.mpi_ops import local_rank as local_rank
from horovod.tensorflow.mpi_ops import local_size as local_size
from horovod.tensorflow.mpi_ops import mpi_built as mpi_built
from horovod.tensorflow.mpi_ops import mpi_enabled as mpi_enabled
from horovod.tensorflow.mpi_ops import mpi_threads_supported as mpi_threads_supported
from horovod.tensorflow.mpi_ops import nccl_built as nccl_built
from horovod.tensorflow.mpi_ops import progress as progress
from horovod.tensorflow.mpi_ops import rank as rank
from horovod.tensorflow.mpi_ops import rocm_built as rocm_built
from horovod.tensorflow.mpi_ops import shutdown as shutdown
from horovod.tensorflow.mpi_ops import size as size
from horovod.tensorflow.mpi_ops import start_timeline as start_timeline
from horovod.tensorflow.mpi_ops import stop_timeline as stop_timeline

_O = TypeVar("_O")
_Compression: TypeAlias = type[Compressor] | _HasCompress

# Of the class of the given optimizer.
def DistributedOptimizer(
    optimizer: _O,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: _Compression = ...,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = 0,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = ...,
    scale_local_gradients: bool = True,
) -> _O: ...
def broadcast_global_variables(root_rank: int) -> Any: ...

# value: a number, a list, an array or a tensor; what comes back is a tensor, in graphs an array.
def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: _Compression = ...,
) -> Any: ...
def allgather(value: Any, name: str | None = None) -> Any: ...
def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any: ...
def reducescatter(value: Any, name: str | None = None, op: int = 0) -> Any: ...
def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: _Compression = ...,
    legacy_opts: bool = False,
) -> Any: ...
