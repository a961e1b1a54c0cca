# SPDX-License-Identifier: Apache-2.0
"""bench_train.py MODEL ddp|ours STEPS: training steps on the GPU; rank 0 prints the median as JSON.

MODEL: resnet50 (torchvision's, batch 32) or transformer (24 layers, as in bench.py's list, 8 x 256 tokens).
Both sides have the same model, data, optimizer and, but for gradients' averages, code.
"""

import json
import sys
import time

import torch

MODEL, PEER, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])


def model():
    if MODEL == "resnet50":
        from torchvision.models import resnet50

        return resnet50(), torch.randn(32, 3, 224, 224), torch.randint(1000, (32,))
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, batch_first=True)
    net = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 24), torch.nn.Linear(1024, 1000))
    return net, torch.randn(8, 256, 1024), torch.randint(1000, (8, 256))


def main():
    torch.manual_seed(1)
    torch.cuda.set_device(0)
    net, x, y = model()
    net, x, y = net.cuda(), x.cuda(), y.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    if PEER == "ddp":
        import torch.distributed as dist

        dist.init_process_group("nccl")
        rank, size = dist.get_rank(), dist.get_world_size()
        net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    else:
        import horovod.torch as hvd

        hvd.init()
        rank, size = hvd.rank(), hvd.size()
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    loss_of = torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss = loss_of(net(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    row = {"part": "train", "peer": PEER, "model": MODEL, "ranks": size, "loss": float(loss)}
    if rank == 0:
        print(json.dumps({**row, "median_us": sorted(times)[STEPS // 2] * 1e6, "n": STEPS}), flush=True)
    if PEER == "ddp":
        dist.destroy_process_group()
    else:
        hvd.shutdown()


main()
