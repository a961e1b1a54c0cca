# SPDX-License-Identifier: Apache-2.0
"""faults_rank.py FAULT: a rank of a job with tensors on the GPU to which something happens.

All ranks reduce in a loop until that fails, then say when and why ("failed TIME SENTENCE", of the clock that
all processes share). Rank 1 is the one it happens to:

  kill       run.py kills it, or stops it, once all said "steady"
  in_flight  a kernel spins in its stream, in front of its part of step HELD: the kernels of the other ranks for
             that step, who say "launched", are on the device and wait for it. It says "in flight" and is killed
  exit       the same, but it ends without a message (at SIGUSR1)
  illegal    a kernel of it writes where no memory is; its context is lost. It says "begins TIME" before

The spinning kernel ends after RM_SPIN_S seconds in any case. If it has ended before its rank is killed, that
rank says so and ends; if step HELD ended well, its peers say "released". Neither must be.

Those who are left form a world of their own where RM_AGAIN names its port, and reduce once more.
"""

import ctypes as c
import os
import signal
import sys
import time

import on_device
from on_device import capi, device, np

FAULT = sys.argv[1]
VICTIM = 1
HELD = 40
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
"""
# spins until the first word is set, or for so many ns; the second word is 1 as long as it does, 2 thereafter
SPIN = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry hvd_spin(.param .align 8 .b8 args[16]) {
    .reg .pred %p;
    .reg .u32 %w;
    .reg .u64 %words, %limit, %began, %now;
    mov.u32 %w, %tid.x;
    setp.ne.u32 %p, %w, 0;
    @%p bra done;
    ld.param.u64 %words, [args];
    ld.param.u64 %limit, [args+8];
    mov.u64 %began, %globaltimer;
    mov.u32 %w, 1;
    st.volatile.global.u32 [%words+4], %w;
again:
    ld.volatile.global.u32 %w, [%words];
    setp.ne.u32 %p, %w, 0;
    @%p bra end;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %p, %now, %limit;
    @%p bra again;
end:
    mov.u32 %w, 2;
    st.volatile.global.u32 [%words+4], %w;
done:
    ret;
}
"""


def say(*words):
    print(*words, flush=True)


class PlacedOp(on_device.DeviceOp):
    """Its memory is there already: filling it would wait for what is in the stream, or report its error."""

    places = []

    def put(self, array):
        return self.places.pop()


def place():
    """Memory for two operations of step HELD: inputs and outputs."""
    x = np.full(1000, capi.rank() + 1.0, np.float32)
    for _ in range(4):
        PlacedOp.places.append(device.take(x.nbytes))
        device.up(PlacedOp.places[-1], x)
    return x


def submit_placed(x):
    return [PlacedOp("allreduce", x, name=f"step{HELD}.{i}", postscale=0.5) for i in range(2)]


def hold():
    """Step HELD of the victim, behind a kernel that spins until this process is gone."""
    x = place()
    words = device.pinned(2)
    spin = device.function(SPIN, b"hvd_spin")
    limit_ns = int(float(os.environ["RM_SPIN_S"]) * 1e9)
    device.launch(spin, c.addressof(words), limit_ns)
    while words[1] == 0:
        time.sleep(0.001)
    for op in submit_placed(x):  # it is launched here then, and likewise on the other ranks
        capi.must(capi.lib.hvd_wait_on_stream(op.handle, device.stream, 30000))
    if FAULT == "exit":
        signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    time.sleep(0.2)  # what is launched has begun by then
    if words[1] == 1:
        say("in flight")
    while words[1] == 1:
        time.sleep(0.005)
    say("its kernel has ended")
    os._exit(1)


def say_begins():
    say(f"begins {time.monotonic():.6f}")


def wild():
    if os.environ.get("RM_FAULTS"):
        os.environ["HVD_FAKE_FILE"] = os.environ["RM_FAULTS"]
        say_begins()
        with open(os.environ["HVD_FAKE_FILE"], "w") as f:
            f.write("kernel_error=700@1")
        return
    function = device.function(WILD, b"hvd_wild")
    say_begins()
    device.launch(function)


def reduce(name, is_held=False):
    """Two tensors, so that kernels of ours pack them."""
    x = np.full(1000, capi.rank() + 1.0, np.float32)
    ops = [on_device.DeviceOp("allreduce", x, name=f"{name}.{i}", postscale=0.5) for i in range(2)]
    if is_held:
        for op in ops:
            capi.must(capi.lib.hvd_wait_on_stream(op.handle, device.stream, 30000))
        say("launched")
    for op in ops:
        got = op.wait(30000)
        want = capi.size() * (capi.size() + 1) / 4
        assert (got == want).all(), f"{got[0]} instead of {want}"
    if is_held:
        say("released")


def until_it_fails(rank):
    holds = FAULT in ("in_flight", "exit")
    for i in range(1_000_000):
        if i == 20:
            say("steady")
        if i == HELD and rank == VICTIM:
            if FAULT == "illegal":
                x = place()
                wild()
                for op in submit_placed(x):
                    op.wait(30000)
            if holds:
                hold()
        reduce(f"step{i}", holds and i == HELD)
        if i >= 20:
            time.sleep(0.001)


def main():
    capi.init()
    rank, size = capi.rank(), capi.size()
    try:
        until_it_fails(rank)
    except Exception as e:
        say(f"failed {time.monotonic():.6f} {type(e).__name__}: {e}")
    if not os.environ.get("RM_AGAIN") or rank == VICTIM:
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
