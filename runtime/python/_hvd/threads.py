# SPDX-License-Identifier: Apache-2.0
"""Functions in threads (``horovod.runner.util.threads``): scripts and Horovod's tests import them."""

import contextlib
import queue
import threading


def _checked(args):
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")
    return args


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """Starts target(*args) in a thread, which is returned. silent: what it raises is dropped."""
    _checked(args)

    def quiet(*args):
        with contextlib.suppress(BaseException):
            target(*args)

    thread = threading.Thread(target=quiet if silent else target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(event, func, args=(), stop=None, check_stop_interval_s=1.0, daemon=True, silent=False):
    """Starts a thread, returned, that calls func(*args) once event is set, unless stop is set before."""
    if event is None:
        raise ValueError("Event must not be None")
    _checked(args)
    if stop is None and not daemon:
        raise ValueError("Stop event must be given for non-daemon event thread")

    def wait():
        if stop is None:
            event.wait()
        else:
            while not event.is_set() and not stop.is_set():
                event.wait(timeout=check_stop_interval_s)
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn, args_list, block_until_all_done=True, max_concurrent_executions=1000
):
    """Calls fn(*args) for each args of args_list, in threads; returns {index: result}.

    With block_until_all_done=False it returns None at once, and the threads do not keep the process
    alive. RuntimeError when a call has raised.
    """
    work, results = queue.Queue(), {}
    for item in enumerate(args_list):
        work.put(item)

    def worker():
        with contextlib.suppress(queue.Empty):
            while True:
                index, args = work.get(block=False)
                results[index] = fn(*args)

    count = min(max_concurrent_executions, len(args_list))
    threads = [in_thread(worker, daemon=not block_until_all_done) for _ in range(count)]
    if not block_until_all_done:
        return None
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)  # in slices: a signal interrupts none of them otherwise
    if len(results) != len(args_list):
        raise RuntimeError(f"Some threads for func {fn.__name__} did not complete successfully.")
    return results
