# SPDX-License-Identifier: Apache-2.0
"""A rank that trains for some steps, until one rank hangs: hang_rank.py CAUSE RANK FOLDER.

Each cause is a function whose line that hangs ends in `# HERE`; tests look for its number. With
HANG_TORCH=1 a model of PyTorch is trained, otherwise NumPy's arrays are reduced, which are loaded sooner.

With HANG_ROUNDS=N ranks hang N times, another one each time. In round I the ranks train until the file
FOLDER/begin.I exists, and a rank hangs from FOLDER/hangs.I to FOLDER/go.I. Not all causes can end. Each rank
creates FOLDER/trains.RANK before.
"""

import contextlib
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
HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = int(os.environ.get("HANG_ROUNDS", "0"))
FREEZES = 20  # steps before a hang, so that they are frozen into a plan
turn = 0  # the round
lock, other_lock = threading.Lock(), threading.Lock()
both = threading.Barrier(2)

if os.environ.get("HANG_TORCH"):
    import horovod.torch as hvd
    import torch

    def allreduce(name):
        return hvd.allreduce(torch.ones(8), name=name)

    def begin():
        """The function that makes a step."""
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), 0)

        def train(step):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
            hvd.progress(step=step, metrics={"loss": loss.item()})

        return train

    def agree(wish):
        """Whether a rank wishes it."""
        return hvd.allreduce(torch.tensor(float(wish)), name="agree", op=hvd.Max) > 0

else:
    import numpy
    from _hvd import arrays
    from _hvd import basics as hvd

    def allreduce(name):
        return arrays.allreduce_all([numpy.ones(8, numpy.float32)], [name])

    def begin():
        return lambda step: allreduce(f"grad/{step % 2}")

    def agree(wish):
        return arrays.allreduce_all([numpy.array([float(wish)])], ["agree"])[0][0] > 0


class Released(BaseException):
    """The end of a hang, raised by a signal."""


def release(*_):
    raise Released


def at(name):
    return f"{FOLDER}/{name}.{turn}"


def ready():
    """From here on the rank hangs."""
    with open(at("writing"), "w", encoding="ascii") as f:
        f.write(f"{hvd.rank()} {os.getpid()}")
    os.rename(at("writing"), at("hangs"))
    if ROUNDS and CAUSE in ENDS:
        script = f"{ENDS[CAUSE]}; until [ -e {at('go')} ]; do sleep 0.1; done; kill -CONT $0; kill -USR1 $0"
        subprocess.Popen(["sh", "-c", script, str(os.getpid())])


# By a signal: what is done before the wait for it. Others end by themselves.
ENDS = {"stopped": "kill -STOP $0"} | dict.fromkeys(
    ("swapping", "lock_never_released", "lock_in_c", "condition", "deadlock")
    + ("loop_python", "loop_c", "loop_c_with_gil", "busy", "timer"),
    ":",
)


def stopped():
    """The test stops it."""
    ready()
    time.sleep(1000)  # HERE


def lock_never_released():
    mine = threading.Lock()
    mine.acquire()
    ready()
    mine.acquire()  # HERE


def load_c(loader):
    """Code in C, which a signal ends without Python."""
    library = loader(f"{FOLDER}/loop.so")
    library.end_by(signal.SIGUSR1)
    return library


def lock_in_c():
    wait_for_lock = load_c(ctypes.CDLL).wait_for_lock
    ready()
    wait_for_lock()  # HERE


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
    spin = load_c(ctypes.CDLL).spin
    ready()
    spin()  # HERE


def loop_c_with_gil():
    spin = load_c(ctypes.PyDLL).spin
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


def follow():
    """On the other ranks: ends a branch."""
    while not os.path.exists(at("go")):
        time.sleep(0.1)
    allreduce("only here")


def storage_frozen():
    """A write to a file system that is frozen, as by a snapshot or a lost disk."""
    ready()
    with open(f"{FOLDER}/mount/file", "w", encoding="ascii") as f:  # HERE
        f.write("x")


def storage_dead():
    """A file system whose server does not answer."""
    path = at("mount")
    os.makedirs(path, exist_ok=True)
    words = [sys.executable, f"{HERE}/dead_server.py", path, at("go")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        if not server.stdout.readline():
            sys.exit("there is no file system that hangs")
        ready()
        with contextlib.suppress(OSError):  # of its end
            os.stat(f"{path}/file")  # HERE


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
    while not os.path.exists(at("go")):
        time.sleep(0.01)  # HERE


def read_native():
    """Code in C that does not repeat a call that was interrupted."""
    source, sink = os.pipe()
    libc = ctypes.CDLL(None, use_errno=True)

    def feed():
        while not os.path.exists(at("go")):
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


def hang():
    with contextlib.suppress(Released):
        globals()[CAUSE]()


def repeat(train):
    """Another rank hangs in each round."""
    global turn
    with open(f"{FOLDER}/trains.{hvd.rank()}", "wb"):
        pass
    for turn in range(ROUNDS):
        step = 0
        while step < FREEZES or not agree(os.path.exists(at("begin"))):
            train(step)
            time.sleep(0.1)
            step += 1
        follower = threading.Thread(target=follow) if CAUSE == "branch" else None
        if hvd.rank() == (HANGING + turn) % hvd.size():
            hang()
        elif follower:
            follower.start()
        train(step)
        if follower and follower.ident:
            follower.join()


if CAUSE == "own_handler":
    signal.signal(61, lambda *_: print("own handler"))
signal.signal(signal.SIGUSR1, release)
hvd.init()
step_of = begin()
for step in range(5):
    step_of(step)
if ROUNDS:
    repeat(step_of)
elif hvd.rank() == HANGING:
    hang()
step_of(0)
