# SPDX-License-Identifier: Apache-2.0
from contextlib import AbstractContextManager
from typing import Any, Callable, Iterable, Sequence

import torch
from torch import Tensor

from horovod.common.process_sets import ProcessSet
from horovod.torch.compression import Compressor
from horovod.torch.mpi_ops import _HasCompress

class _DistributedOptimizer(torch.optim.Optimizer):
    # What DistributedOptimizer() returns has these besides the class of the optimizer it was given.
    def synchronize(self) -> None: ...
    def skip_synchronize(self) -> AbstractContextManager[None]: ...
    def set_backward_passes_per_step(self, passes: int) -> None: ...
    def step(self, closure: Callable[[], Any] | None = None, *args: Any, **kwargs: Any) -> Any: ...
    def zero_grad(self, set_to_none: bool | None = None) -> None: ...

class _DistributedAdasumOptimizer(torch.optim.Optimizer):
    def synchronize(self) -> None: ...
    def skip_synchronize(self) -> AbstractContextManager[None]: ...
    def set_backward_passes_per_step(self, passes: int) -> None: ...
    def step(self, closure: Callable[[], Any] | None = None) -> Any: ...
    def zero_grad(self, set_to_none: bool | None = None) -> None: ...

def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: type[Compressor] | _HasCompress = ...,
    backward_passes_per_step: int = 1,
    op: int = 0,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = ...,
) -> _DistributedOptimizer: ...
