# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet

class LocalGradientAggregationHelperEager:
    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Any],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = ...,
        scale_local_gradients: bool = True,
    ) -> None: ...
    def register_local_var(self, var: tf.Variable) -> None: ...
    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[tf.Variable]) -> list[Any]: ...
    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any: ...
