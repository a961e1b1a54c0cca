#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that mpirun and mpiexec start on two hosts, which are network namespaces: root only. TAP.

usage: hosts_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

from __future__ import annotations

import os
import sys

from jobs import (
    MPICH,
    MPIRUN,
    RANK,
    intel,
    meets,
    mpiexec_on,
    mpirun_on,
    need,
    run,
    two_hosts,
    two_hosts_in_turn,
    two_hosts_up,
)
from tap import has, run_all


def test_openmpi_on_two_hosts(folder):
    need(MPIRUN)
    with two_hosts_up(folder) as hosts:
        meets(folder, mpirun_on(hosts, RANK), two_hosts("openmpi"))
        meets(folder, mpirun_on(hosts, "--map-by", "node", RANK), two_hosts_in_turn("openmpi"))
        program = run(folder, mpirun_on(hosts, RANK, "hvd", "fail=3:7"), code=7)
        has(program.err, "rank 3 (host b")
        env = {"FOUND_END": f"{folder}/end", "HOROVOD_START_TIMEOUT": "1"}
        names = [word for name in env for word in ("-x", name)]
        with open(f"{folder}/late", "w", encoding="ascii") as f:
            f.write(f"{RANK} late=3 hvd\nrc=$?\n: >{folder}/end\nexit $rc\n")
        program = run(folder, mpirun_on(hosts, *names, "sh", f"{folder}/late"), code=None, **env)
        has(program.err, "rank 3 has not called hvd.init() or has failed")
        os.mkdir(f"{folder}/lib")
        open(f"{folder}/lib/libpmix.so.2", "wb").close()
        program = run(folder, mpirun_on(hosts, "env", f"LD_LIBRARY_PATH={folder}/lib", RANK), code=None)
        has(program.err, "ranks of openmpi require its PMIx on this host: ")


def test_mpich_on_two_hosts(folder):
    need(MPICH)
    with two_hosts_up(folder) as hosts:
        meets(folder, mpiexec_on(hosts, MPICH, RANK), two_hosts("mpiexec"))
        program = meets(
            folder,
            mpiexec_on(hosts, MPICH, RANK),
            two_hosts("mpiexec"),
            HOROVOD_GLOO_IFACE="eth0",
            HOROVOD_LOG_LEVEL="info",
        )
        has(program.err, f"at={hosts.address('a')} port=")
        unset = ["env", "-u", "MPI_LOCALRANKID", "-u", "MPI_LOCALNRANKS", RANK]
        meets(folder, mpiexec_on(hosts, MPICH, *unset), two_hosts("mpiexec"))
        program = run(folder, mpiexec_on(hosts, MPICH, RANK, "hvd", "fail=3:7"), code=7)
        has(program.err, "rank 3 (host b")


def test_an_address_that_every_host_has(folder):
    """Such as docker0's: first in rank 0's list, and no other host can reach it."""
    need(MPICH)
    with two_hosts_up(folder) as hosts:
        extra = {name: ("172.17.0.1/16", f"198.51.100.{i}/32") for i, name in enumerate(hosts.names)}

        def address(name, what, addr):
            hosts.on_net(hosts.ns(name), "ip", "addr", what, addr, "dev", "eth0")

        for name, addrs in extra.items():
            own = hosts.address(name) + "/24"
            address(name, "del", own)
            for addr in (*addrs, own):
                address(name, "add", addr)
        try:
            program = meets(
                folder, mpiexec_on(hosts, MPICH, RANK), two_hosts("mpiexec"), HOROVOD_LOG_LEVEL="info"
            )
            has(program.err, f"at=172.17.0.1,198.51.100.0,{hosts.address('a')}")
        finally:
            for name, addrs in extra.items():
                for addr in addrs:
                    address(name, "del", addr)


def test_intel_on_two_hosts(folder):
    need(intel())
    with two_hosts_up(folder) as hosts:
        meets(folder, mpiexec_on(hosts, intel(), RANK), two_hosts("mpiexec"))


if __name__ == "__main__":
    sys.exit(run_all([f for n, f in list(globals().items()) if n.startswith("test_")]))
