# SPDX-License-Identifier: Apache-2.0
"""ElasticSampler: a share of the data set for each rank, and what of an epoch is left after a reset.

All ranks shuffle alike; of what is left, rank r of n takes the places r, r + n, r + 2n, ... What was
processed before the last reset is a list of rounds (n, [samples taken by rank 0, by rank 1, ...]),
each counted in what the rounds before it left. As long as all ranks take equally many that is a
prefix, one number, as in Horovod; where they do not, the union of what each has taken is kept
exactly, and sent as one number per rank and round instead of lists of indices.
"""

import random

import torch.utils.data

from _hvd.basics import is_initialized, rank, size


def _left(order, rounds):
    """What the rounds leave of the order."""
    for n, taken in rounds:
        if len(set(taken)) == 1:  # all alike: a prefix
            order = order[taken[0] * n :]
        else:
            order = [x for place, x in enumerate(order) if place // n >= taken[place % n]]
    return order


def _joined(rounds):
    """The same rounds as one, a prefix, where they are; else unchanged."""
    if all(len(set(taken)) == 1 for _, taken in rounds):
        return [(1, [sum(n * taken[0] for n, taken in rounds)])]
    return rounds


def union(states):
    """One state of a sampler from those of all ranks (state_dict()), rank 0's first.

    A rank whose state does not continue from the same place as rank 0's, or that is not there any
    more, counts as rank 0: it has trained, and its results are in the model.
    """
    first = states[0]
    n, taken = first["num_replicas"], [first["num_samples"]] * first["num_replicas"]
    for other in states[1:]:
        if all(other.get(key) == first[key] for key in ("epoch", "rounds", "num_replicas")):
            taken[other["rank"]] = other["num_samples"]
    return {
        **first,  # a subclass may have more
        "processed_num": first["processed_num"] + sum(taken) - n * first["num_samples"],
        "rounds": _joined([*first["rounds"], (n, taken)]),
        "num_samples": 0,
    }


class ElasticSampler(torch.utils.data.Sampler):
    """Partitions a data set among the ranks, and what is left of it again after each reset.

    1. Put it into the TorchState, and into the DataLoader.
    2. Call record_batch() after each batch.
    3. Call set_epoch() at the end of each epoch: it forgets what was processed.

    dataset: anything with a length that stays. shuffle: in a new order each epoch. seed: the same on
    all ranks.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices = set()  # Horovod's attribute; nothing uses it there either
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices = []
        self.num_samples = 0
        self.total_size = 0
        self.processed_num = 0
        self._rounds = [(1, [0])]
        self._taken = 0  # samples of this rank since the last reset
        self.reset()

    def set_epoch(self, epoch):
        """Starts the next epoch: the whole data set is processed again, in another order.

        Call it at the end of an epoch, not at its start: a repeated start would forget what was processed
        before the failure.
        """
        self.epoch = epoch
        self.processed_num = 0
        self._rounds = [(1, [0])]
        self._taken = 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """batch_size more samples were processed, on this rank and on each other rank."""
        self._taken += batch_size
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self):
        """epoch and processed_num as in Horovod; the rest is for ranks that took unequally many."""
        return {
            "epoch": self.epoch,
            "processed_num": self.processed_num,
            "rounds": list(self._rounds),
            "num_replicas": self.num_replicas,
            "rank": self.rank,
            "num_samples": self._taken,
        }

    def load_state_dict(self, state_dict):
        """Takes a state_dict() of any rank of a world of any size, or Horovod's."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self._rounds = [(n, list(taken)) for n, taken in state_dict.get("rounds", [])]
        if not self._rounds:
            self._rounds = [(1, [self.processed_num])]
        self.num_replicas = state_dict.get("num_replicas", 1)
        self._taken = state_dict.get("num_samples", 0)
        self.reset()

    def _counted(self):
        """processed_num, computed from rounds and samples."""
        return sum(sum(taken) for _, taken in self._rounds) + self._taken * self.num_replicas

    def reset(self):
        """Shares out what is left among the ranks that there are now."""
        if self.processed_num != self._counted():  # processed_num was set by the caller
            self._rounds = [(1, [self.processed_num])]
        elif self._taken:
            taken = [self._taken] * self.num_replicas
            self._rounds = _joined([*self._rounds, (self.num_replicas, taken)])
        self._taken = 0
        if is_initialized() or not self.num_replicas:  # restored after shutdown(): shared out at sync()
            self.num_replicas = size()
            self.rank = rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = _left(order, self._rounds)
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        left = self.remaining_indices
        places = range(self.rank, self.total_size, self.num_replicas)
        # Beyond the end from the beginning again, so that all ranks have equally many: other
        # ranks would wait for a rank with a batch less.
        self.indices = [left[place % len(left)] for place in places]
        return iter(self.indices)

    def __len__(self):
        return self.num_samples
