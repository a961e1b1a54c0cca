# SPDX-License-Identifier: Apache-2.0
"""The model that train.py and tests/bench/elastic_torch.py train, without Horovod.

It depends on the order of steps and the samples of each, and on nothing else: not on the number of ranks
that share a step, and not on restarts. So a disturbed training must end with the bits of an
undisturbed one, whatever the sizes of its worlds were. Why:
 - Weights, inputs and targets are multiples of 2^-16 and small, and after each step weights and momentum
   are rounded to such multiples. The sum of gradients is then exact in float64, in any order and partition.
 - `history` mixes the weights of every step in, so that a wrong step is not forgotten by later ones.
"""

import hashlib

import torch

INPUTS, OUTPUTS, GRAIN = 8, 4, 2.0**16


class Samples(torch.utils.data.Dataset):
    """Small integers from a hash of the index: (index, input, target). The targets fit no model."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        digest = hashlib.sha256(b"%d" % i).digest()
        values = torch.tensor([x % 9 - 4 for x in digest[: INPUTS + OUTPUTS]], dtype=torch.float64)
        return i, values[:INPUTS], values[INPUTS:]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(INPUTS, OUTPUTS).double()
        torch.nn.init.zeros_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)
        self.register_buffer("history", torch.zeros(OUTPUTS, INPUTS, dtype=torch.int64))

    def forward(self, x):
        return self.linear(x)

    def loss(self, inputs, targets):
        """A sum over the samples; the gradients of ranks are added."""
        return (self(inputs) - targets).square().sum() / 2

    def optimizer(self, batch):
        return torch.optim.SGD(self.parameters(), lr=1 / (16 * batch), momentum=0.5)

    @torch.no_grad()
    def finish_step(self, optimizer):
        """Rounds what the optimizer has changed, so that the next step's sums are exact, too."""
        for p in self.parameters():
            p.copy_((p * GRAIN).round() / GRAIN)
            momentum = optimizer.state[p]["momentum_buffer"]
            momentum.copy_((momentum * GRAIN).round() / GRAIN)
        self.history.mul_(6364136223846793005).add_((self.linear.weight * GRAIN).long())

    def digest(self):
        """SHA-256 of all parameters' and buffers' bytes."""
        sha = hashlib.sha256()
        for _, value in sorted(self.state_dict().items()):
            sha.update(value.contiguous().numpy().tobytes())
        return sha.hexdigest()
