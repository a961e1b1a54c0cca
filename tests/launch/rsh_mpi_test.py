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
from tap import Skip, has, main, same, wait_until

PI = os.path.join(BIN, "mpi-pi")


def need(kind, program):
    if not shutil.which(program) or not os.path.exists(f"{PI}-{kind}"):
        raise Skip(f"{program} and mpicc.{kind} are needed")


class Job(Agents):
    """A launcher with the variables of mpi-operator and those that select hvd-rsh."""

    def openmpi(self, hosts, *words, tag="mpirun", env=None, **more):
        need("openmpi", "mpirun.openmpi")
        with open(f"{self.folder}/hostfile", "w", encoding="ascii") as f:
            f.writelines(f"{host} slots=2\n" for host in hosts)
        env = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": f"{self.folder}/hostfile",
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
            "OMPI_MCA_orte_set_default_slots": "2",
            "OMPI_MCA_plm_rsh_agent": RSH,
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_pml": "ob1",
            **(env or {}),
        }
        return self.launch("mpirun.openmpi", words, env, tag, more)

    def mpich(self, hosts, *words, tag="mpiexec", env=None, **more):
        need("mpich", "mpiexec.mpich")
        with open(f"{self.folder}/hostfile", "w", encoding="ascii") as f:
            f.writelines(f"{host}:2\n" for host in hosts)
        env = {
            "HYDRA_HOST_FILE": f"{self.folder}/hostfile",
            "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": RSH,
            **(env or {}),
        }
        return self.launch("mpiexec.mpich", words, env, tag, more)

    def launch(self, program, words, env, tag, more):
        env = environment(HVD_TOKEN_FILE=self.token, TMPDIR=self.folder, **env)
        more.setdefault("stdin", None)
        return self.hosts.start("a", program, *words, env=env, folder=self.folder, tag=tag, **more)


def computes_pi(folder, start, kind):
    with Job(folder) as s:
        p = getattr(s, start)("bc", "-n", "4", f"{PI}-{kind}")
        same(p.end(60), 0, p.err)
        same(p.out, "pi 3.141592654 size 4 hosts b b c c\n", p.err)
        s.only_serving()
        p = getattr(s, start)("bc", "-n", "4", f"{PI}-{kind}", "1000", "abort", "7")
        same(p.end(60), 7, p.err)
        s.only_serving()


def test_openmpi(folder):
    computes_pi(folder, "openmpi", "openmpi")


def test_mpich(folder):
    computes_pi(folder, "mpich", "mpich")


def starts_late(folder, start, kind):
    with Job(folder, "b") as s:
        p = getattr(s, start)("bc", "-n", "4", f"{PI}-{kind}", env={"HVD_START_TIMEOUT": "20"})
        wait_until("it waits", lambda: "waiting for host c, " in p.err)
        s.serve("c", s.token)
        same(p.end(60), 0, p.err)
        same(p.out, "pi 3.141592654 size 4 hosts b b c c\n", p.err)


def test_openmpi_waits_for_a_late_host(folder):
    starts_late(folder, "openmpi", "openmpi")


def test_mpich_waits_for_a_late_host(folder):
    starts_late(folder, "mpich", "mpich")


def leaves_nothing(folder, start, kind, sig):
    with Job(folder) as s:
        p = getattr(s, start)("bc", "-n", "4", f"{PI}-{kind}", "1000", "stay")
        wait_until("the ranks work", lambda: "pi 3.14" in p.out)
        p.signal(sig)
        p.end(60)
        s.only_serving()


def test_a_killed_mpirun_leaves_nothing(folder):
    leaves_nothing(folder, "openmpi", "openmpi", signal.SIGKILL)
    leaves_nothing(folder, "openmpi", "openmpi", signal.SIGTERM)


def test_a_killed_mpiexec_leaves_nothing(folder):
    leaves_nothing(folder, "mpich", "mpich", signal.SIGKILL)
    leaves_nothing(folder, "mpich", "mpich", signal.SIGTERM)


def test_the_launcher_is_one_of_the_workers(folder):
    with Job(folder) as s:
        for start, kind in ("openmpi", "openmpi"), ("mpich", "mpich"):
            p = getattr(s, start)("ab", "-n", "4", f"{PI}-{kind}")
            same(p.end(60), 0, p.err)
            same(p.out, "pi 3.141592654 size 4 hosts a a b b\n", p.err)


def test_openmpi_s_tree_of_daemons(folder):
    """Beyond 64 hosts mpirun's daemons start more daemons: from worker to worker."""
    with Job(folder, "") as s:
        for name in "bcd":  # an agent hands its environment on, and with it where the token is
            s.serve(name, None, env={"HVD_TOKEN_FILE": s.token})
        p = s.openmpi("bcd", "-n", "6", f"{PI}-openmpi", env={"OMPI_MCA_routed_radix": "1"})
        same(p.end(60), 0, p.err)
        same(p.out, "pi 3.141592654 size 6 hosts b b c c d d\n", p.err)
        has(s.agents["c"].err, f"command accepted address={s.hosts.address('b')} ")


def test_without_a_token(folder):
    with Job(folder, "bc", c="quite another shared token") as s:
        p = s.openmpi("bc", "-n", "4", f"{PI}-openmpi")
        assert p.end(60) != 0
        has(p.err, f"hvd-rsh: host c: its hvd-agent serve has another token than {s.token}\n")
        s.only_serving()


if __name__ == "__main__":
    main(globals())
