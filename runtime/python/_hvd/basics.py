# SPDX-License-Identifier: Apache-2.0
"""Life, place and build queries: the functions that every ``hvd`` module has in common."""

import atexit
import faulthandler
import signal
import threading
import warnings

from _hvd import _native, handles
from _hvd.absent import refuse

# Horovod's numbers (enum hvd_op in hvd.h).
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

_start_lock = threading.RLock()  # held for moments only, and a signal handler may come again
_exit_hook_registered = False


def _show_stacks_when_late():
    """Others that wait for this rank (HVD_STALL_STACKS) see in its output where its threads are."""
    sig = signal.SIGRTMAX - 2
    try:
        faulthandler.register(sig, all_threads=True)
    except (AttributeError, ValueError, RuntimeError, OSError):
        return  # stderr is no file here (a notebook): the runtime's own line has to do
    _native.show_stacks(int(sig))


def init(comm=None, process_sets=None):
    """Finds this process' place in the job and meets the other ranks. Idempotent.

    Signal handlers run while it waits. What they raise (Ctrl-C) ends it, and so does shutdown().
    """
    global _exit_hook_registered
    if comm is not None:
        refuse("hvd.init(comm=...)", "call hvd.init() without arguments: all started ranks take part")
    if process_sets:
        refuse("hvd.init(process_sets=...)", "only hvd.global_process_set works")
    try:
        with _start_lock:
            if not _exit_hook_registered:
                atexit.register(shutdown)
                _exit_hook_registered = True
                _show_stacks_when_late()
            if _native.start(0):
                handles.forget()
        _native.join()
    except BaseException:
        _native.cancel()
        raise


def shutdown():
    """Leaves the job: pending operations fail, and init() may follow. Idempotent, at most 5 s.

    Never waits for an init() of this process that still waits for other ranks: that one ends.
    """
    _native.shutdown()


def is_initialized():
    return _native.is_initialized()


def rank():
    return _native.rank()


def size():
    return _native.size()


def local_rank():
    return _native.local_rank()


def local_size():
    return _native.local_size()


def cross_rank():
    return _native.cross_rank()


def cross_size():
    return _native.cross_size()


def is_homogeneous():
    """Has every host the same number of ranks?"""
    return bool(_native.is_homogeneous())


def start_timeline(file_path, mark_cycles=False):
    """Rank 0 records what happens to each tensor in a file; elsewhere it does nothing.

    The file is for chrome://tracing or Perfetto. HOROVOD_TIMELINE need not be set.
    """
    _native.timeline_start(file_path, mark_cycles)


def stop_timeline():
    """Returns when the file is complete."""
    _native.timeline_stop()


# Build queries. Scripts branch on them, so each tells the truth about this runtime and not about
# which of Horovod's back ends it resembles: there is no MPI, no Gloo, and no GPU back end yet.


def mpi_threads_supported():
    if not _native.is_initialized():
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    raise ValueError("Horovod MPI is not enabled; Please make sure it is installed and enabled.")


def mpi_enabled():
    return False


def mpi_built():
    return False


def gloo_enabled():
    return False


def gloo_built():
    return False


def nccl_built():
    """NCCL's version number, or 0 without NCCL."""
    return 0


def ddl_built():
    return False


def ccl_built():
    return False


def cuda_built():
    return False


def rocm_built():
    return False


def reduce_op_from(op, average):
    """Horovod's rule for its old ``average`` argument."""
    if op is not None:
        if average is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        return op
    if average is not None:
        warnings.warn(
            "Parameter `average` has been replaced with `op` and will be removed in v1.0",
            DeprecationWarning,
            stacklevel=3,
        )
        return Average if average else Sum
    return Average


def check_reduce_op(op):
    """Passes what the runtime reduces with; a sentence for the rest."""
    if op in (Average, Sum):
        return op
    names = {Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}
    if op in names:
        refuse(f"allreduce with op=hvd.{names[op]}", "op=hvd.Average and op=hvd.Sum work")
    raise ValueError(f"op must be hvd.Average or hvd.Sum, not {op!r}")


__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
