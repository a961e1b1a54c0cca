# SPDX-License-Identifier: Apache-2.0
"""bench_train.py MODEL PEER STEPS: training steps on the GPU; rank 0 prints the median as JSON.

MODEL: resnet50 (torchvision's, batch 32) or transformer (24 layers, as in bench.py's list, 8 x 256 tokens).
PEER: ddp (torch's DistributedDataParallel over its own NCCL back end), ddp-hvd (the same over the back end
"hvd") or ours (hvd.DistributedOptimizer). They have the same model, data, optimizer and, but for gradients'
averages, code.
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
    if PEER in ("ddp", "ddp-hvd"):
        import torch.distributed as dist

        if PEER == "ddp":
            dist.init_process_group("nccl")
        else:
            import horovod.torch.distributed  # noqa: F401  (makes the name known)

            dist.init_process_group("hvd", init_method="hvd://")
        rank, size = dist.get_rank(), dist.get_world_size()
        net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    elif PEER == "ours":
        import horovod.torch as hvd

        hvd.init()
        rank, size = hvd.rank(), hvd.size()
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    else:
        sys.exit(f"bench_train.py: no peer is called {PEER}")
    loss_of = torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss = loss_of(net(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):
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
    if PEER == "ours":
        hvd.shutdown()
    else:
        dist.destroy_process_group()


main()
