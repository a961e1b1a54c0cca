# SPDX-License-Identifier: Apache-2.0
"""How ranks end: life.py MODE. The test looks at exit codes, times and the printed lines."""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time

import horovod.torch as hvd
import torch


def until_it_fails():
    """Allreduces until the runtime refuses; prints the error and the time."""
    try:
        while True:
            hvd.allreduce(torch.ones(1000), name="loop")
    except hvd.HorovodInternalError as e:
        print(f"FAILED at={time.time():.3f} {e}", flush=True)


def killed():
    for _ in range(3):
        hvd.allreduce(torch.ones(1000), name="loop")
    if hvd.rank() == 1:
        print(f"DYING at={time.time():.3f}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    until_it_fails()


def killed_with_many_pending():
    handles = [hvd.allreduce_async(torch.ones(10), name=f"pending.{i}") for i in range(50)]
    for handle in handles:
        hvd.synchronize(handle)
    if hvd.rank() == 1:
        hvd.barrier()  # rank 0 has submitted all of them
        print(f"DYING at={time.time():.3f}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    handles = [hvd.allreduce_async(torch.ones(10), name=f"pending.{i}") for i in range(50)]
    with contextlib.suppress(hvd.HorovodInternalError):  # rank 1 may be dead before this ends here
        hvd.barrier()
    failed = 0
    for handle in handles:
        try:
            hvd.synchronize(handle)
        except hvd.HorovodInternalError as e:
            failed += 1
            error = e
    print(f"FAILED at={time.time():.3f} {error}", flush=True)
    print(f"all {failed} failed", flush=True)


def exits_3():
    hvd.allreduce(torch.ones(3))
    sys.exit(3)


def raises():
    hvd.allreduce(torch.ones(3))
    raise RuntimeError("a bug of the user's")


def exits_with_pending():
    if hvd.rank() == 0:
        hvd.allreduce_async(torch.ones(3), name="never answered")
    hvd.broadcast_object(1)
    sys.exit(4)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        assert not hvd.is_initialized(), "a forked worker believes that it is a rank"
        try:
            hvd.rank()
        except ValueError as e:
            assert "forked after hvd.init()" in str(e) and "in the parent process only" in str(e), e
            return i
        raise AssertionError("rank() works in a forked worker")


def stuck_in_the_loader(said):
    """Waits until this rank's output, which is redirected to the file said, shows this line; at most a
    minute."""
    deadline = time.monotonic() + 60
    while b"in stuck_in_the_loader" not in os.pread(said.fileno(), 1 << 20, 0):
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def late():
    """Rank 1 starts the second allreduce only after the report that it is late."""
    hvd.allreduce(torch.ones(1), name="first")
    if hvd.rank() == 1:
        with tempfile.TemporaryFile() as said:
            stderr = os.dup(2)
            os.dup2(said.fileno(), 2)
            stuck_in_the_loader(said)
            os.dup2(stderr, 2)
            os.write(2, os.pread(said.fileno(), 1 << 20, 0))
    hvd.allreduce(torch.ones(1), name="second")
    print("LATE", flush=True)


def uneven():
    """Rank 0 takes a step more than rank 1, which is at the barrier after the last one."""
    try:
        for _ in range(20 + (hvd.rank() == 0)):  # the last ones by plan
            hvd.allreduce(torch.ones(4), name="gradient")
        hvd.barrier()
    except hvd.HorovodInternalError as e:
        print(f"FAILED {e}", flush=True)


def data_loader():
    total = 0
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2):
            total += hvd.allreduce(batch.sum(), op=hvd.Sum, name="sum").item()
    assert total == 2 * hvd.size() * sum(range(32)), total
    pid = os.fork()
    if pid == 0:
        sys.exit(0)  # a child's ordinary exit must not end the parent's world
    assert os.waitpid(pid, 0)[1] == 0
    if hvd.rank() == 0:  # the child runs this script up to its hvd.init(), with the rank in its environment
        child = multiprocessing.get_context("spawn").Process(target=print)
        child.start()
        child.join()
        assert child.exitcode == 1, child.exitcode
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    print("LOADED", flush=True)


hvd.init()
{
    "killed": killed,
    "killed-pending": killed_with_many_pending,
    "exit-3": exits_3,
    "raise": raises,
    "exit-pending": exits_with_pending,
    "data-loader": data_loader,
    "late": late,
    "uneven": uneven,
}[sys.argv[1]]()
