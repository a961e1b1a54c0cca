# SPDX-License-Identifier: Apache-2.0
"""Process sets: some ranks that run collectives among themselves. The set of all (id 0) always exists.

The runtime's id of a set (process_set_id()) is used once in a world. A script sees its number
(ProcessSet.process_set_id), which is reused once the set is removed, as in Horovod.

Sets are created by init() or by add_process_set(), which all ranks of the world call in the same order.
They are removed by remove_process_set() and with the world: a ProcessSet of an ended world is not
registered, and its size(), rank() and included() are None.
"""

import logging
import os
import re
import threading
import weakref

from _hvd import _native
from _hvd.absent import refuse_mpi

_registered = weakref.WeakSet()  # of this world, but the global one
_added = []  # of add_process_set(), in order, also those whose ranks this world lacks
_again = []  # ranks of sets that add_again() has made and the program has not added since
_log = logging.getLogger("horovod.elastic")
_no_world = "Horovod has not been initialized; use hvd.init()."


def is_elastic():
    """Whether the launcher of this process chooses the ranks of each world, and how many they are."""
    return bool(os.environ.get("HVD_ELASTIC"))


def integers(values):
    """Returns the ranks as a tuple of ints; None if they are not an iterable of integers."""
    try:
        values = tuple(values)
    except TypeError:
        return None
    if any(isinstance(value, bool) or not hasattr(value, "__index__") for value in values):
        return None
    return tuple(value.__index__() for value in values)


class ProcessSet:
    """A set of ranks that run collectives among themselves.

    Pass it to hvd.init(process_sets=[...]) or hvd.add_process_set(); process_set_id is None before.
    """

    process_set_id = None
    _id = None
    ranks = None
    mpi_comm = None

    def __init__(self, ranks_or_comm):
        if type(ranks_or_comm).__module__.split(".")[0] == "mpi4py":
            refuse_mpi("a process set of an MPI communicator", "pass the list of its ranks")
        ranks = integers(ranks_or_comm)
        if ranks is None:
            raise ValueError(
                "ProcessSet should be initialized with a list of process ranks or an mpi4py Comm object, "
                f"not {ranks_or_comm!r}"
            )
        self.ranks = sorted(ranks)

    def _invalidate(self):
        self.process_set_id = self._id = None
        _registered.discard(self)

    def size(self):
        """Number of ranks, or None while the set is not registered."""
        return None if self._id is None else _native.set_size(self._id)

    def rank(self):
        """This process' rank within the set, or None while the set is not registered.

        Collectives name their root by its global rank all the same.
        """
        if self._id is None:
            return None
        rank = _native.set_rank(self._id)
        if rank is None:
            raise ValueError(f"Process is not part of provided process set. Rank {_native.rank()}: {self}")
        return rank

    def included(self):
        """Whether this process is in the set. None while the set is not registered."""
        return None if self._id is None else _native.rank() in self.ranks

    def __str__(self):
        place = f"process_set_id={self.process_set_id}, ranks={self.ranks}"
        return f"ProcessSet({place}, mpi_comm={self.mpi_comm})"

    def __reduce__(self):
        # A copy (of an optimizer, say) means the same set as long as the world lasts.
        return (_same_set, (self._id, self.ranks))


def is_alone(process_set):
    """Whether this rank has no other one in the set, nor may have in a later world: for what is decided
    once, as when a graph is built."""
    return not process_set.included() or (process_set.size() == 1 and not is_elastic())


class _GlobalProcessSet(ProcessSet):
    """All ranks of the world; follows it through shutdown and init."""

    process_set_id = _id = 0

    def __init__(self):
        pass

    @property
    def ranks(self):
        return list(range(_native.size())) if _native.is_initialized() else []

    def included(self):
        return _native.rank() >= 0

    def __reduce__(self):
        return "global_process_set"


def _same_set(set_id, ranks):
    process_set = ProcessSet(ranks)
    if set_id is not None and _native.is_initialized() and _of_world().get(set_id) == ranks:
        _register(process_set, set_id)
    return process_set


global_process_set = _GlobalProcessSet()


def _register(process_set, set_id):
    process_set._id, process_set.process_set_id = set_id, _number(set_id)
    _registered.add(process_set)


def _number(set_id):
    return set_id % _native.SET_NUMBERS


def _of_world():
    """{id: ranks} of all sets of the world."""
    return {i: list(_native.set_ranks(i)) for i in _native.set_ids()}


def ids_and_ranks():
    """{number: ranks} of all sets of the world."""
    return {_number(i): ranks for i, ranks in _of_world().items()}


def id_of_number(number):
    """Returns the id of the set that has this number now, or the number itself if no set has it."""
    ids = _native.set_ids() if _native.is_initialized() else ()
    return {_number(i): i for i in ids}.get(number, number)


def process_set_id(process_set):
    """The runtime's id of this set; ValueError if it is not registered."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a hvd.ProcessSet, not {type(process_set).__name__}")
    if process_set._id is None:
        raise ValueError(
            f"Process set does not exist or has not been registered: {process_set}; pass it to "
            "hvd.init(process_sets=[...]) or hvd.add_process_set() on all ranks"
        )
    return process_set._id


# --- with the world ------------------------------------------------------------------------------


def registered_with(ranks):
    """The registered set of these ranks: what a saved model has of it."""
    for process_set in list(_registered):
        if process_set.ranks == sorted(ranks):
            return process_set
    raise ValueError(f"there is no process set of the ranks {sorted(ranks)}; use hvd.add_process_set()")


def ranks_from(comm):
    """init()'s comm as a tuple of ranks, () for all; Horovod's error for anything that is not a list."""
    ranks = () if comm is None else integers(comm)
    if ranks is None:
        raise ValueError(
            "Invalid type of argument comm. Expected list of rank integers or mpi4py.MPI.Comm object, "
            f"not {comm!r}."
        )
    return ranks


def check_sets(process_sets):
    """init()'s process_sets as a list of ProcessSets; Horovod's error for a duplicate."""
    if process_sets is None:
        return []
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(
                f'process_sets must be a list of hvd.ProcessSet or "dynamic", not {process_sets!r}'
            )
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        return []
    process_sets = list(process_sets)
    seen = []
    for i, process_set in enumerate(process_sets):
        if not isinstance(process_set, ProcessSet):
            raise ValueError(
                f"process_sets entry number {i} is no hvd.ProcessSet but {type(process_set).__name__}"
            )
        if process_set is global_process_set or process_set.ranks in seen:
            raise ValueError(
                f"Horovod could not be initialized because process_sets entry number {i} is a "
                f"duplicate: {process_set}"
            )
        seen.append(process_set.ranks)
    return process_sets


def of_init(text):
    """The runtime's error about a set that was given to init(), in Horovod's words."""
    match = re.fullmatch(r"hvd_config, set (\d+): (.*)", text, re.DOTALL)
    if match is None:
        return text
    what = "is a duplicate" if "already exists" in text else "cannot be made"
    return (
        f"Horovod could not be initialized because process_sets entry number {int(match[1]) - 1} {what}: "
        f"{match[2]}"
    )


def forget():
    """Unregisters the sets of the last world."""
    _added.clear()
    _again.clear()
    for process_set in list(_registered):
        process_set._invalidate()


def _is_left_out(process_set):
    """Whether this world of an elastic job is too small for the set; logs that."""
    if not is_elastic() or all(0 <= rank < _native.size() for rank in process_set.ranks):
        return False
    _log.warning(
        "%s is left out, because this world of the elastic job has %d ranks", process_set, _native.size()
    )
    return True


def register_all(process_sets):
    """Sets each one's id after init(). In a world that existed before, some may be missing."""
    if not process_sets:
        return
    ids = {tuple(ranks): i for i, ranks in _of_world().items()}
    for process_set in process_sets:
        if _is_left_out(process_set):
            continue
        if tuple(process_set.ranks) not in ids:
            raise ValueError(
                f"hvd.init() was called before without {process_set}; use hvd.add_process_set() now"
            )
        _register(process_set, ids[tuple(process_set.ranks)])


# --- later ---------------------------------------------------------------------------------------


def _check_dynamic(verb):
    if not _native.is_initialized():
        raise ValueError(_no_world)
    if os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "1").strip().lower() in ("0", "false", ""):
        raise ValueError(
            f"Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {verb} process sets after Horovod initialization."
        )


def with_signals(function, *args):
    """Calls function(*args), which waits for other ranks in C, so that signal handlers run (Ctrl-C)."""
    ended = []

    def call():
        try:
            ended.append((function(*args), None))
        except BaseException as e:
            ended.append((None, e))

    thread = threading.Thread(target=call, name="hvd-process-set", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    value, error = ended[0]
    if error is not None:
        raise error
    return value


def _make(process_set):
    """Adds it to the world. A set of all ranks of an elastic world, which may grow, is set 0."""
    is_all = is_elastic() and process_set.ranks == global_process_set.ranks
    ranks = tuple(process_set.ranks)
    _register(process_set, 0 if is_all else with_signals(_native.set_add, ranks))


def add_process_set(process_set):
    """Creates a process set from a ProcessSet or a list of ranks and returns the ProcessSet.

    All ranks of the world call it, in the same order, also those that are not in the set. A later world of
    hvd.elastic.run has it, too. Where an elastic world lacks ranks of it, the set is not registered yet.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    _check_dynamic("adding")
    if process_set.ranks in _again:  # a script that adds its sets again in each world
        _again.remove(process_set.ranks)
        _register(process_set, {tuple(r): i for i, r in _of_world().items()}[tuple(process_set.ranks)])
        return process_set
    others = [ranks for i, ranks in _of_world().items() if i or not is_elastic()]
    if process_set is global_process_set or process_set.ranks in others:
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}")
    if not _is_left_out(process_set):
        _make(process_set)
    of = [p.ranks for p in _added]
    if process_set.ranks in of:  # left out before
        _added[of.index(process_set.ranks)] = process_set
    else:
        _added.append(process_set)
    return process_set


def added():
    """The sets that add_process_set() has added to this world, for add_again()."""
    return list(_added)


def add_again(process_sets):
    """Adds sets of the last world to the new one. All ranks call it, but those that are new: their program
    adds the same sets by itself."""
    _added[:] = process_sets
    for process_set in process_sets:
        if not _is_left_out(process_set):
            _make(process_set)
            _again.append(process_set.ranks)


def remove_process_set(process_set):
    """Removes a set on all ranks of the world. False for the global set and if it is not registered."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a hvd.ProcessSet, not {type(process_set).__name__}")
    set_id = process_set._id
    if process_set in _added and not set_id:  # an elastic world has no other ranks, or lacks some
        _added.remove(process_set)
        process_set._invalidate()
        return True
    if not set_id:
        return False
    _check_dynamic("removing")
    if set_id not in _native.set_ids():
        process_set._invalidate()
        return False
    with_signals(_native.set_remove, set_id)
    for other in [p for p in _registered if p._id == set_id]:  # and copies of it
        other._invalidate()
    _added[:] = [p for p in _added if p.ranks != process_set.ranks]
    _again[:] = [ranks for ranks in _again if ranks != process_set.ranks]
    return True
