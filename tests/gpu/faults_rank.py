# SPDX-License-Identifier: Apache-2.0
"""faults_rank.py FAULT: a rank of a job with tensors on the GPU to which something happens.

All ranks reduce in a loop until that fails, then say when and why ("failed TIME SENTENCE", of the clock that
all processes share). Rank 1 is the one it happens to:

  kill       run.py kills it, or stops it, once all said "steady"
  in_flight  its stream is busy for seconds, so that the other ranks' kernels are on the device and
             wait for it; then it says "in flight" and is killed
  exit       it ends without a message while the other ranks' kernels wait
  illegal    a kernel of it writes where no memory is; its context is lost

Those who are left form a world of their own where RM_AGAIN names its port, and reduce once more.
"""

import ctypes as c
import os
import sys
import time

import on_device
from on_device import capi, device, np

FAULT = sys.argv[1]
VICTIM = 1
# a kernel that writes to address 16
WILD = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry hvd_wild() {
    .reg .u64 %p;
    mov.u64 %p, 16;
    st.global.u32 [%p], 1;
    ret;
}
\0"""


def say(*words):
    print(*words, flush=True)


def busy(seconds):
    """Work for at least so long, in the device's stream."""
    size = 256 << 20
    p = device.take(size)
    began, n = time.monotonic(), 4
    for _ in range(n):
        device.fill(p, 1, size)
    device.sync()
    each = max((time.monotonic() - began) / n, 1e-5)
    for _ in range(int(seconds / each) + 1):
        device.fill(p, 2, size)


def wild():
    if os.environ.get("RM_FAULTS"):
        os.environ["HVD_FAKE_FILE"] = os.environ["RM_FAULTS"]
        with open(os.environ["HVD_FAKE_FILE"], "w") as f:
            f.write("kernel_error=700@1")
        return
    module, function = c.c_void_p(), c.c_void_p()
    device.do("cuModuleLoadData", c.byref(module), WILD)
    device.do("cuModuleGetFunction", c.byref(function), module, b"hvd_wild")
    device.do("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, device.stream, None, None)


def reduce(name, n=1000):
    """Two tensors, so that kernels of ours pack them."""
    x = np.full(n, capi.rank() + 1.0, np.float32)
    ops = [on_device.DeviceOp("allreduce", x, name=f"{name}.{i}", postscale=0.5) for i in range(2)]
    for op in ops:
        got = op.wait(30000)
        want = capi.size() * (capi.size() + 1) / 4
        assert (got == want).all(), f"{got[0]} instead of {want}"


def until_it_fails(rank):
    for i in range(1_000_000):
        if i == 20:
            say("steady")
        if i == 40 and rank == VICTIM:
            if FAULT == "illegal":
                wild()
            if FAULT in ("in_flight", "exit"):
                busy(3)
                x = np.full(1000, rank + 1.0, np.float32)
                # the other ranks' kernels for it are on the device by then
                op = on_device.DeviceOp("allreduce", x, name=f"step{i}.0", postscale=0.5)
                other = on_device.DeviceOp("allreduce", x, name=f"step{i}.1", postscale=0.5)
                for each in (op, other):
                    capi.lib.hvd_wait_on_stream(each.handle, device.stream, 5000)
                time.sleep(0.2)
                say("in flight")
                if FAULT == "exit":
                    os._exit(0)
                time.sleep(60)
        reduce(f"step{i}")
        if i >= 20:
            time.sleep(0.001)


def main():
    capi.init()
    rank, size = capi.rank(), capi.size()
    try:
        until_it_fails(rank)
    except Exception as e:
        say(f"failed {time.monotonic():.6f} {type(e).__name__}: {e}")
    if not os.environ.get("RM_AGAIN") or (rank == VICTIM and FAULT == "illegal"):
        return
    capi.shutdown()
    os.environ.update(
        RANK=str(rank - (rank > VICTIM)),
        LOCAL_RANK=str(rank - (rank > VICTIM)),
        WORLD_SIZE=str(size - 1),
        LOCAL_WORLD_SIZE=str(size - 1),
        MASTER_PORT=os.environ["RM_AGAIN"],
    )
    capi.init()
    for i in range(10):
        reduce(f"again{i}")
    say(f"again {capi.rank()} of {capi.size()}")
    capi.shutdown()


main()
