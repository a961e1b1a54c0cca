# SPDX-License-Identifier: Apache-2.0
"""What a type checker must find: each line that ends in a comment is wrong in that way. Never executed."""

import horovod.torch as hvd
import torch

x: torch.Tensor = torch.ones(2)
hvd.allreduce(5)  # [arg-type]
hvd.allreduce(x, op="sum")  # [arg-type]
hvd.allreduce(x, compression=int)  # [arg-type]
hvd.allreduce(x, postscale=2.0)  # [call-arg]
hvd.allreduce_mean(x)  # [attr-defined]
hvd.broadcast(x)  # [call-arg]
hvd.synchronize("handle")  # [arg-type]
text: str = hvd.rank()  # [assignment]
tensor: torch.Tensor = hvd.alltoall(x, splits=[1, 1])  # [assignment]
hvd.grouped_allreduce(hvd.rank())  # [arg-type]
hvd.DistributedOptimizer(torch.nn.Linear(1, 1))  # [arg-type]
hvd.DistributedOptimizer(torch.optim.SGD([x], lr=1), groups="two")  # [arg-type]
hvd.ProcessSet(["0"])  # [list-item]
hvd.elastic.TorchState(model=5)  # [arg-type]
hvd.SyncBatchNorm("3")  # [arg-type]
hvd.init(process_sets=5)  # [arg-type]
