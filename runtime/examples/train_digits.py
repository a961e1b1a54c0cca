#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small CNN on scikit-learn's handwritten digits, each worker on its own digits only.

Worker k of n sees only its share of the ten classes (of two workers, the first sees 0 to 4 and the
second 5 to 9). Neither could learn the other's digits: only averaging the gradients of all workers
makes a model that knows all ten. At the end the held-out accuracy on all ten digits is measured and
the workers compare a hash of their weights.

    horovodrun -np 2 python3 train_digits.py
    horovodrun -np 2 python3 train_digits.py --checkpoint digits.pt   # resumes where it was stopped
    horovodrun -np 2 python3 train_digits.py --no-average     # fails: shows that averaging works

Needs torch (1.13 or later) and scikit-learn.
"""

import argparse
import hashlib
import os
import platform
import sys

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

CLASSES = 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.03, help="learning rate of one worker")
    parser.add_argument("--warmup-epochs", type=float, default=3.0, help="to reach the rate of all")
    parser.add_argument("--checkpoint", metavar="FILE", help="saved each epoch; there: resumed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.97, help="accuracy that must be reached")
    parser.add_argument("--no-average", action="store_true", help="do not average gradients")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    return parser.parse_args()


def say(text):
    """Prints on one worker only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def pick_device(no_cuda=False):
    """This worker's GPU, where there are any and hvd can reduce on them; else the CPU."""
    if torch.cuda.is_available() and hvd.nccl_built() and not no_cuda:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())  # or the only one it sees
        return torch.device("cuda", torch.cuda.current_device())
    torch.set_num_threads(1)  # the workers of a host share its cores
    return torch.device("cpu")


def load(device):
    """(train images, train labels, held-out images, held-out labels), the same on every worker."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    held_out = torch.arange(len(labels)) % 5 == 0
    parts = images[~held_out], labels[~held_out], images[held_out], labels[held_out]
    return tuple(part.to(device) for part in parts)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = torch.nn.Linear(32 * 4 * 4, 64)
        self.out = torch.nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        x = F.relu(self.hidden(F.dropout(x, 0.25, self.training)))
        return self.out(x)


def accuracy(model, images, labels):
    """The accuracy over all workers: each tests its share, and the right ones are summed."""
    model.eval()
    with torch.no_grad():
        mine = slice(hvd.rank(), None, hvd.size())
        right = (model(images[mine]).argmax(1) == labels[mine]).sum()
    return hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(labels)


def same_weights(model):
    """Whether all workers hold the same weights, bit by bit; prints the result."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    hashes = hvd.allgather_object(digest.hexdigest()[:16])
    if len(set(hashes)) == 1:
        say(f"all {hvd.size()} workers hold identical weights (sha256 {hashes[0]})")
    else:
        say("the workers hold different weights: " + " ".join(hashes))
    return len(set(hashes)) == 1


def start(path, model, optimizer):
    """Puts all workers in one state: rank 0's, from its checkpoint if there is one.

    Returns the epochs that are done. Only rank 0 needs to see the file.
    """
    epoch = 0
    if hvd.rank() == 0 and path and os.path.exists(path):
        saved = torch.load(path, map_location="cpu")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch = saved["epoch"]
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    epoch = hvd.broadcast_object(epoch, root_rank=0)
    if epoch:
        say(f"resumed after epoch {epoch} from {path}")
    return epoch


def save(path, model, optimizer, epoch):
    """Rank 0 writes a checkpoint; one that is replaced is never half written."""
    if hvd.rank() == 0 and path:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, f"{path}.new")
        os.replace(f"{path}.new", path)


def learning_rate(args, progress):
    """After so many epochs: warms up from one worker's to the sum of all, then falls to zero.

    n workers take steps of n times the batch, so n times the rate; at once would be too much.
    So would more than 4 times be for this model: that is found by trying.
    """
    top = args.lr * min(hvd.size(), 4)
    if progress < args.warmup_epochs:
        return args.lr + (top - args.lr) * progress / args.warmup_epochs
    return top * (args.epochs - progress) / (args.epochs - args.warmup_epochs)


def worker_of(labels):
    """For each label, the worker that trains on it: each worker has an equal run of classes."""
    return torch.div(labels * hvd.size(), CLASSES, rounding_mode="floor")


def train(model, optimizer, images, labels, args, done):
    mine = (worker_of(labels) == hvd.rank()).nonzero().flatten()
    digits = " ".join(str(c) for c in labels[mine].unique().tolist())
    text = f"worker {hvd.rank()} of {hvd.size()} on {platform.node()} trains on the digits {digits}"
    say("\n".join(hvd.allgather_object(f"{text} ({len(mine)} images)")))
    # every worker takes the same number of steps, whatever its share is
    steps = -(-int(worker_of(labels).bincount().max()) // args.batch_size)
    for epoch in range(done, args.epochs):
        model.train()
        torch.manual_seed((args.seed * 1000 + epoch) * 1000 + hvd.rank())
        # the smallest share is more than a third of the largest
        order = mine[torch.randperm(len(mine)).to(mine.device)].repeat(3)
        total = 0.0
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(args, epoch + step / steps)
            batch = order[step * args.batch_size : (step + 1) * args.batch_size]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
            hvd.progress(epoch * steps + step + 1, args.epochs * steps, epoch + 1, args.epochs)
        mean = hvd.allreduce(torch.tensor(total / steps), name="loss")
        save(args.checkpoint, model, optimizer, epoch + 1)
        say(f"epoch {epoch + 1:2d}  loss {mean.item():.4f}")


def main():
    args = parse_arguments()
    hvd.init()
    if hvd.size() > CLASSES:
        sys.exit(f"train_digits: {hvd.size()} workers, but only {CLASSES} digits to share out")
    device = pick_device(args.no_cuda)
    torch.manual_seed(args.seed)
    images, labels, held_out_images, held_out_labels = load(device)

    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    done = start(args.checkpoint, model, optimizer)
    if args.no_average:
        say("averaging of gradients is switched off")
    else:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    train(model, optimizer, images, labels, args, done)

    reached = accuracy(model, held_out_images, held_out_labels)
    say(f"held-out accuracy on all ten digits: {reached:.3f} ({len(held_out_labels)} images)")
    same = same_weights(model)
    hvd.shutdown()
    if reached < args.target:
        sys.exit(f"train_digits: accuracy {reached:.3f} is below the target {args.target}")
    if not same:
        sys.exit("train_digits: the workers hold different weights")


if __name__ == "__main__":
    main()
