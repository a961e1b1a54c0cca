# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Mapping, TypeVar

import torch

from horovod.common.elastic import run_fn as run_fn
from horovod.torch.elastic.sampler import ElasticSampler as ElasticSampler
from horovod.torch.elastic.state import TorchState as TorchState
from horovod.torch.mpi_ops import init as init
from horovod.torch.mpi_ops import shutdown as shutdown

_F = TypeVar("_F", bound=Callable[..., Any])

class StateLostError(RuntimeError): ...

class ShardedState(TorchState):
    def __init__(
        self,
        save_parts: Callable[[], Mapping[int | str, Any]],
        load_parts: Callable[[dict[Any, Any]], object],
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None: ...

def run(func: _F) -> _F: ...
