#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is said of ranks that hang, for each cause: real processes, no launcher. TAP.

usage: hang_test.py [PART OF A NAME ...]     HANG_RUNS=20: each test so many times
"""

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launch"))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from launched import BIN, environment
from ports import free_port
from tap import Program, Skip, has, main, read, same, wait_until

RANK_PY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hang_rank.py")
PYTHON = "/usr/bin/python3"
STALL_S = 2
VERDICT_S = 10  # after the stall time
HANGING = 1
UNPRIVILEGED = "--reuid=nobody --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"


def lines_of(cause):
    """Numbers of the lines at which the function hangs."""
    body, numbers = False, []
    with open(RANK_PY, encoding="ascii") as f:
        for number, line in enumerate(f, 1):
            if not line.startswith((" ", "\n")):
                body = line.startswith(f"def {cause}(")
            if body and line.rstrip().endswith("# HERE"):
                numbers.append(number)
    return numbers


class Job:
    """Three ranks, of which one hangs. as_user: words of setpriv."""

    def __init__(self, folder, argv, size=3, as_user="", **env):
        self.folder, self.stats = folder, os.path.join(folder, "stats")
        self.as_user = ["setpriv", *as_user.split(), "--"] if as_user else []
        os.makedirs(self.stats, exist_ok=True)
        if as_user:
            os.chmod(folder, 0o777)
            os.chmod(self.stats, 0o777)
        shutil.copy(os.path.join(BIN, "hang-loop.so"), f"{folder}/loop.so")
        self.start(argv, size, env)
        while self.has_ended() and "Address already in use" in self.errors():
            self.kill()  # the port of the rendezvous follows from MASTER_PORT, and another program has it
            self.start(argv, size, env)
        assert not self.has_ended(), self.errors()
        self.hangs_at = os.stat(f"{folder}/hangs.0").st_mtime

    def start(self, argv, size, env):
        """Until a rank hangs, or has ended."""
        port = str(free_port())
        self.ranks = [
            Program(
                [*self.as_user, *argv],
                environment(
                    HVD_STATS_DIR=self.stats,
                    HOROVOD_STALL_CHECK_TIME_SECONDS=str(STALL_S),
                    RANK=str(rank),
                    WORLD_SIZE=str(size),
                    LOCAL_RANK=str(rank),
                    LOCAL_WORLD_SIZE=str(size),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=port,
                    **env,
                ),
                self.folder,
                f"rank{rank}",
            )
            for rank in range(size)
        ]
        wait_until(self.errors, lambda: os.path.exists(f"{self.folder}/hangs.0") or self.has_ended())

    def has_ended(self):
        return any(r.process.poll() is not None for r in self.ranks)

    def errors(self):
        return "".join(r.err for r in self.ranks)

    def stall(self):
        """The record of rank 0 as it is now, {} if there is none."""
        return dict(line.split(" ", 1) for line in read(f"{self.stats}/stall").splitlines()[1:])

    def await_stall(self):
        wait_until(self.errors, lambda: self.stall() or self.has_ended())
        assert not self.has_ended(), self.errors()
        return self.stall()

    def examine(self, *words):
        """What hvd-agent says; its verdict must be there in time."""
        argv = [*self.as_user, os.path.join(BIN, "hvd-agent"), "examine", *(words or (self.stats,))]
        run = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        same(run.returncode, 0, run.stderr)
        self.verdict_s = time.time() - self.hangs_at - STALL_S
        return run.stdout

    def kill(self, release=lambda: None):
        for rank in self.ranks:
            rank.signal(signal.SIGKILL)
        release()
        for rank in self.ranks:
            rank.process.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(read(f"{self.folder}/child")), signal.SIGKILL)

    def end(self):
        """The exit codes of ranks that do not hang any more."""
        return [rank.end() for rank in self.ranks]


def python(cause, folder):
    return [PYTHON, RANK_PY, cause, str(HANGING), folder]


def check_verdict(job, text, name, places):
    """The first line names the rank, its process, the tensor, the cause and one of the places."""
    verdict = text.splitlines()[0]
    same(verdict.split(":")[0], name, text)
    has(verdict, f": rank {HANGING} (pid {job.ranks[HANGING].pid}) has not submitted tensor")
    assert not places or any(re.search(rf"{re.escape(p)}(?!\d)", verdict) for p in places), (
        f"{places}\n{text}"
    )
    assert job.verdict_s < VERDICT_S, f"{job.verdict_s} s after the stall time\n{text}"
    return verdict


def hang(folder, cause, name, has_place=True, release=lambda: None, **more):
    """Lets a rank hang; the verdict, and all that is said. release: lets a rank die that the kernel keeps."""
    places = [f"hang_rank.py:{n}" for n in lines_of(cause)] if has_place else []
    job = Job(folder, python(cause, folder), **more)
    try:
        stall = job.await_stall()
        late_s = time.time() - int(stall["since_us"]) / 1e6 - STALL_S
        assert late_s < VERDICT_S / 2, f"reported {late_s} s after the stall time"
        text = job.examine()
        return check_verdict(job, text, name, places), text
    finally:
        job.kill(release)


# --- stopped ---


def pause(job):
    job.ranks[HANGING].signal(signal.SIGSTOP)


def test_stopped(folder):
    job = Job(folder, python("stopped", folder))
    try:
        pause(job)
        job.await_stall()
        text = job.examine()
        has(check_verdict(job, text, "Stopped", []), "stopped by a signal")
        has(text, "no stacks: the process is stopped")
    finally:
        job.kill()


# --- locks ---


def test_lock_never_released(folder):
    hang(folder, "lock_never_released", "Lock")


def test_lock_in_c(folder):
    _, text = hang(folder, "lock_in_c", "Lock")
    has(text, "wait_for_lock (loop.so)")


def test_condition(folder):
    verdict, _ = hang(folder, "condition", "Lock")
    has(verdict, "in wait (threading.py:")


def test_deadlock(folder):
    verdict, text = hang(folder, "deadlock", "Deadlock")
    has(verdict, "another in second (hang_rank.py:")
    has(text, "PyThread_acquire_lock_timed")


def test_deadlock_of_workers(folder):
    hang(folder, "deadlock_of_workers", "Deadlock")


def test_file_lock(folder):
    verdict, _ = hang(folder, "file_lock", "Lock")
    has(verdict, f"{folder}/lock")


# --- loops ---


def test_loop_in_python(folder):
    hang(folder, "loop_python", "Loop")


def test_loop_in_c(folder):
    _, text = hang(folder, "loop_c", "Loop")
    has(text, "spin (loop.so)")


def test_loop_in_c_that_holds_the_lock_of_python(folder):
    hang(folder, "loop_c_with_gil", "Loop")


def test_loop_of_another_thread(folder):
    hang(folder, "loop_of_thread", "Loop")


def test_busy(folder):
    verdict, _ = hang(folder, "busy", "Busy", has_place=False)
    has(verdict, "in search (hang_rank.py:")


# --- out of step ---


def test_branch(folder):
    verdict, text = hang(folder, "branch", "OutOfStep")
    has(verdict, 'in another collective, tensor "only here" (ALLREDUCE)')
    has(verdict, "; rank 0 is at ")
    has(text, "ranks 0, 2:\n")  # equal stacks are one


# --- storage ---


def freeze_disk(folder):
    """A file system that is frozen; the function that ends that."""
    path = os.path.join(folder, "mount")
    os.mkdir(path)
    try:
        subprocess.run(["truncate", "-s", "8M", f"{folder}/image"], check=True)
        subprocess.run(["mkfs.ext4", "-q", f"{folder}/image"], check=True)
        subprocess.run(["mount", "-o", "loop", f"{folder}/image", path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as e:
        raise Skip(f"no file system in a file: {e}") from None
    subprocess.run(["fsfreeze", "-f", path], check=True)

    def release():
        subprocess.run(["fsfreeze", "-u", path], check=False)
        subprocess.run(["umount", "-l", path], check=False)

    return release


def test_storage_that_is_frozen(folder):
    # without threads of OpenBLAS only a thread of libhvd can answer
    alone = {"OPENBLAS_NUM_THREADS": "1"}
    verdict, text = hang(folder, "storage_frozen", "Storage", release=freeze_disk(folder), **alone)
    has(verdict, "percpu_rwsem_wait")
    has(text, "<module> (hang_rank.py:")


def test_storage_whose_server_is_dead(folder):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Skip("no FUSE: /dev/fuse cannot be opened")
    hang(folder, "storage_dead", "Storage")


def test_swapping(folder):
    verdict, _ = hang(folder, "swapping", "Swapping")
    has(verdict, "major page faults")


# --- other waits ---


def test_pipe(folder):
    os.mkfifo(f"{folder}/fifo")
    hang(folder, "pipe", "Sleeping")


def test_timer(folder):
    verdict, _ = hang(folder, "timer", "Sleeping")
    has(verdict, "waits for a timer")


def test_child(folder):
    verdict, _ = hang(folder, "child", "Sleeping")
    has(verdict, "waits for a child process")


# --- without Python ---


def c_rank(cause, folder):
    return [os.path.join(BIN, "hang-c-rank"), cause, str(HANGING), folder]


def check_c(folder, cause, name):
    job = Job(folder, c_rank(cause, folder))
    try:
        job.await_stall()
        has(job.examine(), f"hang_in_{cause} (hang-c-rank)")
        check_verdict(job, job.examine(), name, [])
    finally:
        job.kill()


def test_loop_without_python(folder):
    check_c(folder, "loop", "Loop")


def test_lock_without_python(folder):
    check_c(folder, "lock", "Lock")


# --- conditions ---


def test_pytorch(folder):
    verdict, text = hang(folder, "lock_never_released", "Lock", HANG_TORCH="1")
    has(verdict, "(ALLREDUCE)")
    has(text, "synchronize (")


def test_no_capability(folder):
    """As under Kubernetes' policy `restricted`: another user than root, without any capability."""
    if os.geteuid() != 0:
        raise Skip("only root can become a user without capabilities")
    pwd.getpwnam("nobody")
    _, text = hang(folder, "deadlock", "Deadlock", as_user=UNPRIVILEGED)
    has(text, "PyThread_acquire_lock_timed")


def examine_and_release(folder, cause):
    job = Job(folder, python(cause, folder))
    job.await_stall()
    has(job.examine(), f"{cause} (hang_rank.py:")
    open(f"{folder}/go.0", "wb").close()
    wait_until("the stall is over", lambda: not job.stall() or job.has_ended())
    same(job.end(), [0, 0, 0], job.errors())
    same(job.stall(), {})


def test_examination_does_no_harm(folder):
    """Ranks that have been examined, several times, continue, and the end of the stall is published."""
    job = Job(folder, python("stopped", folder))
    pause(job)
    job.await_stall()
    job.examine()
    job.ranks[HANGING].signal(signal.SIGCONT)
    for _ in range(2):
        has(job.examine(str(job.ranks[HANGING].pid)), "hang_rank.py:")
    job.kill()
    for cause in "late", "read_native":
        examine_and_release(f"{folder}/{cause}", cause)


def test_stacks_can_be_switched_off(folder):
    verdict, text = hang(folder, "timer", "Sleeping", has_place=False, HVD_STACKS="0")
    has(text, "no stacks: the process has no handler for them")
    has(verdict, "its stacks are unknown")


def test_the_programs_own_handler_is_respected(folder):
    verdict, text = hang(folder, "own_handler", "Sleeping")
    has(text, "no stacks: the process has no file of them")
    assert "own handler" not in verdict


def repeated(names):
    """The tests, HANG_RUNS times each."""
    runs = int(os.environ.get("HANG_RUNS", "1"))
    return {f"{name}#{i}": f for name, f in names.items() if name.startswith("test_") for i in range(runs)}


if __name__ == "__main__":
    main(repeated(globals()), at_once=int(os.environ.get("HANG_AT_ONCE", "2")))
