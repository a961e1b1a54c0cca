#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on the characters of Python's own documentation, which each Python has.

Each worker draws its batches from its own part of the text. The measure is the perplexity on text
that no worker trains on: among how many characters the model hesitates; untrained about 100.

    horovodrun -np 2 python3 train_tokens.py
    horovodrun -np 2 python3 train_tokens.py --compression bf16   # gradients are sent as 16 bits

Needs torch (1.13 or later); device, output and comparison are train_digits.py's.
"""

import argparse
import math
import sys
from pydoc_data.topics import topics

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from train_digits import pick_device, same_weights, say


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=320, help="of all workers together")
    parser.add_argument("--batch-size", type=int, default=16, help="pieces of text per worker and step")
    parser.add_argument("--context", type=int, default=64, help="characters of a piece")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate of one worker")
    parser.add_argument("--warmup-steps", type=int, default=40, help="to reach the rate of all")
    parser.add_argument("--compression", choices=["none", "fp16", "bf16"], default="none")
    parser.add_argument("--target", type=float, default=16.0, help="perplexity that must be reached")
    return parser.parse_args()


def load(context):
    """(characters that train, held-out pieces, number of different characters), the same everywhere."""
    text = "".join(topics[name] for name in sorted(topics))
    alphabet = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([alphabet[character] for character in text])
    last = len(tokens) // 10 * 9
    held_out = tokens[last : last + 128 * (context + 1)].view(128, context + 1)
    return tokens[:last], held_out, len(alphabet)


class Model(torch.nn.Module):
    def __init__(self, n_tokens, context, width=64, n_layers=2):
        super().__init__()
        self.token = torch.nn.Embedding(n_tokens, width)
        self.place = torch.nn.Embedding(context, width)
        sizes = {"nhead": 4, "dim_feedforward": 4 * width, "dropout": 0.0}
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, batch_first=True, norm_first=True, **sizes)
            for _ in range(n_layers)
        )
        self.norm = torch.nn.LayerNorm(width)
        self.out = torch.nn.Linear(width, n_tokens)
        # no character sees those behind it
        self.register_buffer("mask", torch.full((context, context), -math.inf).triu(1))

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight
        for layer in self.layers:
            x = layer(x, src_mask=self.mask)
        return self.out(self.norm(x))


def loss_of(model, pieces, reduction="mean"):
    """Each character is to be predicted from those before it."""
    return F.cross_entropy(model(pieces[:, :-1]).transpose(1, 2), pieces[:, 1:], reduction=reduction)


def perplexity(model, pieces):
    """Over all workers: each tests its share, and sums are added, so shares may differ in size."""
    model.eval()
    mine = pieces[hvd.rank() :: hvd.size()]
    with torch.no_grad():
        total = loss_of(model, mine, "sum")
    total = hvd.allreduce(total, op=hvd.Sum, name="perplexity").item()
    return math.exp(total / pieces[:, 1:].numel())


def main():
    args = parse_arguments()
    hvd.init()
    device = pick_device()
    torch.manual_seed(1)
    train, held_out, n_tokens = load(args.context)
    mine = train.chunk(hvd.size())[hvd.rank()].to(device)
    model = Model(n_tokens, args.context).to(device)
    # n workers use n times the batch, so n times the rate, which is reached slowly
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr * hvd.size())
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / args.warmup_steps))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), compression=getattr(hvd.Compression, args.compression)
    )

    torch.manual_seed(hvd.rank())  # each worker draws other pieces
    places = torch.arange(args.context + 1, device=device)
    steps = args.steps // hvd.size()
    for step in range(steps):
        starts = torch.randint(len(mine) - args.context, (args.batch_size, 1)).to(device)
        optimizer.zero_grad()
        loss = loss_of(model, mine[starts + places])
        loss.backward()
        optimizer.step()
        warm.step()
        if (step + 1) % 50 == 0:
            mean = hvd.allreduce(loss.detach(), name="loss").item()
            say(f"step {step + 1}  loss {mean:.4f}")

    reached = perplexity(model, held_out.to(device))
    same = same_weights(model)
    say(f"train_tokens: held-out perplexity {reached:.2f}, gradients sent as {args.compression}")
    if reached > args.target or not same:
        sys.exit(f"train_tokens: should reach {args.target}, with the same weights everywhere")


if __name__ == "__main__":
    main()
