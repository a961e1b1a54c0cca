# SPDX-License-Identifier: Apache-2.0
"""Start and end, ranks and build queries: the functions that every ``hvd`` module has in common."""

import atexit
import contextlib
import faulthandler
import json
import os
import signal
import threading
import warnings

from _hvd import _mpi, _native, ending, gpu, handles
from _hvd import process_sets as _sets
from _hvd.exceptions import HorovodInternalError
from _hvd.progress import progress

# Horovod's numbers (enum hvd_op in hvd.h).
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5
REDUCE_OPS = {
    Average: "Average",
    Sum: "Sum",
    Adasum: "Adasum",
    Min: "Min",
    Max: "Max",
    Product: "Product",
}

_start_lock = threading.RLock()  # held only briefly; reentrant, because a signal handler may take it again
_exit_hook_registered = False
_ranks_of_init = ()  # the ranks that were passed to init(); () for all
_sets_of_init = []  # the process sets that init() created with the world
_STACKS_SIGNAL = 61  # runtime/contract/stacks_file.h
_stacks_files = []  # the descriptor that faulthandler writes to
_at_init = []  # functions of frameworks to call after init()
_at_exit = []  # and after the shutdown() at the end of the process


def _show_stacks_when_late():
    """Prints the stacks of all threads when other ranks wait for this one (HVD_STALL_STACKS)."""
    sig = signal.SIGRTMAX - 2
    try:
        faulthandler.register(sig, all_threads=True)
    except (AttributeError, ValueError, RuntimeError, OSError):
        return  # stderr is not a file here (a notebook): only the runtime's own line is printed
    _native.show_stacks(int(sig))


def _write_stacks_when_asked():
    """Lets the launcher get the stacks of all threads when this rank hangs (HVD_STACKS).

    libhvd handles the signal and has created the file, unless it is not wanted or the program handles
    the signal. faulthandler writes first, then libhvd.
    """
    folder = os.environ.get("HVD_STATS_DIR")
    if not folder or _stacks_files:
        return
    with contextlib.suppress(AttributeError, ValueError, RuntimeError, OSError):
        file = os.open(os.path.join(folder, f"stacks.{os.getpid()}"), os.O_WRONLY | os.O_APPEND)
        _stacks_files.append(file)
        _native.join_stacks(
            _STACKS_SIGNAL, lambda: faulthandler.register(_STACKS_SIGNAL, file, all_threads=True)
        )


def init(comm=None, process_sets=None):
    """Finds this process' place in the job and forms the world with the other ranks. Idempotent.

    comm: the ranks of this world, where not all started ranks take part: a list (its order gives the
    ranks in the world), the same on all of them, or a communicator of mpi4py. Other ranks may have a
    world of another list at the same time, or none. process_sets: a list of hvd.ProcessSet to create with
    the world, equal on all ranks; or "dynamic", as in Horovod, if some are added later.

    Signal handlers run while it waits. An exception in a handler (Ctrl-C) or shutdown() ends the wait.
    """
    init_within(0, comm, process_sets)


def init_within(timeout_ms, comm=None, process_sets=None):
    """init() with its own start timeout; 0: HOROVOD_START_TIMEOUT."""
    global _ranks_of_init
    is_mpi = _mpi.is_comm(comm)
    ranks = _mpi.ranks_of(comm) if is_mpi else _sets.ranks_from(comm)
    sets = _sets.check_sets(process_sets)
    was_there = _native.is_initialized()
    try:
        _join_world(timeout_ms, ranks, tuple(tuple(s.ranks) for s in sets))
    except (HorovodInternalError, ValueError) as e:
        raise type(e)(_sets.of_init(str(e))) from None
    if is_mpi:
        _check_job(was_there)
    _sets.register_all(sets)
    if not was_there:
        _ranks_of_init = ranks
        _sets_of_init[:] = sets
        for function in _at_init:
            function()


def at_init(function):
    """Registers a function to call after each init() that forms a world, and now if a world exists."""
    _at_init.append(function)
    if _native.is_initialized():
        function()


def at_exit(function):
    """Registers a function to call after the shutdown() at the end of a process that has called init()."""
    _at_exit.append(function)


def _check_job(was_there):
    """Checks that the ranks of MPI_COMM_WORLD, which a communicator uses, are the job's ranks."""
    job = json.loads(_native.describe()).get("job_size")
    if job is not None and job != _mpi.world_size():
        if not was_there:
            shutdown()
        raise ValueError(
            f"comm is an MPI communicator, but MPI_COMM_WORLD has {_mpi.world_size()} ranks and this job "
            f"{job}; start it with mpirun, mpiexec or srun, or pass comm a list of ranks"
        )


def start_again(timeout_ms):
    """Leaves the world and forms a new one with the other ranks within this time (elastic).

    The process sets given to init() are recreated, and so are those that were added later. In an elastic
    job a set whose ranks the world does not have is left out, until a later world has them.
    """
    added = _sets.added()
    while True:
        shutdown()
        _join_world(timeout_ms, _ranks_of_init, tuple(tuple(s.ranks) for s in _sets_of_init))
        _sets.register_all(_sets_of_init)
        try:
            _sets.add_again(added)
            return
        except HorovodInternalError:
            if not _native.elastic_is_over():
                raise  # else this world was lost, too, and the launcher has the next one


def _join_world(timeout_ms, ranks, set_ranks):
    """Returns when the world has formed. 0: within HOROVOD_START_TIMEOUT."""
    global _exit_hook_registered
    try:
        with _start_lock:
            if not _exit_hook_registered:
                atexit.register(_leave_at_exit)
                ending.install()
                _exit_hook_registered = True
                _show_stacks_when_late()
            if _native.start(timeout_ms, (ranks, *set_ranks)):
                handles.forget()
                _sets.forget()
        _native.join()
        _write_stacks_when_asked()
    except BaseException:
        _native.cancel()
        raise


def _leave_at_exit():
    shutdown()
    for function in _at_exit:
        function()


def shutdown():
    """Leaves the job: pending operations fail, and init() may follow. Idempotent, at most 5 s.

    If an init() of this process still waits for other ranks, that init() is cancelled, not awaited.
    """
    _native.shutdown()
    handles.registered.clear()


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
    """Whether every host has the same number of ranks."""
    return bool(_native.is_homogeneous())


def start_timeline(file_path, mark_cycles=False):
    """Rank 0 records what happens to each tensor in a file; elsewhere it does nothing.

    The file is for chrome://tracing or Perfetto. HOROVOD_TIMELINE need not be set.
    """
    _native.timeline_start(file_path, mark_cycles)


def stop_timeline():
    """Returns when the file is complete."""
    _native.timeline_stop()


# Build queries. Scripts branch on them to choose what works, so *_built return which of Horovod's
# features this runtime supports, and *_enabled how this process was started. It contains neither MPI nor
# Gloo; for each library for GPUs and interconnects that it does not contain the result is False.

_MPI_LAUNCHERS = ("openmpi", "mpiexec")


def mpi_built():
    """True: ranks that mpirun, mpiexec or srun started with MPI's variables find each other."""
    return True


def mpi_enabled():
    """Whether an MPI launcher started this process. False before init()."""
    place = json.loads(_native.describe())
    return bool(place["initialized"]) and place["launcher"] in _MPI_LAUNCHERS


def mpi_threads_supported():
    """True where mpi_enabled(): a script may use mpi4py from any thread, the runtime never calls MPI."""
    if not mpi_enabled():
        raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")
    return True


def gloo_built():
    """True: works without MPI, started by horovodrun and other launchers, and init() after shutdown()."""
    return True


def gloo_enabled():
    """Whether this process was started without an MPI launcher. False before init()."""
    return _native.is_initialized() and not mpi_enabled()


def nccl_built():
    """Returns NCCL's version number (22705), or 0 where the runtime cannot use tensors on GPUs."""
    return gpu.nccl_version()


def ddl_built():
    return False


def ccl_built():
    return False


def cuda_built():
    """Whether collectives on GPU tensors work on this machine."""
    return gpu.report()["can"]


def rocm_built():
    return False


def reduce_op_from(op, average, ops=(Average, Sum)):
    """Horovod's rule for its old ``average`` argument; ops: what True and False of it mean."""
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
        return ops[0] if average else ops[1]
    return ops[0]


def check_reduce_op(op):
    """Returns op if the runtime supports it, else raises ValueError."""
    if op in REDUCE_OPS:
        return op
    raise ValueError(f"op must be hvd.Average, Sum, Adasum, Min, Max or Product, not {op!r}")


def _get_process_set_ids_and_ranks():
    """By Horovod's private name, which tests of scripts use."""
    return _sets.ids_and_ranks()


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
    "progress",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
