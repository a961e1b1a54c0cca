#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A world of many real ranks on this machine, and how many sockets each process has.

usage: big_world.py HOSTS RANKS_PER_HOST     BIN: folder of the programs (default: $BUILD/plain/bin)

The ranks have torchrun's environment, with a LOCAL_RANK and a host each; so rank 0 is also the
server of the rendezvous. 1,024 ranks need 6 GB.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(os.environ.get("BIN", ROOT / os.environ.get("BUILD", "build") / "plain/bin"))
LIMIT = 32  # connections of a process
MEET_S = 600


class Rank:
    def __init__(self, rank: int, hosts: int, local: int, port: int, folder: str) -> None:
        env = {
            "RANK": rank,
            "WORLD_SIZE": hosts * local,
            "LOCAL_RANK": rank % local,
            "LOCAL_WORLD_SIZE": local,
            "GROUP_RANK": rank // local,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "HOROVOD_START_TIMEOUT": MEET_S,
            "HVD_PEER_TIMEOUT": MEET_S,
            "PATH": os.environ["PATH"],
        }
        self.out = Path(folder) / str(rank)
        self.peak = 0
        with self.out.open("wb") as out:
            self.program = subprocess.Popen(
                [str(BIN / "found-rank"), "hvd", "stay"],
                env={k: str(v) for k, v in env.items()},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def count_sockets(self) -> int:
        n = 0
        try:
            for fd in os.scandir(f"/proc/{self.program.pid}/fd"):
                n += os.readlink(fd.path).startswith("socket:")
        except OSError:  # it has ended, or has closed this one
            pass
        self.peak = max(self.peak, n)
        return n

    def stays(self) -> bool:
        return b" stays\n" in self.out.read_bytes()


def expect(holds: bool, what: str) -> None:
    if not holds:
        print(f"big_world: {what}")
        sys.exit(1)


def wait_for_all(ranks: list[Rank]) -> None:
    deadline = time.monotonic() + MEET_S
    while not all(r.stays() for r in ranks):
        for r in ranks:
            r.count_sockets()
            expect(r.program.poll() is None, f"a rank has ended: {r.out.read_text()}")
        expect(
            time.monotonic() < deadline, f"not all ranks have met in {MEET_S} s: {ranks[0].out.read_text()}"
        )
        time.sleep(0.1)


def check(ranks: list[Rank]) -> None:
    n = len(ranks)
    for r, rank in enumerate(ranks):
        found = re.search(rb"^rank (\d+)/(\d+) .* sum (\d+\.?\d*(?:e\+\d+)?)$", rank.out.read_bytes(), re.M)
        expect(found is not None, f"rank {r}: {rank.out.read_text()}")
        place, size, total = (float(x) for x in found.groups())
        want = float(f"{n * (n + 1) / 2:g}")
        expect((place, size, total) == (r, n, want), f"rank {r}: {found.group()!r}, not the sum {want}")
    now = [r.count_sockets() for r in ranks]
    peaks = Counter(r.peak for r in ranks[1:])
    print(
        f"{n} ranks: rank 0, also the server, had {ranks[0].peak} sockets at most; another rank {max(peaks)}"
    )
    print(f"while they work: rank 0 {now[0]}, another rank {max(now[1:])}")
    expect(max(peaks) <= LIMIT, f"sockets of a rank: {sorted(peaks.items())}, at most {LIMIT}")
    expect(max(now) <= LIMIT, f"sockets while they work: {max(now)}, at most {LIMIT}")


def run(hosts: int, local: int, folder: str) -> None:
    port, begin = free_port(), time.monotonic()
    ranks: list[Rank] = []
    try:
        ranks.extend(Rank(r, hosts, local, port, folder) for r in range(hosts * local))
        wait_for_all(ranks)
        print(f"{len(ranks)} ranks on {hosts} hosts have met in {time.monotonic() - begin:.1f} s")
        check(ranks)
        for r in ranks:
            r.program.send_signal(signal.SIGUSR1)
        codes = Counter(r.program.wait(MEET_S) for r in ranks)
        expect(codes == {0: len(ranks)}, f"exit codes: {dict(codes)}")
    finally:
        for r in ranks:
            r.program.kill()
            r.program.wait()


def main() -> int:
    hosts, local = (int(x) for x in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="big-world-") as folder:
        run(hosts, local, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
