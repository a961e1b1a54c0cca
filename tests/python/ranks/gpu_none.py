# SPDX-License-Identifier: Apache-2.0
"""horovod.torch on a rank that sees no GPU, in a job whose other ranks have their tensors on GPUs."""

import os

import horovod.torch as hvd
import torch
from checks import check, expect_error, main

NONE = os.environ["HOROVOD_RANK"] == "1"
if NONE:  # before anything has asked
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    to_gpu = torch.Tensor.clone
else:
    from fake_cuda import to_gpu

torch.version.cuda = "12.4"  # as the wheels have it whose tensors would be on GPUs
hvd.init()
torch.set_num_threads(1)
R, N = hvd.rank(), hvd.size()


@check
def all_ranks_report_the_rank_without_a_gpu_and_the_reason():
    for function in (hvd.allreduce, hvd.allgather, hvd.allreduce_):
        words = [
            "Mismatched CPU/GPU",
            "rank 1 has no GPU: no CUDA device is visible",
            "CUDA_VISIBLE_DEVICES",
        ]
        said = expect_error(hvd.HorovodInternalError, words, function, to_gpu(torch.ones(3)))
        assert said.count("no CUDA device") == 1, said


@check
def its_optimizer_reports_it_too():
    p = torch.nn.Parameter(to_gpu(torch.zeros(4)))
    p.grad = to_gpu(torch.zeros(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), [("p", p)])
    p.as_subclass(torch.Tensor).sum().backward()
    expect_error(hvd.HorovodInternalError, ["p", "rank 1 has no GPU"], optimizer.step)


@check
def host_memory_still_works():
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [N] * 3


main(R)
