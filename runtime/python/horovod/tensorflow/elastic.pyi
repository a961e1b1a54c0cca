# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Sequence, TypeVar

import tensorflow as tf

from horovod.common.elastic import ObjectState as ObjectState

_F = TypeVar("_F", bound=Callable[..., Any])

class TensorFlowKerasState(ObjectState):
    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None: ...

class TensorFlowState(ObjectState):
    def __init__(
        self, variables: Sequence[tf.Variable] | None = None, session: Any = None, **kwargs: Any
    ) -> None: ...

def run(func: _F) -> _F: ...
