#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures training on synthetic images: images per second, of one worker and of all.

The flags and the result are those of Horovod's pytorch_synthetic_benchmark.py, so figures can be
compared. Models are torchvision's, where it is installed; resnet18 to resnet152 and a small one for
CPUs are here.

    horovodrun -np 2 python3 synthetic_benchmark.py --model small --image-size 32

Needs torch (1.13 or later).
"""

import argparse
import timeit

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch import nn

try:
    from torchvision import models
except ImportError:
    models = None

# blocks in each of the four stages, and whether a block is a bottleneck
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", default="resnet50", help="small, resnet50 or torchvision's")
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    parser.add_argument("--image-size", type=int, default=224, help="pixels each way")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="not measured")
    parser.add_argument("--num-batches-per-iter", type=int, default=10, help="steps per measurement")
    parser.add_argument("--num-iters", type=int, default=10, help="measurements")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as 16 bits")
    parser.add_argument("--use-adasum", action="store_true", help="reduce by Adasum, not average")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    return parser.parse_args()


def conv(inputs, outputs, size, stride=1):
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    """A residual block: two convolutions of 3 x 3, or a bottleneck of 1 x 1, 3 x 3, 1 x 1."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = width * 4 if bottleneck else width
        if bottleneck:
            layers = [*conv(inputs, width, 1), nn.ReLU(), *conv(width, width, 3, stride), nn.ReLU()]
            layers += conv(width, outputs, 1)
        else:
            layers = [*conv(inputs, width, 3, stride), nn.ReLU(), *conv(width, width, 3)]
        self.body = nn.Sequential(*layers)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv(inputs, outputs, 1, stride))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def resnet(stages, bottleneck):
    """The ImageNet ResNets, with as many parameters as torchvision's (resnet50: 25,557,032)."""
    layers = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for i, blocks in enumerate(stages):
        width = 64 << i
        for b in range(blocks):
            layers.append(Block(inputs, width, 2 if i > 0 and b == 0 else 1, bottleneck))
            inputs = width * 4 if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def small():
    """0.6 million parameters and little computation: for tests on a CPU."""
    layers = [*conv(3, 16, 3, 2), nn.ReLU(), *conv(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 400), nn.ReLU(), nn.Linear(400, 1000))


def make_model(name):
    if name == "small":
        return small()
    if models is not None and callable(getattr(models, name, None)):
        return getattr(models, name)()
    if name in RESNETS:
        return resnet(*RESNETS[name])
    more = "" if models is not None else "; torchvision, which is not installed, has more"
    raise SystemExit(f"synthetic_benchmark: no model '{name}': small, {', '.join(RESNETS)}{more}")


def log(text):
    if hvd.rank() == 0:
        print(text, flush=True)


def same_weights(model):
    """Whether all workers hold the same parameters."""
    sums = torch.stack([p.detach().double().sum() for p in model.parameters()])
    everywhere = hvd.allgather(sums[None])
    return bool((everywhere == everywhere[0]).all())


def main():
    args = parse_arguments()
    hvd.init()
    cuda = torch.cuda.is_available() and hvd.nccl_built() and not args.no_cuda
    if cuda:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())  # or the only one it sees
        torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if cuda else "cpu")
    unit = "GPU" if cuda else "CPU"

    model = make_model(args.model).to(device)
    # Adasum's steps are as large as one worker's; on GPUs, it averages within a host first
    lr_scale = hvd.size() if not args.use_adasum else hvd.local_size() if cuda else 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * lr_scale)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    data = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=device)
    target = torch.randint(0, 1000, (args.batch_size,), device=device)

    def steps(n):
        for _ in range(n):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
        if cuda:
            torch.cuda.synchronize()  # wait until the work is done before the clock is read

    log(f"Model: {args.model}")
    log(f"Batch size: {args.batch_size}")
    log(f"Number of {unit}s: {hvd.size()}")
    log("Running warmup...")
    steps(args.num_warmup_batches)
    log("Running benchmark...")
    rates = []
    for i in range(args.num_iters):
        seconds = timeit.timeit(lambda: steps(args.num_batches_per_iter), number=1)
        rates.append(args.batch_size * args.num_batches_per_iter / seconds)
        log(f"Iter #{i}: {rates[-1]:.1f} img/sec per {unit}")

    # of all workers, not of rank 0 alone
    rates = hvd.allreduce(torch.tensor(rates, dtype=torch.float64), name="rates")
    mean, spread = rates.mean().item(), 1.96 * rates.std(unbiased=False).item()
    n = hvd.size()
    log(f"Img/sec per {unit}: {mean:.1f} +-{spread:.1f}")
    log(f"Total img/sec on {n} {unit}(s): {n * mean:.1f} +-{n * spread:.1f}")
    if not same_weights(model):
        raise SystemExit("synthetic_benchmark: the workers hold different weights")


if __name__ == "__main__":
    main()
