# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Mapping, Sequence, SupportsIndex, TypeVar

_R = TypeVar("_R")

__version__: str

def progress(
    step: SupportsIndex | None = None,
    total: SupportsIndex | None = None,
    epoch: SupportsIndex | None = None,
    epochs: SupportsIndex | None = None,
    samples: SupportsIndex | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> None: ...
def run(
    func: Callable[..., _R],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[_R]: ...
