# SPDX-License-Identifier: Apache-2.0
"""Why a rank ends: ending.py HOW [OTHERS]. Rank 1 ends so, and the other ranks work until that fails.

OTHERS: what they do about it (nothing: the exception is uncaught). The test looks at exit codes and output.
"""

import code
import ctypes
import json
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time

import _hvd.basics as hvd
from _hvd import objects
from _hvd.exceptions import HorovodInternalError


def work():
    while True:
        objects.broadcast_object(1)


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raises():
    raise ValueError("bad batch\033[31m\nof two lines")


def in_a_library():
    json.loads("{")


def without_text():
    raise Odd


def long_text():
    raise KeyError("x" * 1000 + "é")


def interrupted():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.raise_signal(signal.SIGINT)
    time.sleep(60)


def hook_of_the_program():
    before = sys.excepthook

    def hook(*args):
        print("HOOK", flush=True)
        before(*args)

    sys.excepthook = hook
    raise ValueError("bad batch")


def continues():
    """Nothing of this ends the program."""
    try:
        sys.exit(9)
    except SystemExit as e:
        assert type(e).__name__ == "SystemExit" and e.code == 9 and e.args == (9,), e
        assert pickle.loads(pickle.dumps(e)).code == 9, e
    try:
        sys.exit()
    except SystemExit as e:
        assert e.code is None and e.args == (), e
    thread = threading.Thread(target=sys.exit, args=(8,))
    thread.start()
    thread.join()
    code.InteractiveConsole().runcode("1 / 0")
    try:
        raise ValueError("shown by the program itself")
    except ValueError as e:
        sys.excepthook(type(e), e, e.__traceback__)
    pid = os.fork()
    if pid == 0:
        raise ValueError("of a child")
    assert os.waitpid(pid, 0)[1] == 1 << 8
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join()
    assert child.exitcode == -signal.SIGTERM, child
    objects.broadcast_object(1)


def exit_again(code):
    """Passes on the exception of another sys.exit."""
    try:
        sys.exit(code)
    except SystemExit as e:
        sys.exit(e)


def killed_by_stranger(number):
    pid = os.getpid()
    if os.fork() == 0:
        if os.fork() == 0:
            os.kill(pid, number)
        os._exit(0)
    time.sleep(60)


def killed_while_it_works(number):
    threading.Timer(0.2, killed_by_stranger, (number,)).start()
    work()


def faults():
    ctypes.string_at(0)


def shuts_down_first():
    try:
        work()
    finally:
        hvd.shutdown()


def wraps():
    try:
        work()
    except HorovodInternalError as e:
        raise RuntimeError("training has failed") from e


def survives():
    try:
        work()
    except HorovodInternalError as e:
        print(f"CAUGHT {e}", flush=True)


ENDS = {
    "raise": raises,
    "library": in_a_library,
    "odd": without_text,
    "long": long_text,
    "exit": lambda: sys.exit(7),
    "text": lambda: sys.exit("no data left"),
    "quit": lambda: exit(5),
    "interrupt": interrupted,
    "hook": hook_of_the_program,
    "continue": continues,
    "zero": lambda: sys.exit(0),
    "again": lambda: exit_again(0),
    "kill": lambda: killed_by_stranger(signal.SIGKILL),
    "term": lambda: killed_by_stranger(signal.SIGTERM),
    "term-busy": lambda: killed_while_it_works(signal.SIGTERM),
    "term-self": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "fault": faults,
    "abort": os.abort,
    "wait": lambda: (print("WAITS", flush=True), work()),
}
OTHERS = {"shutdown": shuts_down_first, "wrap": wraps, "survive": survives}

hvd.init()
objects.broadcast_object(1)
if hvd.rank() == 1:
    ENDS[sys.argv[1]]()
else:
    OTHERS.get(sys.argv[2] if len(sys.argv) > 2 else "", work)()
