# SPDX-License-Identifier: Apache-2.0
"""What the tests of found jobs share: launchers' command lines, what ranks say, two hosts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import lru_cache

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launch"))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from hosts import Hosts
from launched import BIN, environment
from ports import free_port  # noqa: F401  tests have it from here
from tap import Program, Skip, same

RANK = os.path.join(BIN, "found-rank")
PYTHON = "/usr/bin/python3"  # Debian's, which has torch
MPIRUN = "mpirun.openmpi"
MPICH = "mpiexec.mpich"
WEAK = "the launcher gives no secret"
DEADLINE_S = 180  # ends what hangs; torch is slow to be there


def cached(path):
    cache = os.environ.get("RM_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ringmaster"
    )
    return os.path.join(cache, path)


def intel() -> str:
    """Intel MPI's mpiexec, of tests/setup/venv.sh impi."""
    return cached("venv/impi/bin/mpiexec.hydra")


def need(program: str) -> str:
    if not shutil.which(program):
        raise Skip(f"{program} is not installed")
    return program


def openmpi(*words: str) -> list[str]:
    return [need(MPIRUN), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *words]


def line(rank, size, local, local_size, cross, cross_size, by):
    total = size * (size + 1) // 2
    return f"rank {rank}/{size} local {local}/{local_size} cross {cross}/{cross_size} by {by} sum {total}"


def one_host(size, by):
    return [line(r, size, r, size, 0, 1, by) for r in range(size)]


def late(folder, name, argv, rank, *words, **env):
    """Starts RANK, or the words, on all ranks; that rank waits until release(folder, name)."""
    variables = "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}"
    script = (
        f'[ "{variables}" = {rank} ] && while [ ! -e {folder}/{name}.go ]; do sleep 0.05; done; '
        f"exec {shlex.join(words or [RANK])}"
    )
    return Program([*argv, "sh", "-c", script], environment(TMPDIR=folder, **env), folder, name)


def release(folder, name):
    open(f"{folder}/{name}.go", "wb").close()


def two_hosts(by):
    """Two ranks on each of two hosts."""
    return [line(r, 4, r % 2, 2, r // 2, 2, by) for r in range(4)]


def two_hosts_in_turn(by):
    return [line(r, 4, r // 2, 2, r % 2, 2, by) for r in range(4)]


def run(folder, argv, code=0, deadline_s=DEADLINE_S, **env):
    """The program, its exit code checked (None: any but 0)."""
    program = Program(argv, environment(TMPDIR=folder, **env), folder, "run")
    got = program.end(deadline_s)
    wrong = got == 0 if code is None else got != code
    assert not wrong, f"exit code {got}, wanted {code}\n{' '.join(argv)}\n{program.out}{program.err}"
    return program


def ranks(program):
    """What the ranks said. A launcher may put prefixes before lines, and two of them on one."""
    return sorted(re.findall(r"rank \d+/\d+ (?:[a-z0-9]+ [\d/]+ |by [a-z]+ )*(?:sum|hvd) \d+", program.out))


def meets(folder, argv, wanted, warns=False, **env):
    program = run(folder, argv, **env)
    same(ranks(program), wanted, f"{' '.join(argv)}\n{program.err}")
    same(WEAK in program.err, warns, f"the warning about the weak token\n{program.err}")
    return program


@lru_cache(maxsize=None)
def has_torch(python):
    asks = [python, "-c", "import torch"]
    return bool(shutil.which(python)) and not subprocess.run(asks, stderr=subprocess.DEVNULL).returncode


def torch(*words, launcher="torch.distributed.run", python=PYTHON):
    """Debian's torch 1.13 with Python 3.11 fails without --redirects and --tee; else it looks every 5 s."""
    if not has_torch(python):
        raise Skip(f"{python} has no torch")
    options = ["--redirects", "1", "--tee", "1", "--monitor_interval", "0.1"]
    return [python, "-W", "ignore", "-m", launcher, *options, *words]


def python_path():
    path = os.path.join(os.path.dirname(BIN), "python")
    if not os.path.exists(os.path.join(path, "_hvd/libhvd.so")):
        raise Skip(f"{path} is not built (make all)")
    return path


@lru_cache(maxsize=None)
def both_hosts():
    return Hosts("ab")  # they go at the test's exit


@contextmanager
def two_hosts_up(folder):
    """Hosts a and b, and a remote shell into them for mpirun and mpiexec; nothing may be left there."""
    hosts = both_hosts()
    hosts.enter = os.path.join(folder, "enter")
    cases = "".join(
        f'{name} | {hosts.address(name)}) set -- {shlex.join(hosts.prefix(name))} bash -c "$*" ;;\n'
        for name in hosts.names
    )
    with open(hosts.enter, "w", encoding="ascii") as f:
        f.write(
            "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1\nshift\n"
            f"case $host in\n{cases}*) exit 255 ;;\nesac\n"
            'exec "$@"\n'
        )
    os.chmod(hosts.enter, 0o755)
    yield hosts
    hosts.nothing_left()


def mpirun_on(hosts, *words):
    a, b = hosts.address("a"), hosts.address("b")
    net = a.rsplit(".", 1)[0] + ".0/24"
    return [
        hosts.enter, "a", *openmpi(), "--mca", "plm_rsh_agent", hosts.enter, "--mca", "oob_tcp_if_include", net,
        "--mca", "btl_tcp_if_include", net, "-H", f"{a}:2,{b}:2", "-np", "4", *words,
    ]  # fmt: skip


def mpiexec_on(hosts, program, *words):
    a, b = hosts.address("a"), hosts.address("b")
    return [
        hosts.enter, "a", need(program), "-launcher", "ssh", "-launcher-exec", hosts.enter, "-localhost", a,
        "-hosts", f"{a},{b}", "-ppn", "2", "-n", "4", *words,
    ]  # fmt: skip
