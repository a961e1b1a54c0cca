#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""supervise.py PARENT STOP_S COMMAND: runs one row's shell command, and leaves no process of it behind.

run.py starts one for each row. It is the subreaper of the row: a process whose parent exits becomes its
child, also a daemon in a session of its own, so everything that the row has started is found by walking
down from here. When the command exits, or when a signal comes, it sends SIGTERM to the command's session,
waits STOP_S seconds, in which tests take down what they have set up, and then ends the rest of the tree.
The kernel sends SIGTERM when run.py (PARENT) dies in any way, SIGKILL included.

The row has a temporary folder of its own ($TMPDIR), which is removed with all that killed programs have
left in it.

Exits with the command's status, 128 + N if signal N ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import processes

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
TREE_S = 5.0  # that daemons have between SIGTERM and SIGKILL
LOOK_S = 0.05


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def reap(main: int) -> int | None:
    """Waits for all that have exited; the status of main if it is one of them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == main:
                status = os.waitstatus_to_exitcode(ended[1])
    return status


def living(session: int | None) -> list[processes.Process]:
    """What lives below this process: all, or what is in the session."""
    below = (p for p in processes.descendants(os.getpid()) if p.is_alive)
    return [p for p in below if session is None or p.session == session]


def stop(main: int, session: int | None, sig: int, wait_s: float) -> int | None:
    """Sends sig and waits; returns main's status if it exited. What starts later in the session does not
    get SIGTERM: it takes down what the tests have set up."""
    status, sent = None, set()
    end = time.monotonic() + wait_s
    while left := living(session):
        for process in left:
            is_new = process.pid not in sent and (session is None or not sent)
            if is_new or sig == signal.SIGKILL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, sig)
        sent |= {p.pid for p in left}
        if time.monotonic() > end:
            break
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_S)
        ended = reap(main)
        status = status if ended is None else ended
    ended = reap(main)
    return status if ended is None else ended


def make_tmpdir() -> str:
    """For all users, as some tests change theirs; a short name, as sockets are made in it."""
    path = tempfile.mkdtemp(prefix="rm-")
    os.chmod(path, 0o1777)
    return path


def remove_tmpdir(path: str) -> None:
    """Not if something is mounted in it: files of another place would be removed."""
    with open("/proc/self/mountinfo") as f:
        mounted = [line.split()[4] for line in f if line.split()[4].startswith(f"{path}/")]
    if mounted:
        print(f"# left mounted: {' '.join(mounted)}", flush=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def main() -> int:
    parent, stop_s, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 128 + signal.SIGTERM  # it died before the call above
    tmpdir = make_tmpdir()
    child = subprocess.Popen(
        ["bash", "-c", command],
        env={**os.environ, "TMPDIR": tmpdir},
        start_new_session=True,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS),
    )
    status = None
    while status is None:
        if signal.sigwait(SIGNALS) != signal.SIGCHLD:
            break
        status = reap(child.pid)
    if status is not None:
        for left in living(None):
            print(f"# left running, stopped: {left.pid} {processes.command_line(left.pid)}", flush=True)
    steps = (
        (child.pid, signal.SIGTERM, stop_s),
        (child.pid, signal.SIGKILL, TREE_S),
        (None, signal.SIGTERM, TREE_S),
        (None, signal.SIGKILL, TREE_S),
    )
    for session, sig, wait_s in steps:
        ended = stop(child.pid, session, sig, wait_s)
        status = status if ended is None else ended
    remove_tmpdir(tmpdir)
    if status is None:
        return 128 + signal.SIGTERM
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
