#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long a job takes to start: start.py NAME RANKS COMMAND...

COMMAND is a launcher with a program that writes stamps (stamp.h). Prints the line of timing.h: as median,
minimum and p90 the microseconds from just before the launcher's exec until the last rank was past its init, as
mean those until the launcher had exited. A missing or duplicate rank, or a world of another size, is an error:
a launcher that started RANKS worlds of one rank would be fast.
"""

import os
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 120


def last_stamp(text, n):
    """Nanoseconds of the last rank past its init."""
    stamps = [tuple(map(int, line.split())) for line in text.splitlines()]
    places = sorted((rank, size) for rank, size, _ in stamps)
    if places != [(rank, n) for rank in range(n)]:
        sys.exit(f"not {n} ranks of one world: (rank, size) {places}")
    return max(ns for _, _, ns in stamps)


def main():
    name, n, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    with tempfile.NamedTemporaryFile("r", prefix="hvd-bench-", encoding="ascii") as stamps:
        env = {**os.environ, "BENCH_STAMPS": stamps.name}
        start = time.monotonic_ns()
        done = subprocess.run(command, env=env, timeout=TIMEOUT_S, check=False)
        end = time.monotonic_ns()
        if done.returncode != 0:
            sys.exit(f"{name}: exit status {done.returncode}")
        began_us = (last_stamp(stamps.read(), n) - start) / 1e3
    print(f"AR,{name},{n},0,1,{began_us:.0f},{began_us:.0f},{began_us:.0f},{(end - start) / 1e3:.0f}")


if __name__ == "__main__":
    main()
