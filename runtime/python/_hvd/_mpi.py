# SPDX-License-Identifier: Apache-2.0
"""Communicators of mpi4py as lists of ranks.

The runtime never calls MPI: mpi4py translates the ranks of a communicator to those of MPI_COMM_WORLD, which
are the job's ranks where MPI's launcher has started it. mpi4py is not imported here: a caller with a
communicator has imported it.
"""

import os
import sys


def _module():
    return sys.modules.get("mpi4py.MPI")


def is_comm(value):
    mpi = _module()
    return mpi is not None and isinstance(value, mpi.Comm)


def world_size():
    return _module().COMM_WORLD.Get_size()


def ranks_of(comm):
    """The ranks of MPI_COMM_WORLD that comm has, in comm's order, as a tuple."""
    mpi = _module()
    if comm == mpi.COMM_NULL:
        raise ValueError(
            "comm is MPI.COMM_NULL: the Split() left out this process; call no hvd.init() here, or call "
            "it with a communicator that contains this process"
        )
    if world_size() == 1 and os.environ.get("HOROVOD_SIZE", "1") != "1":
        raise ValueError(  # MPI_Init ran in a process that no MPI launcher has started
            "comm is an MPI communicator, but MPI_COMM_WORLD has this process alone in a job of "
            f"{os.environ['HOROVOD_SIZE']} ranks; start it with mpirun, mpiexec or srun, or pass comm "
            "a list of ranks"
        )
    if comm.Is_inter():
        raise ValueError("comm is an intercommunicator; hvd.init() takes one group: pass comm.Merge()")
    group, world = comm.Get_group(), mpi.COMM_WORLD.Get_group()
    try:
        n = group.Get_size()
        translate = type(group).Translate_ranks  # static in mpi4py 3, a method in 4: both take this
        ranks = translate(group, list(range(n)), world)
    finally:
        group.Free()
        world.Free()
    if any(rank < 0 for rank in ranks):  # MPI.UNDEFINED
        raise ValueError("comm has ranks that are not in MPI_COMM_WORLD (of Spawn or Connect)")
    return tuple(int(rank) for rank in ranks)
