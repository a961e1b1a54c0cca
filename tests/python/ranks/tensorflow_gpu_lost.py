# SPDX-License-Identifier: Apache-2.0
"""The last rank dies while the other ranks' GPUs wait for it. Operations of both kinds report the error: those
whose output is allocated before the submit, and behind them those that allocate it when all ranks have
submitted.
"""

import os
import signal
import sys
import threading
import time

import fake_gpu
import horovod.tensorflow as hvd
import tensorflow as tf

if os.environ["HOROVOD_RANK"] == str(int(os.environ["HOROVOD_SIZE"]) - 1):
    os.environ["HVD_FAKE_CUDA"] = "12050"  # it does not wait for its own GPU
hvd.init()
R, N = hvd.rank(), hvd.size()


@tf.function
def step(x):
    reduced = hvd.grouped_allreduce([x, x], op=hvd.Sum)
    return reduced, [hvd.allgather(x, name=f"g{i}") for i in range(3)]


x = fake_gpu.on_gpu([1.0, 2.0])
assert step(x)[0][1].numpy().tolist() == [N, 2.0 * N]
if R == N - 1:
    fake_gpu.cuda.hvd_fake_set_faults(b"kernel_hang=1")
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
# The launcher ends the other ranks 5 s after the first exit that it sees (job.py: outlived).
signal.signal(signal.SIGTERM, signal.SIG_IGN)
begun = time.monotonic()
try:
    reduced, gathered = step(x)
    raise AssertionError(f"no error: {gathered[0].numpy()}")
except tf.errors.UnknownError as e:
    assert f"rank {N - 1} (" in str(e) and "was lost" in str(e), e
print(f"RANK {R} WAS TOLD after {time.monotonic() - begun:.1f} s", flush=True)
sys.exit()
