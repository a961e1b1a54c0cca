# SPDX-License-Identifier: Apache-2.0
"""Elastic training without a framework: state that is committed and restored, and the loop around it.

    @hvd.elastic.run
    def train(state): ...             train(state)
                                          |
        .--> state.sync() ----------> func(state) ----------> its result
        |                               |      |
        |      HorovodInternalError:    |      |  HostsUpdatedInterrupt:
        |      state.restore() <--------'      |  the state as it is
        |            |                         |
        '-- state.on_reset() <-- shutdown, init (a new world)

In every job: a world whose collectives fail (ranks disagree, a check fails, one rank raises
HorovodInternalError) while every process survives is followed by one of the same ranks.

In an elastic job (horovodrun --min-np) the launcher chooses the ranks of each world. When some are lost,
the survivors continue with the next world; lost ranks are replaced, and hosts that come or go are announced
(hosts_changed), so that the next commit() ends the function by HostsUpdatedInterrupt. Rank and size may be
others in each world. There all ranks call sync() in each world, also after a removal, where Horovod skips
it: a new process calls it first, ranks of one world may have left the last one in different ways, and a
sampler divides its data again. A function that returns ends the run on its rank.

Invariants
 - After a failure, training never resumes from uncommitted values or from those of a rank other than 0:
   sync() gives rank 0's state to all ranks and commits it.
 - The loop ends. A failure is raised when it repeats FAILURES_WITHOUT_COMMIT times without a commit(), and
   after HVD_ELASTIC_FAILURES failures in all. Forming a new world takes at most HOROVOD_ELASTIC_TIMEOUT
   each time. In an elastic job the launcher has that deadline, and it counts the processes that fail, so a
   failure that has ended the world is not counted here: each rank but the lost one would. A failure of
   which the world does not end (ranks that disagree) is, because no process ends by it.
"""

import copy
import enum
import functools
import logging
import pickle
import queue
import re
import struct
import sys
import time

from _hvd import _native, basics, checkpoint, handles, knobs, objects, pickling
from _hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from _hvd.process_sets import is_elastic

FAILURES_WITHOUT_COMMIT = 3

_log = logging.getLogger("horovod.elastic")


class HostUpdateResult(enum.IntFlag):
    """What happened to the hosts of a job (horovod.runner.elastic.worker's)."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


def hosts_changed():
    """The host changes since the last call: a list of (timestamp, HostUpdateResult).

    Called at each commit() and check_host_updates() on every rank, by _HostMessages; rank 0's counts.
    Empty outside of elastic jobs.
    """
    bits = _native.elastic_take_change()
    return [(time.time(), HostUpdateResult(bits))] if bits else []


class _HostMessages(queue.Queue):
    """What on_hosts_updated() was called with. empty() includes what the launcher has announced by then.

    Scripts written for Horovod wait for a change by this queue, without a commit.
    """

    def empty(self):
        for message in hosts_changed():
            self.put(message)
        return super().empty()


class WorkerNotificationManager:
    """Notifies the states of running elastic functions about hosts (Horovod's name and methods)."""

    def __init__(self):
        self._listeners = []

    def init(self, *_, **__):
        """Nothing to connect to: states poll hosts_changed()."""

    def register_listener(self, listener):
        self._listeners.append(listener)

    def remove_listener(self, listener):
        self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp, update_res):
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()


class State:
    """State that training must not lose; kept in memory and equal on all ranks.

    Subclasses define save(), restore() and sync(). bcast_object: a function that returns rank 0's
    argument on every rank. get_rank: a function that returns this process' rank.
    """

    def __init__(self, bcast_object, get_rank):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = _HostMessages()
        self._last_updated_timestamp = 0
        self._reset_callbacks = []
        self._commits = 0

    def register_reset_callbacks(self, callbacks):
        """Functions without arguments to call when a new world has formed, before sync()."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        self._host_messages = _HostMessages()
        self._last_updated_timestamp = 0  # rank 0 may have another clock now
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res):
        """Any thread: hosts were added or removed; the next commit() or check ends the function."""
        self._host_messages.put((timestamp, update_res))

    def commit(self):
        """Keeps the state as it is now for restore(), then check_host_updates(). A collective.

        The job's status has the time of the last commit, and the step of the last hvd.progress() then.
        """
        handles.settle()
        self.save()
        self._count_commit()
        self.check_host_updates()

    def _count_commit(self):
        self._commits += 1
        if _native.is_initialized():
            _native.progress_commit()

    def check_host_updates(self):
        """Raises HostsUpdatedInterrupt on all ranks when hosts were added or removed. A collective."""
        before = latest = self._last_updated_timestamp
        result = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                result |= update
        before, self._last_updated_timestamp, result = self._from_rank_0(before, latest, int(result))
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(result == HostUpdateResult.removed)

    def _from_rank_0(self, *numbers):
        """Rank 0's numbers: one broadcast of some bytes, because it is done at each commit."""
        if not _native.is_initialized():
            return self._bcast_object(numbers)
        form = f"<{len(numbers)}d"
        buffer = bytearray(struct.pack(form, *numbers))
        objects.broadcast_bytes("elastic.hosts", buffer, 0, 0)
        return struct.unpack(form, buffer)

    def save(self):
        """Keeps the state as it is now, in this process' memory."""
        raise NotImplementedError

    def restore(self):
        """Restores the values of the last save()."""
        raise NotImplementedError

    def sync(self):
        """Sends rank 0's state to every rank and saves it. A collective."""
        raise NotImplementedError

    def reset(self):
        """Called when a new world has formed, before sync(), to update what depends on rank or size."""

    def kept(self):
        """What the last save() kept, as one object that take() takes, also in another process."""
        raise NotImplementedError

    def take(self, kept):
        """Makes this the last save, and restores it."""
        raise NotImplementedError

    def save_to(self, path):
        """Rank 0 writes the last save to a file, whole or not at all; no collective, others return at once.

        The file gets its name when all of it is on the disk, so it always has a whole state: the new one
        or the one before.
        """
        if self._rank() == 0:
            checkpoint.write(path, lambda file: self._write_kept(file, self.kept()))

    def load_from(self, path):
        """Takes the state of a file of save_to(), of a world of any size. False: there is no such file.

        sync(), with which hvd.elastic.run begins, sends rank 0's state to all, so only rank 0 needs to see
        the file. Load only files that you trust: unpickling runs code that the file chooses.
        """
        try:
            with open(path, "rb") as file:
                kept = self._read_kept(file)
        except FileNotFoundError:
            return False
        self.take(kept)
        return True

    def _write_kept(self, file, kept):
        file.write(pickling.dumps(kept))

    def _read_kept(self, file):
        return pickle.load(file)


def copied(name, value):
    """Returns a copy that does not change when training changes the value in place."""
    try:
        return copy.deepcopy(value)
    except Exception:
        pass  # a tensor inside a graph, for one, cannot be deep-copied but pickled
    try:
        return pickle.loads(pickling.dumps(value))
    except Exception as e:
        raise TypeError(
            f'elastic state: attribute "{name}" of type {type(value).__name__} cannot be kept, because it '
            f"can neither be copied nor pickled ({e}); leave it out of the state"
        ) from e


class ObjectState(State):
    """State of ordinary Python objects: each keyword becomes an attribute.

    They are copied when they are saved and restored, so that a list that training appends to is
    restored too (Horovod keeps references). They must be picklable.
    """

    def __init__(self, bcast_object, get_rank, **kwargs):
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = dict.fromkeys(kwargs)
        self._keep()

    def _keep(self):
        self._saved_state = {name: copied(name, getattr(self, name)) for name in self._saved_state}

    def save(self):
        self._keep()

    def restore(self):
        for name, value in self._saved_state.items():
            setattr(self, name, copied(name, value))

    def kept(self):
        return dict(self._saved_state)

    def take(self, kept):
        check_names("attributes", self._saved_state, kept)
        self._saved_state = {name: kept[name] for name in self._saved_state}
        self.restore()

    def sync(self):
        # Uses the current attributes, not the saved ones. After an interrupt without a commit, or with
        # values set before the first call, the saved values would be older than the model.
        if self._saved_state:
            now = {name: getattr(self, name) for name in self._saved_state}
            for name, value in self._bcast_object(now).items():
                if value is not now.get(name):
                    setattr(self, name, value)
            self._keep()


def check_names(what, ours, kept):
    if set(ours) != set(kept):
        raise ValueError(
            f"elastic state: this state has the {what} {sorted(ours)}, and the saved one {sorted(kept)}; "
            "create it as the one that was saved"
        )


_BYTES_AT_ONCE = 256 << 20


class ArraysState(ObjectState):
    """State of variables that can be read and written as numpy arrays, and of ordinary objects.

    Subclasses define _variables(): the list of them, in the same order on all ranks; _read(variables):
    their values as new arrays; and _write(pairs): assigns the value of each (variable, value). Values are
    sent as objects, some at a time, and saved values are in host memory.
    """

    _kept = ()  # (variable, value)

    def _keep_variables(self):
        variables = self._variables()
        self._kept = list(zip(variables, self._read(variables)))

    def save(self):
        self._keep_variables()
        super().save()

    def restore(self):
        self._write(self._kept)
        super().restore()

    def kept(self):
        return {"variables": [value for _, value in self._kept], "objects": super().kept()}

    def take(self, kept):
        variables, values = self._variables(), kept["variables"]
        _check_shapes(variables, self._read(variables), values)
        self._kept = list(zip(variables, values))
        super().take(kept["objects"])

    def sync(self):
        variables = self._variables()
        values = self._read(variables)
        self._check_alike(variables, values)
        from_rank_0 = []
        for part in _parts(values, _BYTES_AT_ONCE):
            from_rank_0 += self._bcast_object(part)
        if self._rank() != 0:
            self._write(list(zip(variables, from_rank_0)))
        self._kept = list(zip(variables, from_rank_0))
        super().sync()

    def _check_alike(self, variables, values):
        """Raises ValueError if this rank's variables differ from rank 0's in number, dtype or shape."""
        mine = [(str(value.dtype), tuple(value.shape)) for value in values]
        first = self._bcast_object(mine)
        if mine == first:
            return
        if len(mine) != len(first):
            raise ValueError(
                f"elastic state: rank 0 has {len(first)} variables and rank {self._rank()} has "
                f"{len(mine)}; the model and its optimizer must be built alike on all ranks"
            )
        i = next(i for i, pair in enumerate(zip(mine, first)) if pair[0] != pair[1])
        name = getattr(variables[i], "path", None) or getattr(variables[i], "name", i)
        raise ValueError(
            f"elastic state: variable {name} is {first[i][0]}{list(first[i][1])} on rank 0 and "
            f"{mine[i][0]}{list(mine[i][1])} on rank {self._rank()}; build the model alike on all ranks"
        )


def _check_shapes(variables, ours, kept):
    """Raises ValueError unless the kept values fit these variables."""
    forms = [[(str(v.dtype), tuple(v.shape)) for v in values] for values in (ours, kept)]
    if forms[0] != forms[1]:
        raise ValueError(
            f"elastic state: the {len(kept)} saved variables differ from this state's {len(variables)} "
            "in number, dtype or shape; build model and optimizer as when they were saved"
        )


def _parts(values, limit):
    """Splits the values, in order, into lists of at most so many bytes, each with at least one value."""
    part, size = [], 0
    for value in values:
        if part and size + value.nbytes > limit:
            yield part
            part, size = [], 0
        part.append(value)
        size += value.nbytes
    if part:
        yield part


def _failures_allowed():
    return int(knobs.match_of("HVD_ELASTIC_FAILURES", r"[1-9]\d*", "100")[0])


def _timeout_ms():
    return knobs.milliseconds_of("HOROVOD_ELASTIC_TIMEOUT", "600")


class _Failures:
    """Counts the failures of one run and raises when there are too many."""

    def __init__(self):
        self.limit = _failures_allowed()
        self.total = self.without_commit = 0
        self.commits = None

    def add(self, state, error):
        """Returns to try again; else raises the error with the reason before it."""
        if _native.elastic_is_over():
            _log.warning("hvd.elastic.run: %s; restoring the last commit for the next world", error)
            return
        commits = getattr(state, "_commits", 0)
        self.without_commit = self.without_commit + 1 if commits == self.commits else 1
        self.commits = commits
        self.total += 1
        if self.without_commit >= FAILURES_WITHOUT_COMMIT:
            self.give_up(f"failed {self.without_commit} times without a commit between", error)
        if self.total >= self.limit:
            self.give_up(f"failed {self.total} times (HVD_ELASTIC_FAILURES={self.limit})", error)
        _log.warning(
            "hvd.elastic.run: failure %d: %s; restoring the last commit and forming a new world",
            self.total,
            error,
        )

    @staticmethod
    def give_up(reason, error):
        raise HorovodInternalError(
            f"hvd.elastic.run: given up, it {reason}; the last error: {error}"
        ) from error


def _state_of(function, args, kwargs):
    state = args[0] if args else kwargs.get("state")
    lacks = [name for name in ("sync", "restore", "on_reset") if not callable(getattr(state, name, None))]
    if lacks:
        name = getattr(function, "__name__", "the function")
        raise TypeError(
            f"hvd.elastic.run: the first argument of {name}() must be an elastic state such as "
            f"hvd.elastic.TorchState, not {type(state).__name__}"
        )
    return state


def run_fn(func, reset):
    """Returns func(state, ...) that survives failed collectives; reset() forms a new world."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        state = _state_of(func, args, kwargs)
        failures = _Failures()
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = is_reset = False
        try:
            while True:
                try:
                    if is_reset:
                        state.on_reset()
                    if not skip_sync or is_elastic():
                        state.sync()
                    return func(*args, **kwargs)
                except HorovodInternalError as e:
                    failures.add(state, e)
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as e:
                    skip_sync = e.skip_sync
                reset()
                is_reset = True
        finally:
            notification_manager.remove_listener(state)

    return wrapper


# Nodes without a name have Horovod's, operations have ours; what failed is quoted by kind and name.
_COLLECTIVE = re.compile(
    r"(Horovod|Hvd)(Grouped)?(Allreduce|Allgather|Broadcast|Alltoall|Reducescatter|Join|Barrier)"
    r"|HorovodInternalError: "
    r'|"(grouped_)?(allreduce|allgather|broadcast|alltoall|reducescatter|join|barrier)\.'
)
_OF_TENSORFLOW = ("UnknownError", "FailedPreconditionError", "AbortedError", "CancelledError")


def is_failed_collective(error):
    """Whether this exception is a failed collective, as TensorFlow or JAX report it.

    A wrong argument of this rank (InvalidArgumentError) is not one: a retry would fail again.
    """
    text = str(error)
    tf = sys.modules.get("tensorflow")
    if tf is not None and isinstance(error, tf.errors.OpError):
        may_be = type(error).__name__ in _OF_TENSORFLOW or "Mismatched" in text
        return may_be and bool(_COLLECTIVE.search(text))
    jax = type(error).__module__.split(".")[0] in ("jax", "jaxlib")
    return jax and "HorovodInternalError" in text


def as_collective_errors(func):
    """Wraps func so that failed collectives of any framework raise HorovodInternalError."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        try:
            return func(*args, **kwargs)
        except (HorovodInternalError, HostsUpdatedInterrupt):
            raise
        except Exception as e:
            if is_failed_collective(e):
                raise HorovodInternalError(str(e)) from e
            raise

    return wrapper


def reset_world():
    """Leaves the world and forms a new one with the other ranks, within HOROVOD_ELASTIC_TIMEOUT.

    The other ranks arrive when their current step has failed. In an elastic job the launcher has the limit.
    """
    if is_elastic():
        basics.start_again(0)
        return
    ms = _timeout_ms()
    try:
        basics.start_again(ms)
    except HorovodInternalError as e:
        ours = "HOROVOD_ELASTIC_TIMEOUT is"
        raise HorovodInternalError(
            str(e).replace("the start timeout that the program has set is", ours)
        ) from None
