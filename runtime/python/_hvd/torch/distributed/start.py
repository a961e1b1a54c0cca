# SPDX-License-Identifier: Apache-2.0
"""One world for torch.distributed and Horovod: how groups are created.

init_process_group("hvd") starts the runtime, which finds its place itself (horovodrun, torchrun, mpirun,
srun, alone), or uses the world of hvd.init(); rank and size must equal torch's. torch's store is not used.
The group's timeout is also the start timeout of a world that it forms.
With init_method="hvd://", or without torch's variables (torch_backend.py), torch gets rank and size from
the runtime and its store from rank 0's host.
"""

import os
import socket
from datetime import timedelta

import torch.distributed as dist

from _hvd import _native, basics
from _hvd.objects import broadcast_object
from _hvd.torch.distributed.group import HvdProcessGroup, set_of

_DAY_MS = 86400000  # the longest start timeout of the runtime


def _init(timeout):
    """Joins the world within this timedelta; with torch's default, within HOROVOD_START_TIMEOUT."""
    is_default = timeout == dist.distributed_c10d.default_pg_timeout
    ms = 0 if is_default else min(max(1, round(timeout.total_seconds() * 1000)), _DAY_MS)
    basics.init_within(ms)


def create_group(options, _=None):
    """For register_backend(extended_api=True)."""
    ranks = list(options.global_ranks_in_group)
    timeout = options.timeout.total_seconds()
    if not ranks:
        _init(options.timeout)
        _compare(options.group_rank, options.group_size)
        ranks = list(range(options.group_size))
    return HvdProcessGroup(options.group_rank, ranks, timeout, set_of(ranks))


def _compare(rank, size):
    ours = _native.rank(), _native.size()
    if ours != (rank, size):
        raise RuntimeError(
            f'init_process_group("hvd"): torch says rank {rank} of {size} (its arguments, or RANK and '
            f"WORLD_SIZE), the runtime is rank {ours[0]} of {ours[1]}: {_native.describe()}"
        )


# --- rendezvous: torch's rank, size and store ----------------------------------------------------


def _own_address():
    """An address of this host by which other hosts can reach it."""
    address = os.environ.get("MASTER_ADDR")
    if address:
        return address
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        return "127.0.0.1"


def _store(timeout):
    """torch's TCPStore, served by rank 0 at a free port."""
    rank, size = _native.rank(), _native.size()
    store = None
    if rank == 0:
        store = dist.TCPStore("localhost", 0, size, True, timeout, wait_for_workers=False)
    one_host = _native.local_size() == size
    at = ("127.0.0.1" if one_host else _own_address(), store.port) if rank == 0 else None
    host, port = broadcast_object(at, 0, name="torch.distributed.store")
    return store or dist.TCPStore(host, port, size, False, timeout, wait_for_workers=False)


def rendezvous(url, timeout=timedelta(minutes=30), **_):
    """For register_rendezvous_handler: yields (store, rank, size)."""
    _init(timeout)
    yield _store(timeout), _native.rank(), _native.size()
    raise RuntimeError(f"{url}: ranks cannot meet again")
