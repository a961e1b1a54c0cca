# SPDX-License-Identifier: Apache-2.0
from threading import Event, Thread
from typing import Any, Callable

def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: list[list[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None: ...
def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> Thread: ...
def on_event(
    event: Event,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> Thread: ...
