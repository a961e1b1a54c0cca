# SPDX-License-Identifier: Apache-2.0
"""hvd.elastic.ElasticSampler: shares of a data set, and what is left of an epoch after a reset."""

import horovod.torch as hvd
from checks import check, main
from horovod.torch.elastic import ElasticSampler, TorchState

hvd.init()
R, N = hvd.rank(), hvd.size()
LAST = N - 1


def all_of(sampler):
    """Every rank's share of what is left, in rank order."""
    return hvd.allgather_object(list(sampler))


@check
def the_sampler_shares_out_everything_once():
    for count in (0, 1, N, 8 * N, 8 * N + 1):
        for shuffle in (True, False):
            sampler = ElasticSampler(range(count), shuffle=shuffle, seed=3)
            shares = all_of(sampler)
            assert len({len(s) for s in shares}) == 1 and len(shares[0]) == len(sampler)
            assert {i for s in shares for i in s} == set(range(count))
            assert len(shares[0]) == -(-count // N)
    orders = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    assert orders[0] == orders[1]  # not shuffled


@check
def processed_samples_do_not_come_again():
    sampler = ElasticSampler(range(10 * N))
    state = TorchState(sampler=sampler)
    state.sync()
    taken = list(sampler)[:6]
    for i in range(3):
        sampler.record_batch(i, 2)
    assert sampler.processed_num == 6 * N
    state.commit()
    sampler.record_batch(3, 2)
    state.restore()
    assert sampler.processed_num == 6 * N
    state.sync()
    done = {i for t in hvd.allgather_object(taken) for i in t}
    rest = {i for s in all_of(sampler) for i in s}
    assert len(done) == 6 * N and not done & rest and done | rest == set(range(10 * N))
    sampler.set_epoch(1)
    assert len(sampler) == 10 and sampler.processed_num == 0


@check
def ranks_that_took_unequally_many_are_joined():
    count = 12 * N + 1
    for restored in (False, True):
        sampler = ElasticSampler(range(count), seed=5)
        state = TorchState(sampler=sampler)
        state.sync()
        done = set()
        for part in range(2):  # unequal on top of unequal
            mine = list(sampler)[: 2 + R + part]
            sampler.record_batch(0, len(mine))
            state.commit()
            if restored:
                sampler.record_batch(1, 1)
                state.restore()
            state.sync()
            done |= {i for t in hvd.allgather_object(mine) for i in t}
            assert sampler.processed_num == len(done), (sampler.processed_num, len(done))
            shares = all_of(sampler)
            rest = {i for s in shares for i in s}
            assert not done & rest and done | rest == set(range(count))
            assert len({len(s) for s in shares}) == 1


@check
def a_rank_a_commit_ahead_follows_rank_0():
    sampler = ElasticSampler(range(10 * N))
    state = TorchState(sampler=sampler)
    state.sync()
    sampler.record_batch(0, 2)
    state.save()
    if R == LAST and N > 1:
        sampler.record_batch(1, 2)
        state.save()  # the other ranks failed before theirs: sync() takes rank 0's state, without this batch
    state.restore()
    state.sync()
    assert sampler.processed_num == 2 * N, sampler.processed_num


@check
def the_samplers_state_is_horovods_and_more():
    sampler = ElasticSampler(range(8 * N))
    sampler.load_state_dict({"epoch": 3, "processed_num": 2 * N})  # Horovod's
    assert (sampler.epoch, sampler.processed_num, len(sampler)) == (3, 2 * N, 6)
    sampler.record_batch(0, 1)
    kept = sampler.state_dict()
    assert (kept["epoch"], kept["processed_num"]) == (3, 3 * N)
    other = ElasticSampler(range(8 * N))
    other.load_state_dict(kept)
    assert len(other) == 5
    other.processed_num = 7 * N  # as some scripts resume
    other.reset()
    assert len(other) == 1
    other.processed_num = 100 * N
    other.reset()
    assert len(other) == 0 and list(other) == []


@check
def a_sampler_restored_outside_a_world_is_shared_out_in_the_next():
    sampler = ElasticSampler(range(8 * N))
    state = TorchState(sampler=sampler)
    state.sync()
    sampler.record_batch(0, 3)
    state.save()
    hvd.shutdown()
    state.restore()
    hvd.init()
    state.sync()
    assert sampler.processed_num == 3 * N and len(sampler) == 5


main(R)
