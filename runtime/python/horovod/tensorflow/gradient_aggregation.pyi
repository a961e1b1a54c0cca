# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Iterable, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet

def apply_op_to_not_none_tensors(
    tensor_op: Callable[..., Any], tensors: Iterable[Any], *args: Any
) -> list[Any]: ...
def get_not_none_from_list(tensor_list: Iterable[Any]) -> list[Any]: ...

class LocalGradientAggregationHelper:
    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Any],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: str,
        process_set: ProcessSet = ...,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None: ...
    def register_local_var(self, var: tf.Variable) -> None: ...
    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[tf.Variable]) -> list[Any]: ...
    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any: ...
