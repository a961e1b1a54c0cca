# SPDX-License-Identifier: Apache-2.0
from typing import Any

import keras  # type: ignore[import-untyped,unused-ignore]

from horovod.common.elastic import State
from horovod.tensorflow.elastic import TensorFlowKerasState as TensorFlowKerasState
from horovod.tensorflow.elastic import run as run

class KerasState(TensorFlowKerasState):
    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None: ...

class CommitStateCallback(keras.callbacks.Callback):
    def __init__(self, state: State, batches_per_commit: int = 1) -> None: ...
    def commit(self) -> None: ...

class UpdateBatchStateCallback(keras.callbacks.Callback):
    def __init__(self, state: State) -> None: ...

class UpdateEpochStateCallback(keras.callbacks.Callback):
    def __init__(self, state: State) -> None: ...
