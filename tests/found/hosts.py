# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine: network namespaces on one bridge, each with a host name of its own,
which they know each other by.

A program enters one by the script `enter`, which is also the remote shell that mpirun and mpiexec take:
`enter [-OPTION ...] HOST COMMAND ...`, HOST by name or address. Needs root.
"""

from __future__ import annotations

import os
import subprocess

NET = "10.214.66"  # exists inside the namespaces only


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Hosts:
    """names -> namespaces; the first is where launchers are started."""

    def __init__(self, folder: str, *names: str) -> None:
        self.prefix = f"rmf{os.getpid()}-"
        self.names = names
        self.enter = os.path.join(folder, "enter")
        self.names_file = os.path.join(folder, "hosts")
        self.addr = {name: f"{NET}.{i + 1}" for i, name in enumerate(names)}

    def __enter__(self) -> Hosts:
        try:
            self._up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _up(self) -> None:
        switch = self.prefix + "sw"
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for name, addr in self.addr.items():
            ns = self.prefix + name
            ip("netns", "add", ns)
            ip("-n", ns, "link", "set", "lo", "up")
            ip("-n", ns, *f"link add eth0 type veth peer name p-{name} netns {switch}".split())
            ip("-n", switch, "link", "set", "p-" + name, "master", "br0", "up")
            ip("-n", ns, "addr", "add", addr + "/24", "dev", "eth0")
            ip("-n", ns, "link", "set", "eth0", "up")
        with open(self.names_file, "w", encoding="ascii") as f:
            f.write("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in self.addr.items()))
        cases = "".join(f"{a} | {n}) name={n} ;;\n" for n, a in self.addr.items())
        with open(self.enter, "w", encoding="ascii") as f:
            f.write(
                "#!/bin/bash\n"
                "while [[ $1 == -* ]]; do shift; done\n"
                f'case $1 in\n{cases}*) echo "enter: no host $1" >&2; exit 255 ;;\nesac\nshift\n'
                f"exec nsenter --net=/run/netns/{self.prefix}$name unshare -u -m bash -c "
                f'"mount --bind {self.names_file} /etc/hosts; hostname $name; exec $*"\n'
            )
        os.chmod(self.enter, 0o755)

    def __exit__(self, *_: object) -> None:
        for name in (*self.names, "sw"):
            subprocess.run(
                ["ip", "netns", "del", self.prefix + name], check=False, stderr=subprocess.DEVNULL
            )
