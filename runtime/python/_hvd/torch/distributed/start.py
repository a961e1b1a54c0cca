# SPDX-License-Identifier: Apache-2.0
"""One world for torch.distributed and Horovod: how groups are created.

init_process_group("hvd") starts the runtime, which finds its place itself (horovodrun, torchrun, mpirun,
srun, alone), or uses the world of hvd.init(); rank and size must equal torch's. torch's store is not used.
With init_method="hvd://", or without torch's variables once this package was imported, torch gets rank and
size from the runtime and its store from rank 0's host.
"""

import importlib
import os
import socket
from datetime import timedelta

import torch.distributed as dist

from _hvd import _native, basics, process_sets
from _hvd.objects import broadcast_object
from _hvd.torch.distributed.group import HvdProcessGroup

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def create_group(options, _=None):
    """For register_backend(extended_api=True)."""
    ranks = list(options.global_ranks_in_group)
    timeout = options.timeout.total_seconds()
    if not ranks:
        basics.init()
        _compare(options.group_rank, options.group_size)
        ranks = list(range(options.group_size))
    return HvdProcessGroup(options.group_rank, ranks, timeout, _set_of(ranks))


def _compare(rank, size):
    ours = _native.rank(), _native.size()
    if ours != (rank, size):
        raise RuntimeError(
            f'init_process_group("hvd"): torch says rank {rank} of {size} (its arguments, or RANK and '
            f"WORLD_SIZE), the runtime is rank {ours[0]} of {ours[1]}: {_native.describe()}"
        )


def _set_of(ranks):
    """Number of the process set of these global ranks."""
    if ranks != sorted(ranks):
        raise NotImplementedError(
            f"new_group: ranks {ranks} must ascend; sort_ranks=False is not supported"
        )
    if ranks == list(range(_native.size())):
        return 0
    return process_sets.with_signals(_native.set_meet, tuple(ranks))


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
    basics.init()
    yield _store(timeout), _native.rank(), _native.size()
    raise RuntimeError(f"{url}: ranks cannot meet again")


def use_own_discovery():
    """env:// without torch's variables becomes hvd://."""
    # By its name: the package has a function that is called like it.
    module = importlib.import_module("torch.distributed.rendezvous")
    handlers = module._rendezvous_handlers
    original = handlers.get("env")
    if original is None or getattr(original, "is_hvd", False):
        return

    def env_or_hvd(url, *args, **kwargs):
        if "?" in url or any(v in os.environ for v in _VARIABLES):
            return original(url, *args, **kwargs)
        return rendezvous(url, **kwargs)

    env_or_hvd.is_hvd = True
    handlers["env"] = env_or_hvd
