# SPDX-License-Identifier: Apache-2.0
from typing import Any, Iterable, Sequence, TypeAlias, TypeVar, overload

import tensorflow as tf

from horovod import __version__ as __version__
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.common.exceptions import HostsUpdatedInterrupt as HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet as ProcessSet
from horovod.common.process_sets import add_process_set as add_process_set
from horovod.common.process_sets import global_process_set as global_process_set
from horovod.common.process_sets import remove_process_set as remove_process_set
from horovod.common.util import check_extension as check_extension
from horovod.common.util import gpu_available as gpu_available
from horovod.common.util import split_list as split_list
from horovod.tensorflow import compression as compression
from horovod.tensorflow import elastic as elastic
from horovod.tensorflow import functions as functions
from horovod.tensorflow import gradient_aggregation as gradient_aggregation
from horovod.tensorflow import gradient_aggregation_eager as gradient_aggregation_eager
from horovod.tensorflow import mpi_ops as mpi_ops
from horovod.tensorflow import util as util
from horovod.tensorflow.compression import Compression as Compression
from horovod.tensorflow.compression import Compressor, _HasCompress
from horovod.tensorflow.functions import allgather_object as allgather_object
from horovod.tensorflow.functions import broadcast_global_variables as broadcast_global_variables
from horovod.tensorflow.functions import broadcast_object as broadcast_object
from horovod.tensorflow.functions import broadcast_object_fn as broadcast_object_fn
from horovod.tensorflow.functions import broadcast_variables as broadcast_variables
from horovod.tensorflow.gradient_aggregation import (
    LocalGradientAggregationHelper as LocalGradientAggregationHelper,
)
from horovod.tensorflow.mpi_ops import Adasum as Adasum
from horovod.tensorflow.mpi_ops import Average as Average
from horovod.tensorflow.mpi_ops import Max as Max
from horovod.tensorflow.mpi_ops import Min as Min
from horovod.tensorflow.mpi_ops import Product as Product
from horovod.tensorflow.mpi_ops import Sum as Sum
from horovod.tensorflow.mpi_ops import allgather as allgather
from horovod.tensorflow.mpi_ops import alltoall as alltoall
from horovod.tensorflow.mpi_ops import barrier as barrier
from horovod.tensorflow.mpi_ops import broadcast as broadcast
from horovod.tensorflow.mpi_ops import broadcast_ as broadcast_
from horovod.tensorflow.mpi_ops import ccl_built as ccl_built
from horovod.tensorflow.mpi_ops import check_num_rank_power_of_2 as check_num_rank_power_of_2
from horovod.tensorflow.mpi_ops import completion_mode as completion_mode
from horovod.tensorflow.mpi_ops import cross_rank as cross_rank
from horovod.tensorflow.mpi_ops import cross_size as cross_size
from horovod.tensorflow.mpi_ops import cuda_built as cuda_built
from horovod.tensorflow.mpi_ops import ddl_built as ddl_built
from horovod.tensorflow.mpi_ops import gloo_built as gloo_built
from horovod.tensorflow.mpi_ops import gloo_enabled as gloo_enabled
from horovod.tensorflow.mpi_ops import grouped_allgather as grouped_allgather
from horovod.tensorflow.mpi_ops import (
    handle_average_backwards_compatibility as handle_average_backwards_compatibility,
)
from horovod.tensorflow.mpi_ops import init as init
from horovod.tensorflow.mpi_ops import is_homogeneous as is_homogeneous
from horovod.tensorflow.mpi_ops import is_initialized as is_initialized
from horovod.tensorflow.mpi_ops import join as join
from horovod.tensorflow.mpi_ops import local_rank as local_rank
from horovod.tensorflow.mpi_ops import local_rank_op as local_rank_op
from horovod.tensorflow.mpi_ops import local_size as local_size
from horovod.tensorflow.mpi_ops import local_size_op as local_size_op
from horovod.tensorflow.mpi_ops import mpi_built as mpi_built
from horovod.tensorflow.mpi_ops import mpi_enabled as mpi_enabled
from horovod.tensorflow.mpi_ops import mpi_threads_supported as mpi_threads_supported
from horovod.tensorflow.mpi_ops import nccl_built as nccl_built
from horovod.tensorflow.mpi_ops import process_set_included_op as process_set_included_op
from horovod.tensorflow.mpi_ops import progress as progress
from horovod.tensorflow.mpi_ops import rank as rank
from horovod.tensorflow.mpi_ops import rank_op as rank_op
from horovod.tensorflow.mpi_ops import rocm_built as rocm_built
from horovod.tensorflow.mpi_ops import shutdown as shutdown
from horovod.tensorflow.mpi_ops import size as size
from horovod.tensorflow.mpi_ops import size_op as size_op
from horovod.tensorflow.mpi_ops import start_timeline as start_timeline
from horovod.tensorflow.mpi_ops import stop_timeline as stop_timeline
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization as SyncBatchNormalization
from horovod.tensorflow.util import _cache as _cache
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly
from horovod.tensorflow.util import _make_subgraph as _make_subgraph
from horovod.tensorflow.util import refs_to_vars as refs_to_vars
from horovod.tensorflow.util import vars_to_refs as vars_to_refs

_T = TypeVar("_T")
_O = TypeVar("_O")
_Compression: TypeAlias = type[Compressor] | _HasCompress
_Groups: TypeAlias = int | Sequence[Sequence[tf.Variable]] | None

# tensor: a tf.Tensor, a tf.Variable or what tf.convert_to_tensor takes; slices give slices.
@overload
def allreduce(
    tensor: tf.IndexedSlices,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: _Compression = ...,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = ...,
    ignore_name_scope: bool = False,
) -> tf.IndexedSlices: ...
@overload
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: _Compression = ...,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = ...,
    ignore_name_scope: bool = False,
) -> tf.Tensor: ...
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: _Compression = ...,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]: ...
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: _Compression = ...,
    op: int = 0,
    name: str | None = None,
    process_set: ProcessSet = ...,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor: ...
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: _Compression = ...,
    op: int = 0,
    process_set: ProcessSet = ...,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]: ...

# A tf.compat.v1.train.SessionRunHook.
class BroadcastGlobalVariablesHook:
    def __init__(self, root_rank: int, device: str = "") -> None: ...
    def begin(self) -> None: ...
    def after_create_session(self, session: Any, coord: Any) -> None: ...

# As BroadcastGlobalVariablesHook a tf.compat.v1.train.SessionRunHook.
class MetricAverageHook:
    def __init__(self, metrics: Any, every_n: int = 100, process_set: ProcessSet = ...) -> None: ...
    def begin(self) -> None: ...
    def before_run(self, run_context: Any) -> Any: ...
    def after_run(self, run_context: Any, run_values: Any) -> None: ...
    def end(self, session: Any) -> None: ...

# What DistributedGradientTape() returns has these besides the class of the tape it was given.
class _DistributedGradientTape(tf.GradientTape):
    def register_local_source(self, source: tf.Variable) -> None: ...
    def register_local_var(self, source: tf.Variable) -> None: ...
    # Refused: call them of the tape that was wrapped.
    def jacobian(self, *args: Any, **kwargs: Any) -> Any: ...
    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any: ...
    def gradient(  # type: ignore[override,unused-ignore]
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = ...,
    ) -> Any: ...
    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]: ...

def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: _Compression = ...,
    sparse_as_dense: bool = False,
    op: int = 0,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: _Groups = None,
    process_set: ProcessSet = ...,
    scale_local_gradients: bool = True,
) -> _DistributedGradientTape: ...
def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: _Compression = ...,
    sparse_as_dense: bool = False,
    op: int = 0,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: _Groups = None,
    process_set: ProcessSet = ...,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> _DistributedGradientTape: ...

# variables: those of TensorFlow or Keras.
def check_replicas(variables: Iterable[Any], process_set: ProcessSet = ...) -> None: ...

# Of the given optimizer's class where that is Keras's, else a tf.compat.v1.train.Optimizer.
def DistributedOptimizer(
    optimizer: _O,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: _Compression = ...,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = 0,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: _Groups = None,
    process_set: ProcessSet = ...,
    scale_local_gradients: bool = True,
) -> _O: ...
