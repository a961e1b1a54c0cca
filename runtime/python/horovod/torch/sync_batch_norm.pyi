# SPDX-License-Identifier: Apache-2.0
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common.process_sets import ProcessSet

_M = TypeVar("_M", bound=torch.nn.Module)

class SyncBatchNorm(_BatchNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = ...,
        **options: Any,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...
    @classmethod
    def convert_sync_batchnorm(cls, module: _M, process_set: ProcessSet = ...) -> _M: ...

def convert_sync_batchnorm(module: _M, process_set: ProcessSet = ...) -> _M: ...
