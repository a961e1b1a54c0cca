# SPDX-License-Identifier: Apache-2.0
"""Ports for the tests' own servers."""

from __future__ import annotations

import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST, LAST = 12000, 29999  # beside the ports of daemons that may be here, and below Kubernetes' node ports


def free_port() -> int:
    """A free port, for a program that binds it a little later.

    It is not an ephemeral port: before the program starts, the kernel could give one of those to another
    test's socket.
    """
    given = int(RANGE.read_text().split()[0]) if RANGE.exists() else LAST + 1
    for _ in range(1000):
        port = random.SystemRandom().randrange(FIRST, max(FIRST + 1, min(LAST + 1, given)))
        with socket.socket() as s:
            try:
                s.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {FIRST} to {LAST} is free")
