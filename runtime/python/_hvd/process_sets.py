# SPDX-License-Identifier: Apache-2.0
"""Process sets: in this version the one that always exists, of all ranks (id 0)."""

from _hvd import _native
from _hvd.absent import refuse


class ProcessSet:
    """A set of ranks that run collectives among themselves."""

    def __init__(self, ranks_or_comm):
        if isinstance(ranks_or_comm, (str, bytes)) or not hasattr(ranks_or_comm, "__iter__"):
            raise ValueError(
                f"ProcessSet should be initialized with a list of process ranks, not {ranks_or_comm!r}"
            )
        self.ranks = sorted(ranks_or_comm)
        self.mpi_comm = None
        self.process_set_id = None

    def size(self):
        """Number of ranks, or None while the set is not registered."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self):
        """This process' rank within the set, or None."""
        if self.process_set_id is None or not self.included():
            return None
        return self.ranks.index(_native.rank())

    def included(self):
        """Is this process in the set? None while the set is not registered."""
        return None if self.process_set_id is None else _native.rank() in self.ranks

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    """All ranks of the world; follows it through shutdown and init."""

    def __init__(self):
        self.mpi_comm = None
        self.process_set_id = 0

    @property
    def ranks(self):
        return list(range(_native.size()))

    def size(self):
        return _native.size()

    def rank(self):
        return _native.rank()

    def included(self):
        return True

    def __str__(self):
        return "ProcessSet(process_set_id=0, all ranks)"


global_process_set = _GlobalProcessSet()


def process_set_id(process_set):
    """The number the runtime knows this set by; refuses sets that cannot work yet."""
    if process_set is global_process_set:
        return 0
    if isinstance(process_set, ProcessSet):
        refuse("a process set other than hvd.global_process_set")
    raise TypeError(f"process_set must be a hvd.ProcessSet, not {type(process_set).__name__}")


def add_process_set(process_set):
    refuse("hvd.add_process_set()", "only hvd.global_process_set works")


def remove_process_set(process_set):
    """False for the global process set, as in Horovod."""
    if process_set is global_process_set:
        return False
    return refuse("hvd.remove_process_set()", "only hvd.global_process_set works")
