# SPDX-License-Identifier: Apache-2.0
"""hvd.guard: snapshots in the memory of each host that outlive processes, for scripts with a plain loop.

    step(), every N-th       local rank 0 of each host       HVD_STATS_DIR: a folder in memory, of the job's
                                                             agent on this host
    state_dict()s ---------> the older of two files -------> guard.NAME.STEP
                copied once  thread: checksum, rename        guard.NAME.STEP, the one before

    restore(), by all ranks of new processes: the newest step that a host has, from its file; hosts without
    it get it by a broadcast, and keep it

Where replicas are equal, a host's copy is one of every rank's state, so nothing is sent while training. A
rank that a failure has ended, or whose host is new, runs the script from its start.

Invariants
 - A file has its name when it is complete: it is written under another name, then renamed. A checksum
   (CRC-32) of all of it is verified before it is used.
 - A host has at most two files, also while one is written: it is written into the older one, whose memory
   is used again. The newer one stays.
 - The files are the agent's: they end with the job, and with the agent.
"""

import collections
import logging
import mmap
import os
import socket
import struct
import threading
import zlib

from _hvd import _native, handles, objects, parcels
from _hvd.process_sets import is_elastic

_log = logging.getLogger("horovod.guard")
_HEAD = struct.Struct("<8sQQI")  # magic, step, bytes of the parcel, CRC-32 of it
_MAGIC = b"hvdguard"
_START = 64  # of the parcel
_AT_ONCE = 64 << 20  # of a broadcast
_MB = 1e6

# What a rank has: its host, and the steps of the host's files if it is local rank 0.
_Has = collections.namedtuple("_Has", "host steps")


class Files:
    """The snapshots of one name in a folder."""

    def __init__(self, folder, name):
        self.folder = folder
        self.prefix = f"guard.{name}."
        self._new = os.path.join(folder, f"{self.prefix}new")
        self._views = {}  # step: view of the file, if this process has written it

    def path(self, step):
        return os.path.join(self.folder, f"{self.prefix}{step}")

    def _names(self):
        return [name for name in os.listdir(self.folder) if name.startswith(self.prefix)]

    def steps(self):
        """Steps of files by their names, the newest first."""
        ends = [name[len(self.prefix) :] for name in self._names()]
        return sorted((int(end) for end in ends if end.isdigit()), reverse=True)

    def whole(self):
        """Steps whose files are whole, the newest first."""
        return [step for step in self.steps() if self.open(step) is not None]

    def open(self, step):
        """The parcel of a file, a writable view of a private copy; None: the file is not whole."""
        with open(self.path(step), "rb") as file:
            if os.fstat(file.fileno()).st_size < _START:
                return None
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        magic, number, size, crc = _HEAD.unpack_from(view)
        parcel = view[_START : _START + size]
        is_one = magic == _MAGIC and number == step and len(parcel) == size
        return parcel if is_one and zlib.crc32(parcel) == crc else None

    def begin(self, size):
        """A view of so many bytes for the next parcel, in the place of all files but the newest."""
        view = None
        for step in self.steps()[1:]:
            os.replace(self.path(step), self._new)
            view = self._views.pop(step, None)
        if view is not None and len(view) == size:
            return view  # its memory is mapped already: that takes longer than to write it
        fd = os.open(self._new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._reserve(fd, _START + size)
            view = memoryview(mmap.mmap(fd, _START + size))
        finally:
            os.close(fd)
        return view[_START:]

    def _reserve(self, fd, size):
        """Gives the file its size and memory, without which a write would end the process (SIGBUS)."""
        has = os.fstat(fd).st_size
        at = os.statvfs(self.folder)
        free = at.f_bavail * at.f_frsize
        need = (size if self.steps() else 2 * size) - has
        if need > free:
            os.unlink(self._new)
            raise RuntimeError(
                f"hvd.guard: two snapshots of {size / _MB:.0f} MB do not fit into {self.folder}, which has "
                f"{free / _MB:.0f} MB free; give this host more memory for files (in a pod the volume of "
                "/dev/shm, in a container --shm-size), or guard less"
            )
        os.ftruncate(fd, size)
        os.posix_fallocate(fd, 0, size)

    def finish(self, view, step):
        """The parcel in this view is complete: gives the file its name."""
        with open(self._new, "r+b") as file:
            file.write(_HEAD.pack(_MAGIC, step, len(view), zlib.crc32(view)))
        os.replace(self._new, self.path(step))
        self._views[step] = view


class Guard:
    """Snapshots of the objects' states. of: {name: what has state_dict() and load_state_dict()}."""

    def __init__(self, of, every, name):
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"hvd.guard: every={every!r} is not a number of steps, 1 or more")
        if not name.replace("_", "").isalnum():
            raise ValueError(f"hvd.guard: name={name!r} has other characters than letters, digits and _")
        for key, value in of.items():
            lacks = [m for m in ("state_dict", "load_state_dict") if not callable(getattr(value, m, None))]
            if lacks:
                raise TypeError(f"hvd.guard: {key}, a {type(value).__name__}, has no {lacks[0]}()")
        self.every = every
        self.steps = 0  # that the training has done
        self._of, self._name = of, name
        self._thread = self._error = None
        folder = os.environ.get("HVD_STATS_DIR")
        self._files = Files(folder, name) if folder and is_elastic() else None
        if self._files is None:
            _log.warning(
                "hvd.guard: no snapshots are made, because nothing restarts the processes of this job; "
                "start it with horovodrun --min-np"
            )

    # --- snapshots

    def step(self):
        """Counts a step of the training, and makes a snapshot after every N-th; to call after each."""
        self.steps += 1
        if self.steps % self.every == 0 and self._files is not None:
            handles.settle()
            if _native.local_rank() == 0:
                self._snapshot()

    def _snapshot(self):
        self.wait()
        parcel = parcels.Parcel({key: value.state_dict() for key, value in self._of.items()})
        view = self._files.begin(parcel.size)
        is_staged = parcel.stage()
        if not is_staged:
            parcel.write(view)
        work = (parcel if is_staged else None, view, self.steps)
        self._thread = threading.Thread(target=self._finish, args=work, name="hvd-guard", daemon=True)
        self._thread.start()

    def _finish(self, parcel, view, step):
        """The thread."""
        try:
            if parcel is not None:
                parcel.write(view)
            self._files.finish(view, step)
            if _native.is_initialized():
                _native.progress_commit()
        except Exception as e:
            self._error = e

    def wait(self):
        """Returns when the last snapshot of this rank is complete; raises its failure."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    # --- after a failure

    def restore(self):
        """Loads the newest snapshot that a host has. The step after which it was made; 0: there is none.

        A collective: all ranks call it before their first step.
        """
        if self._files is None:
            return 0
        steps = self._files.whole() if _native.local_rank() == 0 else []
        host = os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()
        ranks = objects.allgather_object(_Has(host, steps), name=f"guard.{self._name}")
        self.steps = max((step for has in ranks for step in has.steps), default=0)
        if self.steps:
            self._restore(ranks, host)
        return self.steps

    def _restore(self, ranks, host):
        source = next(rank for rank, has in enumerate(ranks) if self.steps in has.steps)
        having = {has.host for has in ranks if self.steps in has.steps}
        lacking = {has.host for has in ranks} - having
        parcel = self._files.open(self.steps) if host in having else None
        if lacking:
            parcel = self._broadcast(parcel, source, keep=host in lacking)
        for key, state in parcels.read(parcel).items():
            self._of[key].load_state_dict(state)
        if _native.rank() == 0:
            _log.warning(
                "hvd.guard: continues after step %d, from the memory of host %s%s",
                self.steps,
                ranks[source].host,
                f", sent to {', '.join(sorted(lacking))}" if lacking else "",
            )

    def _broadcast(self, parcel, source, keep):
        """The source's parcel on all ranks; kept in a file on hosts without it."""
        size = bytearray(struct.pack("<Q", len(parcel) if parcel is not None else 0))
        objects.broadcast_bytes(f"guard.{self._name}.size", size, source, 0)
        (n,) = struct.unpack("<Q", size)
        if _native.rank() == source:
            parcels.seal(parcel)  # for this world; in this process' copy
            received = bytearray(parcel)
        else:
            received = bytearray(n)
        for start in range(0, n, _AT_ONCE):
            part = received[start : start + _AT_ONCE]
            objects.broadcast_bytes(f"guard.{self._name}.{start}", part, source, 0)
            received[start : start + _AT_ONCE] = part
        parcels.verify(received)
        if keep and _native.local_rank() == 0:
            view = self._files.begin(n)
            view[:] = received
            self._files.finish(view, self.steps)
        return received
