# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Iterable, TypeVar

import tensorflow as tf

from horovod.common.process_sets import ProcessSet as ProcessSet
from horovod.common.process_sets import global_process_set as global_process_set
from horovod.tensorflow.mpi_ops import allgather as allgather
from horovod.tensorflow.mpi_ops import broadcast as broadcast
from horovod.tensorflow.mpi_ops import broadcast_ as broadcast_

_T = TypeVar("_T")

# session: a tf.compat.v1.Session. In graphs the result is the operation to run.
def broadcast_variables(
    variables: Iterable[tf.Variable],
    root_rank: int,
    process_set: ProcessSet = ...,
    inplace: bool = False,
) -> Any: ...
def broadcast_global_variables(root_rank: int) -> Any: ...
def broadcast_object(
    obj: _T,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = ...,
) -> _T: ...
def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = ...
) -> Callable[[Any], Any]: ...
def allgather_object(
    obj: _T, session: Any = None, name: str | None = None, process_set: ProcessSet = ...
) -> list[_T]: ...
