# SPDX-License-Identifier: Apache-2.0
"""A rank of torch.distributed.launch: sums by c10d (gloo) and by hvd, whichever is asked for first.

Until then the other is only imported. torch passes --local_rank before 2.0 and --local-rank since; scripts
take either.
"""

import argparse
import os

import horovod.torch as hvd
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", dest="local_rank", type=int, default=-1)
parser.add_argument("--first", choices=("c10d", "hvd"), required=True)
args = parser.parse_args()
if args.first == "hvd":
    hvd.init()  # c10d's port must still be free afterwards
dist.init_process_group("gloo")
x = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
hvd.init()
assert args.local_rank == hvd.local_rank() == int(os.environ["LOCAL_RANK"])
y = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum, name="y")
print(f"rank {hvd.rank()}/{dist.get_world_size()} c10d {x.item():g} hvd {y.item():g}", flush=True)
hvd.shutdown()
dist.destroy_process_group()
