# SPDX-License-Identifier: Apache-2.0
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Mapping, Sequence, TypeVar

_D = TypeVar("_D")

@dataclass(frozen=True)
class TfDataServiceConfig:
    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[tuple[str, int]]]
    key: bytes
    timeout: int = 60
    def __post_init__(self) -> None: ...
    def compute_client(self, verbose: int = 1) -> Any: ...
    def to_dict(self) -> Mapping[str, Any]: ...
    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig: ...
    def write(self, filename: str) -> None: ...
    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig: ...

def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> AbstractContextManager[str]: ...

# dataset: a tf.data.Dataset, which has this as a method too.
def send_to_data_service(
    dataset: _D,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> _D: ...
def compute_worker_fn(compute_config: TfDataServiceConfig) -> None: ...
