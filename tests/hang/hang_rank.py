# SPDX-License-Identifier: Apache-2.0
"""A rank that trains for some steps, until one rank hangs: hang_rank.py CAUSE RANK FOLDER.

Each cause is a function whose line that hangs ends in `# HERE`; hang_test.py looks for its number. With
HANG_TORCH=1 the tensors are PyTorch's, otherwise NumPy's, which is loaded sooner.
"""

import ctypes
import fcntl
import mmap
import os
import signal
import subprocess
import sys
import threading
import time

CAUSE, HANGING, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
lock, other_lock = threading.Lock(), threading.Lock()
both = threading.Barrier(2)

if os.environ.get("HANG_TORCH"):
    import horovod.torch as hvd
    import torch

    def allreduce(name):
        return hvd.allreduce(torch.ones(8), name=name)

else:
    import numpy
    from _hvd import arrays
    from _hvd import basics as hvd

    def allreduce(name):
        return arrays.allreduce_all([numpy.ones(8, numpy.float32)], [name])


def ready():
    """From here on the rank hangs."""
    with open(f"{FOLDER}/hangs", "w", encoding="ascii") as f:
        f.write(str(os.getpid()))


def stopped():
    """The test stops it."""
    ready()
    time.sleep(1000)  # HERE


def lock_never_released():
    lock.acquire()
    ready()
    lock.acquire()  # HERE


def condition():
    ready()
    threading.Event().wait()  # HERE


def deadlock():
    def second():
        with other_lock:
            both.wait()
            with lock:  # THERE
                pass

    threading.Thread(target=second, daemon=True).start()
    with lock:
        both.wait()
        ready()
        with other_lock:  # HERE
            pass


def deadlock_of_workers():
    def first():
        with lock:
            both.wait()
            with other_lock:  # HERE
                pass

    def second():
        with other_lock:
            both.wait()
            with lock:  # HERE
                pass

    threads = [threading.Thread(target=f, daemon=True) for f in (first, second)]
    for thread in threads:
        thread.start()
    ready()
    for thread in threads:
        thread.join()


def file_lock():
    file = os.open(f"{FOLDER}/lock", os.O_WRONLY | os.O_CREAT)
    holder = subprocess.Popen(["flock", f"{FOLDER}/lock", "sh", "-c", "echo; exec sleep 1000"], stdout=-1)
    holder.stdout.readline()
    with open(f"{FOLDER}/child", "w", encoding="ascii") as f:
        f.write(str(holder.pid))
    ready()
    fcntl.flock(file, fcntl.LOCK_EX)  # HERE


def loop_python():
    ready()
    n = 0
    while True:  # HERE
        n = n + 1  # HERE


def loop_c():
    spin = ctypes.CDLL(f"{FOLDER}/loop.so").spin
    ready()
    spin()  # HERE


def loop_c_with_gil():
    spin = ctypes.PyDLL(f"{FOLDER}/loop.so").spin
    ready()
    spin()  # HERE


def loop_of_thread():
    """The main thread waits for a thread that loops in C and holds the interpreter's lock."""
    spin = ctypes.PyDLL(f"{FOLDER}/loop.so").spin

    def work():
        ready()
        spin()  # HERE

    threading.Thread(target=work, daemon=True).start()
    while True:
        time.sleep(0.01)  # HERE


def branch():
    ready()
    allreduce("only here")  # HERE


def storage_frozen():
    """A write to a file system that is frozen, as by a snapshot or a lost disk."""
    ready()
    with open(f"{FOLDER}/mount/file", "w", encoding="ascii") as f:  # HERE
        f.write("x")


def storage_dead():
    """A file system whose server does not answer."""
    ready()
    os.stat(f"{FOLDER}/mount/file")  # HERE


def swapping():
    """Touches memory that the kernel has written to disk, again and again."""
    size = 64 << 20
    with open(f"{FOLDER}/swap", "wb+") as f:
        f.truncate(size)
        memory = mmap.mmap(f.fileno(), size)
    memory.madvise(mmap.MADV_RANDOM)
    for page in range(0, size, 4096):
        memory[page] = 1
    memory.flush()
    file = os.open(f"{FOLDER}/swap", os.O_RDWR)
    ready()
    while True:
        memory.madvise(mmap.MADV_DONTNEED)  # HERE
        os.posix_fadvise(file, 0, size, os.POSIX_FADV_DONTNEED)  # HERE
        for page in range(0, size, 4096):  # HERE
            memory[page]  # HERE


def search(depth):
    """Works at another depth each time, as a program does that only needs long."""
    if depth > 0:
        search(depth - 1)
        return
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass


def busy():
    ready()
    depth = 0
    while True:
        depth = (depth + 37) % 101
        search(depth)


def pipe():
    ready()
    os.open(f"{FOLDER}/fifo", os.O_RDONLY)  # HERE


def timer():
    ready()
    time.sleep(1000)  # HERE


def child():
    process = subprocess.Popen(["sleep", "1000"])
    with open(f"{FOLDER}/child", "w", encoding="ascii") as f:
        f.write(str(process.pid))
    ready()
    process.wait()  # HERE


def late():
    """Hangs until it is released."""
    ready()
    while not os.path.exists(f"{FOLDER}/go"):
        time.sleep(0.01)  # HERE


def read_native():
    """Code in C that does not repeat a call that was interrupted."""
    source, sink = os.pipe()
    libc = ctypes.CDLL(None, use_errno=True)

    def feed():
        while not os.path.exists(f"{FOLDER}/go"):
            time.sleep(0.01)
        os.write(sink, b"x")

    threading.Thread(target=feed, daemon=True).start()
    ready()
    got = libc.read(source, ctypes.create_string_buffer(1), 1)  # HERE
    assert got == 1, os.strerror(ctypes.get_errno())


def own_handler():
    """The program uses the signal itself."""
    ready()
    time.sleep(1000)


if CAUSE == "own_handler":
    signal.signal(61, lambda *_: print("own handler"))
hvd.init()
for step in range(5):
    allreduce(f"grad/{step % 2}")
if hvd.rank() == HANGING:
    globals()[CAUSE]()
allreduce("grad/0")
