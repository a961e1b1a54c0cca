# SPDX-License-Identifier: Apache-2.0
"""Images of ten kinds that a linear model can tell apart, without a file."""

import numpy as np

KINDS = np.random.RandomState(0).uniform(size=[10, 64])


def batches(rank, size):
    """Endless (images [size, 64] of float32, labels [size] of int64), others on each rank."""
    random = np.random.RandomState(1 + rank)
    while True:
        labels = random.randint(0, 10, size)
        yield (KINDS[labels] + 0.3 * random.normal(size=[size, 64])).astype("float32"), labels
