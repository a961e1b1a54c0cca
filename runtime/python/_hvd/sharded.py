# SPDX-License-Identifier: Apache-2.0
"""State of which each rank has parts of its own: a commit also goes to the memory of another host.

    commit n                                    training                     commit n + 1
    |-- wait for the copy of n - 1                                           |-- wait for the copy of n
    |-- all ranks' sizes: the copies of n - 1 are on all ranks               |   ...
    |-- drop n - 2, write n into its buffers                                 |-- drop n - 1
    '-- start the copy of n - - - - 4 MiB at a time - - - - - - - - - - - -> |

    after a loss, sync(): inventories of all ranks -> neighbours.py: the newest whole commit, who gets
    which part -> parts that a rank lacks are sent -> load_parts() -> rank 0's replicated state -> a first
    commit, with its copy

A mixin for a State, in front of it. The replicated state of the two newest commits is kept too, because the
newest commit may not be whole when a rank is lost.

Invariants
 - One whole commit exists at any time. A rank that drops n - 2 has the sizes of all ranks for commit n, and
   each of them sent its size when its copies of n - 1 had arrived.
 - Memory of a rank: two commits of its own parts and of those whose copies it holds.
 - After sync() all ranks are at the same commit, with its replicated state, and each part has its copy.
"""

import logging
import os
import socket
import struct
import time

from _hvd import _native, handles, neighbours, objects, parcels
from _hvd.exceptions import HostsUpdatedInterrupt, StateLostError
from _hvd.exchange import Exchange

_log = logging.getLogger("horovod.elastic")
_SIZE = struct.Struct("<Q")


def _host():
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()


class _Buffers:
    """Buffers of dropped commits, for the next one: the kernel has to clear new memory."""

    def __init__(self):
        self._spare = {}

    def give(self, buffers):
        """Keeps these and no others."""
        self._spare = {}
        for buffer in buffers:
            self._spare.setdefault(len(buffer), []).append(buffer)

    def make(self, n):
        spare = self._spare.get(n)
        return spare.pop() if spare else bytearray(n)


class _Copying:
    """A copy on its way: the exchange, and the parts that it brings."""

    def __init__(self, commit, exchange, arriving):
        self.commit, self.exchange, self.arriving = commit, exchange, arriving


class Sharded:
    """save_parts(): {name: object} of this rank, called at each commit. Names are ints or strs.

    load_parts({name: object}): called on all ranks by sync() with the parts that this rank now has.
    """

    def _init_parts(self, save_parts, load_parts):
        self._save_parts, self._load_parts = save_parts, load_parts
        self._forget()

    def _forget(self):
        self._manifests = {}  # commit: [neighbours.Part]
        self._parts = {}  # commit: {name: buffer}, own ones and copies
        self._own = {}  # commit: [names]
        self._replicas = {}  # commit: the state's kept()
        self._buffers = _Buffers()
        self._copying = None
        self._commit = None  # the last one: (world, number)
        self._manifest = None  # of this world

    # --- commits

    def commit(self):
        handles.settle()
        self._keep_commit()
        self._count_commit()
        self.check_host_updates()

    def check_host_updates(self):
        try:
            super().check_host_updates()
        except HostsUpdatedInterrupt:
            self._spread_copy()  # a rank may leave now
            raise

    def restore(self):
        if self._copying is not None:
            self._copying.exchange.stop()
        super().restore()

    def _finish_copy(self):
        if self._copying is not None:
            self._copying.exchange.wait()
            self._parts[self._copying.commit].update(self._copying.arriving)
            self._copying = None

    def _spread_copy(self):
        """Returns when all ranks have their copies of the last commit. A collective."""
        self._finish_copy()
        handles.barrier(0)

    def _describe_world(self, names):
        """Makes the manifest of this world's commits. A collective."""
        if len(set(map(type, names)) - {int, str}):
            raise ValueError(f"elastic state: names of parts must be ints or strs, not {names}")
        ranks = objects.allgather_object((_host(), names), name="elastic.parts")
        hosts = [host for host, _ in ranks]
        holders = neighbours.holders(hosts)
        if _native.rank() == 0 and len(set(hosts)) == 1:
            where = "on this host too, because there is no other one" if len(hosts) > 1 else "nowhere"
            _log.warning("hvd.elastic: the copies of the state's parts are kept %s", where)
        self._manifest = []
        for rank, (host, of_rank) in enumerate(ranks):
            holder = holders[rank]
            held_at = None if holder is None else (holder, hosts[holder])
            self._manifest += [neighbours.Part(name, (rank, host), held_at) for name in of_rank]
        every = [part.name for part in self._manifest]
        if len(set(every)) < len(every):
            raise ValueError(f"elastic state: ranks have parts of the same name; the names are {every}")
        self._names = names

    def _keep_commit(self):
        parts = {name: parcels.Parcel(part) for name, part in self._save_parts().items()}
        if self._manifest is None:
            self._describe_world(list(parts))
        if set(parts) != set(self._names):
            raise ValueError(
                f"elastic state: save_parts() returned the parts {list(parts)}, and {self._names} before; "
                "they may change in load_parts() only"
            )
        self._finish_copy()
        sizes = self._gather_sizes(parts)
        self._drop_all_but(self._commit)
        self._number += 1
        self._commit = (self._world, self._number)
        self.save()
        self._replicas[self._commit] = self.kept()
        self._write(parts)
        self._start_copy(sizes)

    def _gather_sizes(self, parts):
        """{name: bytes} of all ranks' parts. Ends when all ranks have their copies of the last commit."""
        record = bytearray().join(_SIZE.pack(parts[name].size) for name in self._names)
        every = objects.allgather_bytes("elastic.sizes", record, 0)
        return {part.name: n for part, (n,) in zip(self._manifest, _SIZE.iter_unpack(every))}

    def _drop_all_but(self, commit):
        dropped = []
        for of_commits in (self._manifests, self._own, self._replicas, self._parts):
            for old in [c for c in of_commits if c != commit]:
                gone = of_commits.pop(old)
                if of_commits is self._parts:
                    dropped += gone.values()
        self._buffers.give(dropped)

    def _write(self, parts):
        written = {}
        for name in self._names:
            written[name] = self._buffers.make(parts[name].size)
            parts[name].write(written[name])
        self._manifests[self._commit] = self._manifest
        self._own[self._commit] = self._names
        self._parts[self._commit] = written

    def _start_copy(self, sizes):
        sends, receives, streams = {}, {}, {}
        rank = _native.rank()
        arriving = {}
        for part in self._manifest:
            if part.holder is None:
                continue
            owner, holder = part.owner[0], part.holder[0]
            streams[owner, holder] = streams.get((owner, holder), 0) + sizes[part.name]
            if owner == rank:
                sends.setdefault(holder, []).append(self._parts[self._commit][part.name])
            elif holder == rank:
                arriving[part.name] = self._buffers.make(sizes[part.name])
                receives.setdefault(owner, []).append(arriving[part.name])
        exchange = Exchange(sends, receives, max(streams.values(), default=0))
        self._copying = _Copying(self._commit, exchange.start(), arriving)

    # --- a new world

    def _inventory(self):
        parts = {commit: {n: len(b) for n, b in of.items()} for commit, of in self._parts.items()}
        return neighbours.Inventory(self._manifests, parts, self._own, list(self._replicas))

    def _end_copy(self):
        """Of an earlier world. What has arrived counts if it is complete."""
        if self._copying is not None:
            self._copying.exchange.stop()
            if self._copying.exchange.is_done:
                self._parts[self._copying.commit].update(self._copying.arriving)
            self._copying = None

    def sync(self):
        self._end_copy()
        mine = (self._inventory(), time.time_ns() // 1000)
        inventories, times = zip(*objects.allgather_object(mine, name="elastic.inventory"))
        worlds = [commit[0] for inventory in inventories for commit in inventory.manifests]
        commit, lost = neighbours.newest_whole(inventories)
        if lost:
            self._forget()
            raise StateLostError(neighbours.sentence(lost))
        if commit is not None:
            if commit in self._replicas:
                self.take(self._replicas[commit])
            self._move_parts(commit, inventories)
        super().sync()
        self._drop_all_but(commit)
        # The recovered commit is kept until the second one of this world, as any other.
        self._commit, self._manifest = commit, None
        self._world, self._number = max([*times, *(world + 1 for world in worlds)]), 0
        self._keep_commit()
        self._spread_copy()

    def _move_parts(self, commit, inventories):
        """Parts of the commit go where this world's assignment has them, and are loaded. A collective."""
        owned = {name: r for r, i in enumerate(inventories) for name in i.own.get(commit, ())}
        manifest = next(i.manifests[commit] for i in inventories if commit in i.manifests)
        names = [part.name for part in manifest]
        assignment = neighbours.assign(names, owned, len(inventories))
        rank, ours = _native.rank(), self._parts.setdefault(commit, {})
        sends, receives, streams = {}, {}, {}
        for name, source, to in neighbours.transfers(commit, assignment, inventories):
            n = inventories[source].parts[commit][name]
            streams[source, to] = streams.get((source, to), 0) + n
            if source == rank:
                parcels.seal(ours[name])  # for this world
                sends.setdefault(to, []).append(ours[name])
            elif to == rank:
                ours[name] = bytearray(n)
                receives.setdefault(source, []).append(ours[name])
        Exchange(sends, receives, max(streams.values(), default=0), "elastic.move").run()
        mine = [name for name in names if assignment[name] == rank]
        self._manifests[commit] = manifest
        self._load_parts({name: parcels.read(ours[name]) for name in mine})
