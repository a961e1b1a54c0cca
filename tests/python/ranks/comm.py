# SPDX-License-Identifier: Apache-2.0
"""hvd.init(comm=[...]) in four ranks: two halves at once, then other parts, then all."""

import os

import horovod.torch as hvd
import numpy
import torch
from checks import check, expect_error, main

R = int(os.environ.get("HOROVOD_RANK") or os.environ["RANK"])  # in the job
HALVES = [2, 0], [1, 3]
MINE = HALVES[R % 2]
torch.set_num_threads(1)


def of(rank):
    """What each rank gives: any rank's can be computed everywhere."""
    return numpy.random.RandomState(rank).rand(3, 2).astype("float32")


def told(ranks):
    """Every collective in a world of these ranks, against numpy."""
    assert (hvd.rank(), hvd.size()) == (ranks.index(R), len(ranks))
    assert (hvd.local_rank(), hvd.local_size()) == (ranks.index(R), len(ranks))
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
    mine, theirs = torch.from_numpy(of(R)), [of(r) for r in ranks]
    mean = hvd.allreduce(mine, name="mean").numpy()
    numpy.testing.assert_allclose(mean, sum(theirs) / len(ranks), rtol=1e-6)
    assert (hvd.allgather(mine, name="gather").numpy() == numpy.concatenate(theirs)).all()
    last = len(ranks) - 1
    assert (hvd.broadcast(mine, last, name="from the last").numpy() == theirs[last]).all()
    assert hvd.allgather_object(R) == ranks
    if len(ranks) == 2:
        rows, splits = hvd.alltoall(mine, splits=torch.tensor([1, 2]), name="rows")
        at = ranks.index(R)
        want = [t[:1] if at == 0 else t[1:] for t in theirs]
        assert (rows.numpy() == numpy.concatenate(want)).all() and splits.tolist() == [1 + at, 1 + at]


hvd.init(comm=MINE)


@check
def two_halves_are_two_worlds():
    told(MINE)
    hvd.init(comm=MINE)  # the same again
    hvd.init()
    expect_error(ValueError, ["called before", "hvd.shutdown() between"], hvd.init, comm=MINE[::-1])
    assert hvd.size() == 2


@check
def process_sets_are_of_the_world():
    one = hvd.add_process_set([1])
    assert one.included() == (hvd.rank() == 1)
    if one.included():
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=one).item() == 1
    hvd.barrier()
    hvd.remove_process_set(one)


@check
def elastic_meets_the_same_ranks_again():
    runs = []

    @hvd.elastic.run
    def train(state):
        runs.append(hvd.size())
        told(MINE)
        if len(runs) == 1:
            raise hvd.HorovodInternalError("once")

    train(hvd.elastic.TorchState(step=0))
    assert runs == [2, 2]


@check
def the_other_lists_follow():
    hvd.shutdown()
    expect_error(
        ValueError, [f"does not include this process, rank {R} of 4"], hvd.init, comm=HALVES[1 - R % 2]
    )
    expect_error(ValueError, ["rank 1 is listed twice"], hvd.init, comm=[1, 1])
    expect_error(ValueError, ["comm=[0, 9]: 9 is not a rank of this job"], hvd.init, comm=[0, 9])
    if R == 3:  # alone, with a set of its own world
        hvd.init(comm=[3], process_sets=[])
        told([3])
    else:
        first = hvd.ProcessSet([0, 2])
        hvd.init(comm=[0, 1, 2], process_sets=[first])
        told([0, 1, 2])
        if first.included():
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="first", process_set=first).item() == 2
    hvd.barrier()  # who leaves ends what others still do
    hvd.shutdown()
    hvd.init()
    told([0, 1, 2, 3])


main(R)
