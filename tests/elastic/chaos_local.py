# SPDX-License-Identifier: Apache-2.0
"""A job whose launcher runs all processes on this machine; for chaos.py."""

import os

import disturb
from watch import Job


class Platform(disturb.Driver):
    """The words of the launcher are those of the command line. Any launcher is possible."""

    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.script, self.hosts = os.path.join(folder, "discover.sh"), os.path.join(folder, "hosts")

    def begin(self):
        with open(self.script, "w", encoding="ascii") as f:
            f.write(f"#!/bin/sh\nexec cat '{self.hosts}'\n")
        os.chmod(self.script, 0o755)

    def start(self, name, *options):
        self.scale(self.args.scale[0] if self.args.scale else self.args.slots)
        words = [
            word.replace("{script}", self.script).replace("{dir}", self.folder)
            for word in self.args.launcher
        ]
        own = os.path.join(self.folder, name)
        return Job([*words, *self.train(own, *options)], own)

    def scale(self, n):
        """{n} in --host-line: one line; {i}: a line for each of 1 to n."""
        line = self.args.host_line
        lines = [line.format(i=i, n=n) for i in range(1, (n if "{i}" in line else 1) + 1)]
        disturb.write_hosts(self.hosts, lines)

    def stays(self, name, n):
        slot = next((slot_of(pid) for pid, of in self.job.writers().items() if of == name), None)
        return slot is None or slot < n


def slot_of(pid):
    """Of a process of an elastic job of ours; None: it is not one."""
    try:
        with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as f:
            place = next((v for v in f.read().split("\0") if v.startswith("HVD_ELASTIC=")), None)
    except OSError:
        return None
    return int(place.rsplit(":", 1)[1].split(".")[0]) if place else None
