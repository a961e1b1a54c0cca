# SPDX-License-Identifier: Apache-2.0
"""pg_errors.py WHAT: how the back end "hvd" fails, one program for each way."""

import os
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

WHAT = sys.argv[1]
if "no-import" not in sys.argv:
    import horovod.torch.distributed  # noqa: F401  (makes the name known)


def said(function, *args, **options):
    try:
        function(*args, **options)
    except RuntimeError as e:
        print(f"rank {dist.get_rank()} said {type(e).__name__}: {e}".replace("\n", " "), flush=True)
    else:
        print(f"rank {dist.get_rank()} said nothing", flush=True)


def dies():
    """Rank 1 dies in the middle of DDP training."""
    dist.init_process_group("hvd")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))

    def step():
        model(torch.ones(2, 3)).sum().backward()

    step()
    if dist.get_rank() == 1:
        os._exit(7)
    said(step)
    said(dist.all_reduce, torch.ones(1))


def late():
    """Rank 1 joins after the group's timeout, and only when rank 0 has noticed it."""
    dist.init_process_group("hvd")
    dist.distributed_c10d._get_default_group()._set_default_timeout(
        timedelta(seconds=1)
    )  # not that of torch's store
    x, long = torch.ones(1), timedelta(seconds=120)
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        said(work.wait)
        dist.isend(torch.ones(1), 1).wait(long)
    else:
        dist.irecv(torch.ones(1), 0).wait(long)
        work = dist.all_reduce(x, async_op=True)
    work.wait(long)
    print(f"rank {dist.get_rank()} has {x.item():.0f}", flush=True)


def uneven():
    """Rank 0 has one batch more than rank 1, which is at the barrier after the last one."""
    dist.init_process_group("hvd")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))

    def train():
        for _ in range(3 - dist.get_rank()):
            model(torch.ones(2, 3)).sum().backward()
        dist.barrier()

    said(train)


def detail():
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL ranks that disagree get an error at once."""
    dist.init_process_group("hvd")
    said(dist.all_reduce, torch.ones(2 + dist.get_rank()))


def other_world():
    store = dist.FileStore(os.environ["STORE"], 1)
    try:
        dist.init_process_group("hvd", store=store, rank=0, world_size=1)
    except RuntimeError as e:
        print(f"said {e}", flush=True)


def alone():
    """Rank 0 of two, of which the other never starts: the group's timeout is the start timeout."""
    store = dist.FileStore(os.environ["STORE"], 2)
    for how in ({"store": store, "rank": 0, "world_size": 2}, {"init_method": "hvd://"}):
        try:
            dist.init_process_group("hvd", timeout=timedelta(seconds=1.5), **how)
        except RuntimeError as e:
            print(f"said {e}", flush=True)


def works():
    dist.init_process_group("hvd")
    x = torch.ones(1)
    dist.all_reduce(x)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {x.item():.0f}", flush=True)
    ends_beside_a_callback()


def ends_beside_a_callback():
    """The program ends while a thread is in torch's C++; an interpreter that is gone would abort it."""
    begun = threading.Event()

    def callback(_):
        begun.set()
        time.sleep(0.5)  # it only has to be longer than the way to the interpreter's end

    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(callback)
    begun.wait()


globals()[WHAT]()
