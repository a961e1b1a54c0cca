# SPDX-License-Identifier: Apache-2.0
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, Protocol, Sequence, SupportsIndex, overload

import torch
from torch import Tensor

from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.common.process_sets import ProcessSet as ProcessSet
from horovod.common.process_sets import add_process_set as add_process_set
from horovod.common.process_sets import global_process_set as global_process_set
from horovod.common.process_sets import remove_process_set as remove_process_set
from horovod.common.util import (
    get_average_backwards_compatibility_fun as get_average_backwards_compatibility_fun,
)
from horovod.common.util import num_rank_is_power_2 as num_rank_is_power_2
from horovod.torch.compression import Compression as Compression
from horovod.torch.compression import Compressor

# A class or an object of the user's may be passed as compression.
class _HasCompress(Protocol):
    def compress(self, tensor: Tensor, /) -> tuple[Tensor, Any]: ...
    def decompress(self, tensor: Tensor, ctx: Any, /) -> Tensor: ...

Average: int
Sum: int
Adasum: int
Min: int
Max: int
Product: int

def init(
    comm: Iterable[int] | None = None, process_sets: str | Sequence[ProcessSet] | None = None
) -> None: ...
def shutdown() -> None: ...
def is_initialized() -> bool: ...
def start_timeline(file_path: str, mark_cycles: bool = False) -> None: ...
def stop_timeline() -> None: ...
def progress(
    step: SupportsIndex | None = None,
    total: SupportsIndex | None = None,
    epoch: SupportsIndex | None = None,
    epochs: SupportsIndex | None = None,
    samples: SupportsIndex | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> None: ...
def size() -> int: ...
def local_size() -> int: ...
def cross_size() -> int: ...
def rank() -> int: ...
def local_rank() -> int: ...
def cross_rank() -> int: ...
def is_homogeneous() -> bool: ...
def mpi_threads_supported() -> bool: ...
def mpi_enabled() -> bool: ...
def mpi_built() -> bool: ...
def gloo_enabled() -> bool: ...
def gloo_built() -> bool: ...
def nccl_built() -> int: ...
def ddl_built() -> bool: ...
def ccl_built() -> bool: ...
def cuda_built() -> bool: ...
def rocm_built() -> bool: ...
def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int: ...
def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] | _HasCompress = ...,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
) -> Tensor: ...
def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
) -> Tensor: ...
def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
    *,
    compression: type[Compressor] | _HasCompress | None = None,
) -> int: ...
def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
) -> int: ...
def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] | _HasCompress = ...,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
) -> list[Tensor]: ...
def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
) -> tuple[Tensor, ...]: ...
def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
    *,
    compression: type[Compressor] | _HasCompress | None = None,
) -> int: ...
def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
) -> int: ...
def sparse_allreduce_async(
    tensor: Tensor, name: str | None = None, op: int | None = None, process_set: ProcessSet = ...
) -> Callable[[], Tensor]: ...
def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet = ...) -> Tensor: ...
def allgather_async(tensor: Tensor, name: str | None = None, process_set: ProcessSet = ...) -> int: ...
def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = ...
) -> tuple[Tensor, ...]: ...
def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = ...
) -> int: ...
def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = ...
) -> Tensor: ...
def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = ...
) -> Tensor: ...
def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = ...
) -> int: ...
def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = ...
) -> int: ...
@overload
def alltoall(
    tensor: Tensor, splits: None = None, name: str | None = None, process_set: ProcessSet = ...
) -> Tensor: ...
@overload
def alltoall(
    tensor: Tensor, splits: Tensor | Sequence[int], name: str | None = None, process_set: ProcessSet = ...
) -> tuple[Tensor, Tensor]: ...
def alltoall_async(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = ...,
) -> int: ...
def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] | _HasCompress = ...,
    op: int = 0,
    process_set: ProcessSet = ...,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor: ...
def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = 0,
    process_set: ProcessSet = ...,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int: ...
def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] | _HasCompress = ...,
    op: int = 0,
    process_set: ProcessSet = ...,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]: ...
def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = 0,
    process_set: ProcessSet = ...,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int: ...
def reduce(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    op: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
) -> Tensor: ...
def reduce_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    op: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = ...,
) -> int: ...
def gather(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = ...
) -> Tensor: ...
def gather_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = ...
) -> int: ...
def send(tensor: Tensor, dst_rank: int, name: str | None = None) -> Tensor: ...
def send_async(tensor: Tensor, dst_rank: int, name: str | None = None) -> int: ...
def recv(tensor: Tensor, src_rank: int, name: str | None = None) -> Tensor: ...
def recv_(tensor: Tensor, src_rank: int, name: str | None = None) -> Tensor: ...
def recv_async(tensor: Tensor, src_rank: int, name: str | None = None) -> int: ...
def recv_async_(tensor: Tensor, src_rank: int, name: str | None = None) -> int: ...

class RegisteredBuffer:
    tensor: Tensor
    process_set: ProcessSet
    problem: str
    def __init__(self, tensor: Tensor, process_set: ProcessSet, problem: str) -> None: ...
    @property
    def is_registered(self) -> bool: ...
    def deregister(self) -> None: ...
    def __enter__(self) -> RegisteredBuffer: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

def register_buffer(tensor: Tensor, process_set: ProcessSet = ...) -> RegisteredBuffer: ...
def poll(handle: int) -> bool: ...
def synchronize(handle: int) -> Any: ...
def join(device: int = -1) -> int: ...
def barrier(process_set: ProcessSet = ...) -> None: ...

class HorovodAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: Any,
        average: Any,
        name: Any,
        op: Any,
        prescale_factor: Any,
        postscale_factor: Any,
        process_set: Any,
    ) -> Any: ...
    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any: ...

class HorovodGroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        average: Any,
        name: Any,
        op: Any,
        prescale_factor: Any,
        postscale_factor: Any,
        process_set: Any,
        *tensors: Any,
    ) -> Any: ...
    @staticmethod
    def backward(ctx: Any, *grad_output: Any) -> Any: ...

class HorovodAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, name: Any, process_set: Any) -> Any: ...
    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any: ...

class HorovodGroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, process_set: Any, *tensors: Any) -> Any: ...
    @staticmethod
    def backward(ctx: Any, *grad_output: Any) -> Any: ...

class HorovodBroadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, root_rank: Any, name: Any, process_set: Any) -> Any: ...
    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any: ...

class HorovodAlltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, splits: Any, name: Any, process_set: Any) -> Any: ...
    @staticmethod
    def backward(ctx: Any, grad_output: Any, *dead_gradients: Any) -> Any: ...

class HorovodReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: Any,
        name: Any,
        op: Any,
        process_set: Any,
        prescale_factor: Any,
        postscale_factor: Any,
    ) -> Any: ...
    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any: ...

class HorovodGroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: Any,
        op: Any,
        process_set: Any,
        prescale_factor: Any,
        postscale_factor: Any,
        *tensors: Any,
    ) -> Any: ...
    @staticmethod
    def backward(ctx: Any, *grad_output: Any) -> Any: ...
