# SPDX-License-Identifier: Apache-2.0
"""What a typed training script does: `mypy --strict` has nothing to say. Never executed."""

from typing import Any, List, Optional, Tuple

import horovod
import horovod.torch as hvd
import perseus.torch.horovod as perseus
import torch
from horovod.common.elastic import State
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.torch.elastic import ElasticSampler, TorchState, run
from torch import Tensor


def place() -> Tuple[int, int]:
    hvd.init()
    hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet(range(1, 3))])
    hvd.init(process_sets="dynamic")
    if hvd.nccl_built() >= 21000 and not hvd.mpi_threads_supported():
        hvd.shutdown()
    hvd.progress(step=1, total=10, samples=64, metrics={"loss": 0.5, "rate": torch.tensor(1.0)})
    horovod.progress(epoch=1)
    perseus.progress(1, epochs=None)
    return hvd.rank(), perseus.size()


def collectives(x: Tensor) -> Tensor:
    evens = hvd.add_process_set([0, 2])
    size: Optional[int] = evens.size()
    y = hvd.allreduce(x, name="x", op=hvd.Sum, compression=hvd.Compression.fp16, process_set=evens)
    hvd.allreduce(x, compression=hvd.Compression.topk(ratio=0.01))
    handle = hvd.allreduce_async_(x, op=hvd.Average, prescale_factor=0.5)
    while not hvd.poll(handle):
        pass
    y += hvd.synchronize(handle)
    rows, received = hvd.alltoall(x, splits=[1, 2])
    z: Tensor = hvd.alltoall(x)
    parts: List[Tensor] = hvd.grouped_allreduce([x, rows, received, z])
    y += hvd.reducescatter(parts[0], op=hvd.Max) + hvd.allgather(x) + hvd.broadcast_(x, root_rank=0)
    y += hvd.sparse_allreduce_async(x.to_sparse(), name="sparse", op=hvd.Sum)()
    last: int = hvd.join()
    hvd.barrier()
    assert hvd.remove_process_set(evens)
    result: Tensor = y * (last + (size or 0))
    return result


class Halves:
    """A compressor of the user's own."""

    @staticmethod
    def compress(tensor: Tensor) -> Tuple[Tensor, torch.dtype]:
        return tensor.half(), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: torch.dtype) -> Tensor:
        full: Tensor = tensor.to(ctx)
        return full


def train(model: torch.nn.Module) -> List[float]:
    model = hvd.convert_sync_batchnorm(model)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size()),
        named_parameters=model.named_parameters(),
        compression=Halves,
        groups=2,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    optimizer.param_groups[0]["lr"] = hvd.broadcast_object(0.1)
    return hvd.allgather_object(0.5)


def buffers(flat: Tensor, some: hvd.ProcessSet) -> str:
    with hvd.register_buffer(flat, process_set=some) as buffer:
        flat = buffer.tensor
    kept: hvd.RegisteredBuffer = hvd.register_buffer(flat)
    if not kept.is_registered:
        return kept.problem
    kept.deregister()
    return ""


def elastic(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    sampler = ElasticSampler(range(100), shuffle=False)
    state = TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)
    state.register_reset_callbacks([lambda: sampler.set_epoch(0)])
    data: torch.utils.data.Dataset[Tensor] = torch.utils.data.TensorDataset(torch.ones(2))  # type: ignore
    loader = torch.utils.data.DataLoader(data, sampler=sampler)

    @run
    def work(state: TorchState) -> None:
        while state.epoch < 3:
            for i, _ in enumerate(loader):
                sampler.record_batch(i, 1)
            state.epoch += 1
            state.commit()

    try:
        work(state)
    except (HorovodInternalError, HostsUpdatedInterrupt) as e:
        print(hvd.elastic.run, e, isinstance(state, State))


def launch(n: int) -> List[float]:
    results = horovod.run(train, args=(torch.nn.Linear(1, 1),), num_proc=n, hosts="localhost:2")
    found: Any = [hvd.rank() for _ in results]
    return results[0] + list(found)
