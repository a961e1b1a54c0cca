# SPDX-License-Identifier: Apache-2.0
"""Network namespaces as hosts: each with an address, a host name, names of the other hosts, and an
sshd with its own keys and configuration. Needs root; everything is removed at the end."""

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile

from tap import DEADLINE_S, Program, Skip, read, wait_until, write

NET = "10.213.78"
NET6 = "fd00:213:78"
NAMES = "abcd"
SSHD = "/usr/sbin/sshd"


def sh(*words, **more):
    more.setdefault("check", True)
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more).stdout


class Hosts:
    """The hosts a, b, c and d. What is started on one is Program, as in tap.py."""

    def __init__(self, names=NAMES):
        if os.geteuid() != 0:
            raise Skip("namespaces need root")
        self.names = names
        self.tag = f"rmh{os.getpid()}"
        self.folder = tempfile.mkdtemp(prefix="hosts-")
        self.sshds = {}
        atexit.register(self.remove)
        self.switch = f"{self.tag}sw"
        sh("ip", "netns", "add", self.switch)
        self.on_net(self.switch, "ip", "link", "add", "br0", "type", "bridge")
        self.on_net(self.switch, "ip", "link", "set", "br0", "up")
        for i, name in enumerate(names):
            self.add(i, name)

    def ns(self, name):
        return f"{self.tag}{name}"

    def address(self, name):
        return f"{NET}.{self.names.index(name) + 1}"

    def address6(self, name):
        return f"{NET6}::{self.names.index(name) + 1}"

    @staticmethod
    def on_net(ns, *words):
        return sh("ip", "netns", "exec", ns, *words)

    def add(self, i, name):
        ns, link = self.ns(name), f"v{self.tag[3:]}{name}"
        etc = f"/etc/netns/{ns}"
        sh("ip", "netns", "add", ns)
        end = f"{link} netns {self.switch} type veth peer name eth0 netns {ns}"
        for line in (
            f"link add {end}",
            f"-n {self.switch} link set {link} master br0 up",
            f"-n {ns} addr add {NET}.{i + 1}/24 dev eth0",
            f"-n {ns} addr add {NET6}::{i + 1}/64 dev eth0 nodad",
            f"-n {ns} link set eth0 up",
            f"-n {ns} link set lo up",
        ):
            sh("ip", *line.split())
        os.makedirs(f"{etc}/ssh", exist_ok=True)
        with open(f"{etc}/hosts", "w", encoding="ascii") as f:
            f.write("127.0.0.1 localhost\n")
            for k, other in enumerate(self.names):
                f.write(f"{NET}.{k + 1} {other} {other}.test\n")
            f.write(f"{NET}.77 silent\n")
            for k in range(40):
                f.write(f"{NET}.{i + 1} h{k}\n")
        write(f"{etc}/nsswitch.conf", "hosts: files\npasswd: files\ngroup: files\n")
        write(f"{etc}/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        write(
            f"{etc}/ssh/ssh_config",
            f"UserKnownHostsFile {self.folder}/known_hosts\nGlobalKnownHostsFile /dev/null\n"
            f"IdentityFile {self.folder}/id\nIdentityAgent none\n",
        )

    def key(self, name):
        path = f"{self.folder}/{name}"
        if not os.path.exists(path):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
        return read(path + ".pub").strip()

    def start_sshds(self):
        """All of them, once; their hosts' keys are known."""
        if self.sshds:
            return
        if not os.path.exists(SSHD):
            raise Skip("openssh-server is not installed")
        write(f"{self.folder}/authorized", self.key("id") + "\n")
        with open(f"{self.folder}/known_hosts", "w", encoding="ascii") as f:
            for name in self.names:
                f.write(
                    f"{name},{self.address(name)},{self.address6(name)} {' '.join(self.key('host-' + name).split()[:2])}\n"
                )
        for name in self.names:
            write(
                f"{self.folder}/sshd-{name}.conf",
                f"Port 22\nPort 2200\nHostKey {self.folder}/host-{name}\n"
                f"AuthorizedKeysFile {self.folder}/authorized\nPidFile none\nUsePAM no\n"
                "StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
                "KbdInteractiveAuthentication no\nMaxStartups 100\nUseDNS no\n",
            )
            # /run/sshd must be there; "ip netns exec" gives each its own mounts
            script = 'mount -t tmpfs run /run && mkdir /run/sshd && exec "$@"'
            command = [SSHD, "-D", "-e", "-f", f"{self.folder}/sshd-{name}.conf"]
            self.sshds[name] = self.start(name, "sh", "-c", script, "sh", *command, tag=f"sshd-{name}")
        for name in self.names:
            wait_until(f"sshd of {name}", lambda name=name: "2200" in self.sockets(name, "-l"))

    def cut(self, name):
        """Takes the cable out."""
        self.on_net(self.switch, "ip", "link", "set", f"v{self.tag[3:]}{name}", "down")

    def join(self, name):
        self.on_net(self.switch, "ip", "link", "set", f"v{self.tag[3:]}{name}", "up")

    def prefix(self, name):
        """What runs a command on a host: its network, its /etc and its own host name."""
        return [
            "ip", "netns", "exec", self.ns(name), "unshare", "-u",
            "sh", "-c", 'hostname "$0"; exec "$@"', name,
        ]  # fmt: skip

    def start(self, name, *words, env=None, folder=None, tag="program", **more):
        env = dict(os.environ) if env is None else env
        return Program([*self.prefix(name), *words], env, folder or self.folder, tag, **more)

    def pids(self, name):
        """Processes on a host, sshd and what the test itself keeps there left out."""
        kept = {s.pid for s in self.sshds.values()}
        return [int(p) for p in sh("ip", "netns", "pids", self.ns(name)).split() if int(p) not in kept]

    def sockets(self, name, *flags):
        return self.on_net(self.ns(name), "ss", "-Htnp", *flags)

    def what_is_left(self):
        """Processes and sockets on all hosts, as text; empty when nothing is."""
        left = []
        for name in self.names:
            for pid in self.pids(name):
                words = read(f"/proc/{pid}/cmdline").replace("\0", " ")
                if words and pid not in getattr(self, "kept", ()):
                    left.append(f"{name}: {pid} {words}")
            for flags in (), ("-l",):
                for line in self.sockets(name, *flags).splitlines():
                    if '"sshd"' not in line and "TIME-WAIT" not in line and "kept" not in line:
                        left.append(f"{name}: {line}")
        return "\n".join(left)

    def nothing_left(self, deadline_s=30):
        try:
            wait_until("nothing is left", lambda: not self.what_is_left(), deadline_s)
        except AssertionError:
            raise AssertionError(f"left after {deadline_s} s:\n{self.what_is_left()}") from None

    def remove(self):
        for name in [*self.names, ""]:
            ns = self.ns(name) if name else self.switch
            for pid in sh("ip", "netns", "pids", ns, check=False).split():
                if pid.isdigit():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), 9)
            sh("ip", "netns", "del", ns, check=False)
            shutil.rmtree(f"/etc/netns/{ns}", ignore_errors=True)
        with contextlib.suppress(OSError):  # others are at work
            os.rmdir("/etc/netns")
        for program in self.sshds.values():
            program.process.wait(DEADLINE_S)
        shutil.rmtree(self.folder, ignore_errors=True)
