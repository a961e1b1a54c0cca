#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--output-filename of horovodrun on disks that are full, slow or hang. TAP.

usage: output_test.py [PART OF A NAME ...]
"""

import os
import re
import resource
import signal
import subprocess
import time

from disks import StallingDisk, enter_namespace, small_disk
from launched import UNTIL_GO, run_ranks, start_ranks, wait_for_ranks
from tap import children, has, is_alive, main, read, same, wait_until, write

NUMBERS = "".join(f"{i}\n" for i in range(1, 300001))  # 2 MB: more than may wait
COUNT = "seq 1 300000"
LOST = re.compile(r"output was lost bytes=(\d+) files=(\d+) first=\"([^\"]*)\" cause=\"([^\"]*)\"")


def up_then_go(folder, script):
    """A rank that prints one line, then waits for the file go before it carries out script."""
    return f"echo first; : > {folder}/up.$HOROVOD_RANK; {UNTIL_GO.format(folder)}; {script}"


def go(folder):
    write(f"{folder}/go", "")


def lost(program):
    """Bytes, number of files, first file and cause of the program's last sentence about losses."""
    found = LOST.findall(program.err)
    same(len(found), 1, program.err)
    return int(found[0][0]), int(found[0][1]), found[0][2], found[0][3]


def prefixed(text):
    return "".join(f"[0]<stdout>:{line}\n" for line in text.splitlines())


def start_on(disk, folder, script, n=1):
    """Ranks with their files on the disk, which stalls when their first lines are there."""
    program = start_ranks(folder, n, up_then_go(folder, script), "--output-filename", f"{disk.path}/logs")
    wait_for_ranks(folder, n)
    for rank in range(n):
        wait_until("first lines", lambda r=rank: read(f"{disk.path}/logs/rank.{r}/stdout") == "first\n")
    disk.stall()
    go(folder)
    return program


def test_much_output_is_complete_in_the_files(folder):
    script = f"{COUNT}; {COUNT} >&2"
    program = run_ranks(folder, 2, script, "--output-filename", f"{folder}/logs")
    for rank in range(2):
        for stream in "stdout", "stderr":
            same(read(f"{folder}/logs/rank.{rank}/{stream}") == NUMBERS, True, f"{rank} {stream}")
    assert "lost" not in program.err[-1000:], program.err[-1000:]


def test_existing_files_are_replaced(folder):
    os.makedirs(f"{folder}/logs/rank.0")
    write(f"{folder}/logs/rank.0/stdout", "much more than before\n")
    run_ranks(folder, 1, "echo new", "--output-filename", f"{folder}/logs")
    same(read(f"{folder}/logs/rank.0/stdout"), "new\n")


def test_what_is_not_a_regular_file_is_refused(folder):
    os.makedirs(f"{folder}/logs/rank.0")
    path = f"{folder}/logs/rank.0/stdout"
    script = f": > {folder}/up.0"
    for make in (
        lambda: os.mkfifo(path),
        lambda: os.symlink("/dev/null", path),
    ):
        make()
        program = run_ranks(folder, 1, script, "--output-filename", f"{folder}/logs", code=125)
        has(program.err, f"--output-filename: {path} exists and is not a regular file")
        os.unlink(path)
    assert not os.path.exists(f"{folder}/up.0")


def test_folders_and_files_that_cannot_be_made_are_named(folder):
    write(f"{folder}/file", "")
    os.makedirs(f"{folder}/a/rank.0/stderr")
    for words, sentence in (
        (f"{folder}/file/logs", f"cannot make the directory {folder}/file/logs: Not a directory"),
        (f"{folder}/file", f"cannot make the directory {folder}/file/rank.0: Not a directory"),
        (f"{folder}/a", f"cannot write {folder}/a/rank.0/stderr: Is a directory"),
        ("x" * 4090, "--output-filename: the path is too long"),
    ):
        program = run_ranks(folder, 1, "true", "--output-filename", words, code=125)
        has(program.err, sentence)


def test_a_write_that_fails_is_reported_and_the_job_continues(folder):
    limit = 65536

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    program = start_ranks(
        folder, 1, COUNT, "--output-filename", f"{folder}/logs", stdout=subprocess.PIPE, preexec_fn=limited
    )
    same(program.process.stdout.read().decode() == prefixed(NUMBERS), True, "the console's text")
    same(program.end(), 0)
    path = f"{folder}/logs/rank.0/stdout"
    has(program.err, f'output file is incomplete, the job continues file="{path}" cause="File too large"')
    same(lost(program), (len(NUMBERS) - limit, 1, path, "File too large"))
    same(read(path), NUMBERS[:limit])


def started_with_writer(folder, script):
    """A job of one rank that waits for go, and the pid of its writer."""
    program = start_ranks(folder, 1, up_then_go(folder, script), "--output-filename", f"{folder}/logs")
    wait_for_ranks(folder, 1)
    wait_until("the first line", lambda: read(f"{folder}/logs/rank.0/stdout") == "first\n")
    (writer,) = children(program.pid, "hvd-output")
    return program, writer


def test_a_writer_that_is_killed_is_reported_and_the_job_continues(folder):
    program, writer = started_with_writer(folder, COUNT)
    os.kill(writer, signal.SIGKILL)
    wait_until("it has ended", lambda: not is_alive(writer))
    go(folder)
    same(program.end(), 0, program.err)
    same(program.out == prefixed(f"first\n{NUMBERS}"), True, "the console's text")
    path = f"{folder}/logs/rank.0/stdout"
    same(lost(program), (len(NUMBERS), 1, path, "the writer of the files was killed"))


def test_the_writer_ends_with_a_launcher_that_is_killed(folder):
    program, writer = started_with_writer(folder, "true")
    program.signal(signal.SIGKILL)
    wait_until("the writer has ended", lambda: not is_alive(writer))


def test_a_full_disk_is_reported_and_the_job_continues(folder):
    enter_namespace()
    with small_disk(f"{folder}/disk") as disk:
        script = f"[ $HOROVOD_RANK = 1 ] || {COUNT}"
        program = run_ranks(folder, 2, script, "--output-filename", f"{disk}/logs")
        same(program.out == prefixed(NUMBERS), True, "the console's text")
        path = f"{disk}/logs/rank.0/stdout"
        kept = os.path.getsize(path)
        cause = "No space left on device"
        has(program.err, f'output file is incomplete, the job continues file="{path}" cause="{cause}"')
        same(program.err.count("the job continues"), 1)
        same(lost(program), (len(NUMBERS) - kept, 1, path, cause))


def test_a_disk_that_hangs_at_the_start_is_reported(folder):
    enter_namespace()
    with StallingDisk(f"{folder}/disk") as disk:
        disk.stall()
        program = run_ranks(folder, 1, "true", "--output-filename", f"{disk.path}/logs", code=125)
        has(program.err, f"--output-filename: {disk.path}/logs: the disk did not respond within 10 s")


def test_sigterm_ends_a_launcher_whose_disk_hangs_at_the_start(folder):
    enter_namespace()
    with StallingDisk(f"{folder}/disk") as disk:
        disk.stall()
        program = start_ranks(folder, 1, "true", "--output-filename", f"{disk.path}/logs")
        wait_until("the writer is there", lambda: children(program.pid, "hvd-output"))
        program.signal(signal.SIGTERM)
        start = time.monotonic()
        same(program.end(), 143)
        assert time.monotonic() - start < 5  # not by the limit of 10 s
        has(program.err, "horovodrun: stopped by SIGTERM")


def test_a_disk_that_hangs_does_not_stop_a_quiet_job(folder):
    enter_namespace()
    with StallingDisk(f"{folder}/disk") as disk:
        program = start_on(disk, folder, f"{UNTIL_GO.format(folder + '/2')}; echo second")
        (writer,) = children(program.pid, "hvd-output")
        os.mkdir(f"{folder}/2")
        go(f"{folder}/2")
        same(program.end(), 0, program.err)
        same(program.out, prefixed("first\nsecond\n"))
        path = f"{disk.path}/logs/rank.0/stdout"
        same(lost(program), (len("second\n"), 1, path, "the disk does not respond"))
        disk.resume()
        wait_until("the writer has ended", lambda: not is_alive(writer))


def test_a_disk_that_hangs_does_not_stop_a_job_with_much_output(folder):
    enter_namespace()
    with StallingDisk(f"{folder}/disk") as disk:
        program = start_on(disk, folder, f"{COUNT}; echo; {COUNT}", 2)
        same(program.end(), 0, program.err)
        same(len(re.findall(r"\[\d\]<stdout>:300000\n", program.out)), 4)
        path = f"{disk.path}/logs/rank."
        n, files, first, cause = lost(program)
        same((n, files, cause), (2 * (2 * len(NUMBERS) + 1), 2, "the disk does not respond"))
        assert first in (f"{path}0/stdout", f"{path}1/stdout"), first
        has(program.err, "output file is incomplete, the job continues")


def test_output_waits_for_a_disk_that_hangs_for_a_moment(folder):
    enter_namespace()
    with StallingDisk(f"{folder}/disk") as disk:
        program = start_on(disk, folder, COUNT)
        wait_until("more than may wait was printed", lambda: len(program.out) > 300000)
        disk.resume()
        same(program.end(), 0)
        same(read(f"{disk.path}/logs/rank.0/stdout") == f"first\n{NUMBERS}", True, "the file")
        assert "lost" not in program.err, program.err


def test_sigterm_ends_a_job_whose_disk_hangs(folder):
    enter_namespace()
    with StallingDisk(f"{folder}/disk") as disk:
        program = start_on(disk, folder, f"while :; do {COUNT}; done")
        wait_until("more than may wait was printed", lambda: len(program.out) > 300000)
        program.signal(signal.SIGTERM)
        same(program.end(20), 143)
        has(program.err, "horovodrun: stopped by SIGTERM")
        assert lost(program)[0] > 0


if __name__ == "__main__":
    main(globals(), at_once=4)
