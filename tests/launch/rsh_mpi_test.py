#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real mpirun and mpiexec that reach other hosts by hvd-rsh: namespaces as hosts. TAP.

usage: rsh_mpi_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import shutil
import signal

from launched import BIN, environment
from rsh_test import RSH, Agents
from tap import Skip, has, main, same, wait_until, write

PI = os.path.join(BIN, "mpi-pi")
# The variables of mpi-operator, and those that select hvd-rsh; {}: the hostfile
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "{}",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "OMPI_MCA_orte_set_default_slots": "2",
    "OMPI_MCA_plm_rsh_agent": RSH,
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_pml": "ob1",
}
MPICH = {
    "HYDRA_HOST_FILE": "{}",
    "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
    "HYDRA_LAUNCHER": "ssh",
    "HYDRA_LAUNCHER_EXEC": RSH,
}
# program, line of the hostfile, variables
KINDS = {
    "openmpi": ("mpirun.openmpi", "{} slots=2\n", OPENMPI),
    "mpich": ("mpiexec.mpich", "{}:2\n", MPICH),
}


class Job(Agents):
    """A launcher on host a, and two slots on each of other hosts."""

    def mpi(self, kind, hosts, *words, env=None):
        program, line, own = KINDS[kind]
        if not shutil.which(program) or not os.path.exists(f"{PI}-{kind}"):
            raise Skip(f"{program} and mpicc.{kind} are needed")
        hostfile = f"{self.folder}/hostfile"
        write(hostfile, "".join(map(line.format, hosts)))
        own = {name: value.format(hostfile) for name, value in own.items()}
        env = environment(HVD_TOKEN_FILE=self.token, TMPDIR=self.folder, **{**own, **(env or {})})
        words = [program, "-n", str(2 * len(hosts)), f"{PI}-{kind}", *words]
        return self.hosts.start("a", *words, env=env, folder=self.folder, tag=kind, stdin=None)

    @staticmethod
    def check_pi(p, hosts):
        same(p.end(60), 0, p.err)
        names = " ".join(f"{h} {h}" for h in hosts)
        same(p.out, f"pi 3.141592654 size {2 * len(hosts)} hosts {names}\n", p.err)


def test_ranks_compute_and_fail(folder):
    for kind in KINDS:
        with Job(folder) as s:
            s.check_pi(s.mpi(kind, "bc"), "bc")
            s.only_serving()
            p = s.mpi(kind, "bc", "1000", "abort", "7")
            same(p.end(60), 7, p.err)
            s.only_serving()


def test_a_late_host_is_waited_for(folder):
    for kind in KINDS:
        with Job(folder, "b") as s:
            p = s.mpi(kind, "bc", env={"HVD_START_TIMEOUT": "20"})
            wait_until("it waits", lambda p=p: "waiting for host c, " in p.err)
            s.serve("c", s.token)
            s.check_pi(p, "bc")


def test_a_killed_launcher_leaves_nothing(folder):
    for kind in KINDS:
        for number in signal.SIGKILL, signal.SIGTERM:
            with Job(folder) as s:
                p = s.mpi(kind, "bc", "1000", "stay")
                wait_until("the ranks work", lambda p=p: "pi 3.14" in p.out)
                p.signal(number)
                p.end(60)
                s.only_serving()


def test_the_launcher_is_one_of_the_workers(folder):
    with Job(folder) as s:
        for kind in KINDS:
            s.check_pi(s.mpi(kind, "ab"), "ab")


def test_openmpi_s_tree_of_daemons(folder):
    """Beyond 64 hosts mpirun's daemons start more daemons: from worker to worker."""
    with Job(folder, "") as s:
        for name in "bcd":  # an agent hands its environment on, and with it where the token is
            s.serve(name, None, env={"HVD_TOKEN_FILE": s.token})
        s.check_pi(s.mpi("openmpi", "bcd", env={"OMPI_MCA_routed_radix": "1"}), "bcd")
        has(s.agents["c"].err, f"command accepted address={s.hosts.address('b')} ")


def test_without_a_token(folder):
    with Job(folder, "bc", c="0a" * 32) as s:
        p = s.mpi("openmpi", "bc")
        assert p.end(60) != 0
        has(p.err, f"hvd-rsh: host c: its hvd-agent serve has another token than {s.token}\n")
        s.only_serving()


if __name__ == "__main__":
    main(globals())
