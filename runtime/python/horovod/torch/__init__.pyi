# SPDX-License-Identifier: Apache-2.0
from typing import Any, Iterable, Mapping

import torch
from torch import Tensor

from horovod import __version__ as __version__
from horovod.common.exceptions import (
    HorovodInternalError as HorovodInternalError,
)
from horovod.common.exceptions import (
    HostsUpdatedInterrupt as HostsUpdatedInterrupt,
)
from horovod.common.process_sets import (
    ProcessSet as ProcessSet,
)
from horovod.common.process_sets import (
    add_process_set as add_process_set,
)
from horovod.common.process_sets import (
    global_process_set as global_process_set,
)
from horovod.common.process_sets import (
    remove_process_set as remove_process_set,
)
from horovod.torch import elastic as elastic
from horovod.torch import sync_batch_norm as sync_batch_norm
from horovod.torch.compression import (
    Compression as Compression,
)
from horovod.torch.functions import (
    allgather_object as allgather_object,
)
from horovod.torch.functions import (
    broadcast_object as broadcast_object,
)
from horovod.torch.functions import (
    broadcast_optimizer_state as broadcast_optimizer_state,
)
from horovod.torch.functions import (
    broadcast_parameters as broadcast_parameters,
)
from horovod.torch.mpi_ops import (
    Adasum as Adasum,
)
from horovod.torch.mpi_ops import (
    Average as Average,
)
from horovod.torch.mpi_ops import (
    Max as Max,
)
from horovod.torch.mpi_ops import (
    Min as Min,
)
from horovod.torch.mpi_ops import (
    Product as Product,
)
from horovod.torch.mpi_ops import (
    RegisteredBuffer as RegisteredBuffer,
)
from horovod.torch.mpi_ops import (
    Sum as Sum,
)
from horovod.torch.mpi_ops import (
    allgather as allgather,
)
from horovod.torch.mpi_ops import (
    allgather_async as allgather_async,
)
from horovod.torch.mpi_ops import (
    allreduce as allreduce,
)
from horovod.torch.mpi_ops import (
    allreduce_ as allreduce_,
)
from horovod.torch.mpi_ops import (
    allreduce_async as allreduce_async,
)
from horovod.torch.mpi_ops import (
    allreduce_async_ as allreduce_async_,
)
from horovod.torch.mpi_ops import (
    alltoall as alltoall,
)
from horovod.torch.mpi_ops import (
    alltoall_async as alltoall_async,
)
from horovod.torch.mpi_ops import (
    barrier as barrier,
)
from horovod.torch.mpi_ops import (
    broadcast as broadcast,
)
from horovod.torch.mpi_ops import (
    broadcast_ as broadcast_,
)
from horovod.torch.mpi_ops import (
    broadcast_async as broadcast_async,
)
from horovod.torch.mpi_ops import (
    broadcast_async_ as broadcast_async_,
)
from horovod.torch.mpi_ops import (
    ccl_built as ccl_built,
)
from horovod.torch.mpi_ops import (
    cross_rank as cross_rank,
)
from horovod.torch.mpi_ops import (
    cross_size as cross_size,
)
from horovod.torch.mpi_ops import (
    cuda_built as cuda_built,
)
from horovod.torch.mpi_ops import (
    ddl_built as ddl_built,
)
from horovod.torch.mpi_ops import (
    gather as gather,
)
from horovod.torch.mpi_ops import (
    gather_async as gather_async,
)
from horovod.torch.mpi_ops import (
    gloo_built as gloo_built,
)
from horovod.torch.mpi_ops import (
    gloo_enabled as gloo_enabled,
)
from horovod.torch.mpi_ops import (
    grouped_allgather as grouped_allgather,
)
from horovod.torch.mpi_ops import (
    grouped_allgather_async as grouped_allgather_async,
)
from horovod.torch.mpi_ops import (
    grouped_allreduce as grouped_allreduce,
)
from horovod.torch.mpi_ops import (
    grouped_allreduce_ as grouped_allreduce_,
)
from horovod.torch.mpi_ops import (
    grouped_allreduce_async as grouped_allreduce_async,
)
from horovod.torch.mpi_ops import (
    grouped_allreduce_async_ as grouped_allreduce_async_,
)
from horovod.torch.mpi_ops import (
    grouped_reducescatter as grouped_reducescatter,
)
from horovod.torch.mpi_ops import (
    grouped_reducescatter_async as grouped_reducescatter_async,
)
from horovod.torch.mpi_ops import (
    init as init,
)
from horovod.torch.mpi_ops import (
    is_homogeneous as is_homogeneous,
)
from horovod.torch.mpi_ops import (
    is_initialized as is_initialized,
)
from horovod.torch.mpi_ops import (
    join as join,
)
from horovod.torch.mpi_ops import (
    local_rank as local_rank,
)
from horovod.torch.mpi_ops import (
    local_size as local_size,
)
from horovod.torch.mpi_ops import (
    mpi_built as mpi_built,
)
from horovod.torch.mpi_ops import (
    mpi_enabled as mpi_enabled,
)
from horovod.torch.mpi_ops import (
    mpi_threads_supported as mpi_threads_supported,
)
from horovod.torch.mpi_ops import (
    nccl_built as nccl_built,
)
from horovod.torch.mpi_ops import (
    poll as poll,
)
from horovod.torch.mpi_ops import (
    progress as progress,
)
from horovod.torch.mpi_ops import (
    rank as rank,
)
from horovod.torch.mpi_ops import (
    recv as recv,
)
from horovod.torch.mpi_ops import (
    recv_ as recv_,
)
from horovod.torch.mpi_ops import (
    recv_async as recv_async,
)
from horovod.torch.mpi_ops import (
    recv_async_ as recv_async_,
)
from horovod.torch.mpi_ops import (
    reduce as reduce,
)
from horovod.torch.mpi_ops import (
    reduce_async as reduce_async,
)
from horovod.torch.mpi_ops import (
    reducescatter as reducescatter,
)
from horovod.torch.mpi_ops import (
    reducescatter_async as reducescatter_async,
)
from horovod.torch.mpi_ops import (
    register_buffer as register_buffer,
)
from horovod.torch.mpi_ops import (
    rocm_built as rocm_built,
)
from horovod.torch.mpi_ops import (
    send as send,
)
from horovod.torch.mpi_ops import (
    send_async as send_async,
)
from horovod.torch.mpi_ops import (
    shutdown as shutdown,
)
from horovod.torch.mpi_ops import (
    size as size,
)
from horovod.torch.mpi_ops import (
    sparse_allreduce_async as sparse_allreduce_async,
)
from horovod.torch.mpi_ops import (
    start_timeline as start_timeline,
)
from horovod.torch.mpi_ops import (
    stop_timeline as stop_timeline,
)
from horovod.torch.mpi_ops import (
    synchronize as synchronize,
)
from horovod.torch.optimizer import (
    DistributedOptimizer as DistributedOptimizer,
)
from horovod.torch.sync_batch_norm import (
    SyncBatchNorm as SyncBatchNorm,
)
from horovod.torch.sync_batch_norm import (
    convert_sync_batchnorm as convert_sync_batchnorm,
)

class Guard:
    every: int
    steps: int
    def __init__(self, of: Mapping[str, Any], every: int, name: str) -> None: ...
    def restore(self) -> int: ...
    def step(self) -> None: ...
    def wait(self) -> None: ...

def guard(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    every: int = 100,
    name: str = "default",
    **objects: Any,
) -> Guard: ...
def check_replicas(
    params: Mapping[str, Any] | Iterable[Tensor] | Iterable[tuple[str, Tensor]],
    process_set: ProcessSet = ...,
) -> None: ...
