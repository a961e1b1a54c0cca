# SPDX-License-Identifier: Apache-2.0
from typing import Any, Iterable, Mapping, TypeVar

import torch
from torch import Tensor

from horovod.common.process_sets import ProcessSet

_T = TypeVar("_T")

def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Tensor] | Iterable[tuple[str, Tensor]],
    root_rank: int,
    process_set: ProcessSet = ...,
) -> None: ...
def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = ...,
) -> None: ...
def broadcast_object(
    obj: _T, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = ...
) -> _T: ...
def allgather_object(obj: _T, name: str | None = None, process_set: ProcessSet = ...) -> list[_T]: ...
