#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that mpirun and mpiexec start on one host and on two, and a bare process. TAP.

The two hosts are network namespaces, for root only. srun's jobs are in tests/slurm/found.sh.

usage: found_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

from __future__ import annotations

import os
import re
import shlex
import sys

from jobs import (
    DEADLINE_S,
    MPICH,
    MPIRUN,
    PYTHON,
    RANK,
    WEAK,
    has_torch,
    intel,
    late,
    meets,
    mpiexec_on,
    mpirun_on,
    need,
    one_host,
    openmpi,
    python_path,
    ranks,
    release,
    run,
    two_hosts,
    two_hosts_in_turn,
    two_hosts_up,
)
from launched import HOROVODRUN, ROOT
from tap import Skip, has, run_all, same, wait_until

# --- one host ---------------------------------------------------------------------------------------


def test_nobody(folder):
    meets(folder, [RANK], one_host(1, "none"))


def test_openmpi(folder):
    meets(folder, openmpi("-np", "3", RANK), one_host(3, "openmpi"))


def test_a_report_under_mpirun(folder):
    """Rank 0's variable counts; the ranks end by exit."""
    script = f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] && export HVD_REPORT=1; exec {RANK}'
    program = run(folder, openmpi("-np", "3", "sh", "-c", script))
    same(ranks(program), one_host(3, "openmpi"))
    lines = re.findall(r"^horovod: report: (\w+)", program.err, re.M)
    same(lines, ["no", "4", "rank", "advice"], program.err)


def test_openmpi_of_one_rank(folder):
    meets(folder, openmpi("-np", "1", RANK), one_host(1, "openmpi"))


def test_openmpi_where_no_libpmix_can_be_loaded(folder):
    """The environment must do, and says so."""
    os.mkdir(f"{folder}/lib")
    open(f"{folder}/lib/libpmix.so.2", "wb").close()
    program = meets(
        folder,
        openmpi("-np", "2", "env", f"LD_LIBRARY_PATH={folder}/lib", RANK),
        one_host(2, "openmpi"),
        warns=True,
    )
    has(program.err, "the launcher's channel cannot be used")
    has(program.err, "libpmix.so.2")


def test_openmpi_where_its_pmix_server_is_not_reached(folder):
    nowhere = [f"PMIX_SERVER_URI{v}=1.0;tcp4://127.0.0.1:1" for v in ("41", "4", "3", "21", "2")]
    program = meets(folder, openmpi("-np", "2", "env", *nowhere, RANK), one_host(2, "openmpi"), warns=True)
    same(program.err.count('channel=PMIx cause="PMIx_Init: '), 1, program.err)


def test_pmix_alone_without_open_mpis_variables(folder):
    names = [f"OMPI_COMM_WORLD_{n}" for n in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
    unset = [word for name in names for word in ("-u", name)]
    meets(folder, openmpi("-np", "3", "env", *unset, RANK), one_host(3, "mpiexec"))


def test_mpich(folder):
    meets(folder, [need(MPICH), "-n", "3", RANK], one_host(3, "mpiexec"))


def test_mpich_without_local_ranks(folder):
    argv = [need(MPICH), "-n", "3", "env", "-u", "MPI_LOCALRANKID", "-u", "MPI_LOCALNRANKS", RANK]
    meets(folder, argv, one_host(3, "mpiexec"))


def test_hosts_are_distinguished_by_hvd_host_id(folder):
    script = f"HVD_HOST_ID=$((PMI_RANK / 2)) exec env -u MPI_LOCALRANKID -u MPI_LOCALNRANKS {RANK}"
    meets(folder, [need(MPICH), "-n", "4", "sh", "-c", script], two_hosts("mpiexec"))


def test_mpich_by_pmi_port(folder):
    meets(folder, [need(MPICH), "-pmi-port", "-n", "3", RANK], one_host(3, "mpiexec"))


def test_mpich_of_one_rank(folder):
    meets(folder, [need(MPICH), "-n", "1", RANK], one_host(1, "mpiexec"))


def test_rank_0_leaves_while_others_still_meet(folder):
    """It serves the last round and is the first to have its answer; on one CPU nearly always."""
    cpu = str(min(os.sched_getaffinity(0)))
    for _ in range(4):
        run(folder, ["taskset", "-c", cpu, need(MPICH), "-n", "48", RANK, "brief"])


def test_intel(folder):
    meets(folder, [need(intel()), "-n", "3", RANK], one_host(3, "mpiexec"))


def test_the_next_world_of_a_process(folder):
    for argv, by in ((openmpi("-np"), "openmpi"), ([need(MPICH), "-n"], "mpiexec")):
        program = run(folder, [*argv, "2", RANK, "hvd", "again", "again"])
        same(ranks(program), sorted(one_host(2, by) * 3))


def with_mpi(folder, argv, by, **env):
    """An MPI in the same process, in each order of beginnings and ends."""
    for words in (
        "hvd mpi",
        "mpi hvd",
        "hvd mpi mpi-end",
        "hvd down mpi",
        "mpi hvd down mpi-end",
        "hvd mpi again",
    ):
        program = run(folder, [*argv, *words.split()], **env)
        same(program.out.splitlines().count("mpi sum 3"), 2, f"{words}\n{program.out}{program.err}")
        same(sorted(set(ranks(program))), one_host(2, by), words)
        for complaint in "improperly", "BAD TERMINATION", WEAK:
            assert complaint not in program.err, f"{words}\n{program.err}"


def built_with(mpi):
    path = f"{RANK}-{mpi}"
    if not os.path.exists(path):
        raise Skip(f"{path} is not built (needs mpicc.{mpi})")
    return path


def test_openmpi_with_mpi_in_the_same_process(folder):
    with_mpi(folder, openmpi("-np", "2", built_with("openmpi")), "openmpi")


def test_mpich_with_mpi_in_the_same_process(folder):
    with_mpi(folder, [need(MPICH), "-n", "2", built_with("mpich")], "mpiexec")


def test_intel_with_mpi_in_the_same_process(folder):
    """Its library has MPICH's binary interface."""
    argv = [need(intel()), "-n", "2", built_with("mpich")]
    lib = os.path.join(os.path.dirname(os.path.dirname(intel())), "lib")
    for name in "libmpi.so.12", "libmpich.so.12":
        os.symlink(f"{lib}/libmpi.so.12", f"{folder}/{name}")
    with_mpi(folder, argv, "mpiexec", LD_LIBRARY_PATH=f"{folder}:{lib}", I_MPI_FABRICS="shm")


def test_mpich_after_mpi_finalize(folder):
    program = run(folder, [need(MPICH), "-n", "2", built_with("mpich"), "mpi", "mpi-end", "hvd"], code=None)
    has(program.err, "MPI_Finalize came before hvd.init()")


def test_openmpi_after_mpi_finalize(folder):
    program = run(folder, openmpi("-np", "2", built_with("openmpi"), "mpi", "mpi-end", "hvd"))
    same(ranks(program), one_host(2, "openmpi"))


def test_the_token_is_neither_logged_nor_in_the_environment(folder):
    script = f"tr '\\0' '\\n' </proc/self/environ; exec {RANK} hvd again"
    for argv in openmpi("-np", "2"), [need(MPICH), "-n", "2"]:
        program = run(folder, [*argv, "sh", "-c", script], HOROVOD_LOG_LEVEL="trace")
        has(program.err, "ranks meet through their launcher")
        text = program.out + program.err
        assert not re.search(r"[0-9a-f]{64}", text), text


def test_several_programs_in_one_job(folder):
    meets(folder, openmpi("-np", "1", RANK, ":", "-np", "2", RANK, "hvd"), one_host(3, "openmpi"))
    meets(folder, [need(MPICH), "-n", "1", RANK, ":", "-n", "2", RANK, "hvd"], one_host(3, "mpiexec"))


# --- two hosts ------------------------------------------------------------------------------------


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


# --- exit codes -----------------------------------------------------------------------------------


def test_the_exit_code_of_the_first_failing_rank(folder):
    for argv in (openmpi("-np"), [need(MPICH), "-n"]):
        for rank in 0, 2:
            program = run(folder, [*argv, "3", RANK, "hvd", f"fail={rank}:7"], code=7)
            has(program.err, f"rank {rank} (host ")


def test_a_rank_that_does_not_come(folder):
    for argv, by, missing in (
        (openmpi("-np"), "3 ranks of openmpi to meet by its PMIx", "rank 1"),
        ([need(MPICH), "-n"], "3 ranks of mpiexec to meet by its PMI", "some rank"),
    ):
        env = {"FOUND_END": f"{folder}/end", "HOROVOD_START_TIMEOUT": "2"}  # the other ranks come in time
        script = f"{RANK} late=1 hvd; rc=$?; : >{folder}/end; exit $rc"
        program = run(folder, [*argv, "3", "sh", "-c", script], code=None, **env)
        has(program.err, f"waited 2 s for all {by}: {missing} has not called hvd.init() or has failed")
        has(program.err, "has failed (HOROVOD_START_TIMEOUT is 2 s: raise it to wait longer)")
        os.unlink(f"{folder}/end")


def guide_lines():
    """The command of GUIDE.md's "Start timeouts" without its program, and the line that it shows."""
    with open(f"{ROOT}/runtime/python/GUIDE.md", encoding="utf-8") as f:
        text = f.read().split("\n## Start timeouts\n")[1].split("\n## ")[0]
    command, line = re.findall(r"^    (.*)$", text, re.M)
    variable, program, *words = shlex.split(command.removesuffix(" python train.py"))
    same(program, "mpirun")
    has(line, " waited_s=10 limit=HOROVOD_START_TIMEOUT")
    return ["env", variable, *openmpi(*words)], line.split(" waited_s=")[0]


def test_ranks_that_wait_say_so_under_every_launcher(folder):
    """Not once for each rank. With rank 0, or if that is missing, with a few of its peers."""
    guided, line = guide_lines()
    jobs = {
        ("guide", 1): (guided, line, 1),
        ("openmpi", 2): (openmpi("-np", "3"), "waiting for rank 2 of 3 (the first that is missing)", 1),
        ("openmpi", 0): (openmpi("-np", "4"), "waiting for rank 0 of 4 (the first that is missing)", 2),
        ("mpiexec", 1): ([need(MPICH), "-n", "2"], "waiting for rank 1 of 2", 1),
        ("horovod", 1): ([HOROVODRUN, "-np", "4"], "waiting for rank 1 of 4", 1),
    }
    programs = {
        (by, rank): late(folder, f"{by}{rank}", argv, rank) for (by, rank), (argv, _, _) in jobs.items()
    }
    for key, (_, text, n) in jobs.items():
        wait_until(text, lambda p=programs[key], text=text, n=n: p.err.count(text) >= n, DEADLINE_S)
        release(folder, programs[key].name)
    for key, (_, text, n) in jobs.items():
        program = programs[key]
        same(program.end(DEADLINE_S), 0, program.err)
        same(len(re.findall(f"{re.escape(text)} waited_s=1[0-9] limit=H", program.err)), n, program.err)
        same(program.err.count("waiting for "), n, program.err)


# --- contradictions -------------------------------------------------------------------------------


def test_wrong_sets_are_one_sentence(folder):
    """More of them: contract_discover_test, bootstrap_pmi_test."""
    for env, says in (
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_RANK=0 and PMI_SIZE=2 are set, but PMI_FD is not"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_FD": "9"}, "PMI_FD=9 is not mpiexec's connection"),
        ({"HOROVOD_RANK": "2", "HOROVOD_SIZE": "2"}, "HOROVOD_LOCAL_RANK is unset"),
    ):
        program = run(folder, [RANK], code=1, **env)
        has(program.err, says)
        same(program.err.count("\n"), 1, program.err)


def test_the_environment_against_the_channel(folder):
    program = run(folder, [need(MPICH), "-n", "2", "env", "PMIX_RANK=1", RANK])
    same(ranks(program), one_host(2, "mpiexec"))
    program = run(folder, openmpi("-np", "2", "env", "PMIX_RANK=7", RANK), code=None)
    has(program.err, "PMIX_RANK=7, but OMPI_COMM_WORLD_RANK=")


# --- nested ---------------------------------------------------------------------------------------

POD = {  # as hvd-agent's ranks and their notebooks have it
    "HOROVOD_RANK": "1",
    "HOROVOD_SIZE": "4",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "0",
    "HOROVOD_CROSS_SIZE": "2",
    "HVD_HOST_INDEX": "0",
    "HVD_JOB_ID": "ns/demo/uid",
    "HVD_GENERATION": "0",
    "HVD_RENDEZVOUS_ADDR": "192.0.2.1",
    "HVD_RENDEZVOUS_PORT": "9",
    "HVD_TOKEN_FILE": "/nowhere",
    "RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "192.0.2.1",
    "MASTER_PORT": "9",
}


def test_in_a_pods_notebook(folder):
    meets(folder, openmpi("-np", "2", RANK), one_host(2, "openmpi"), **POD)
    meets(folder, [need(MPICH), "-n", "2", RANK], one_host(2, "mpiexec"), **POD)
    program = run(folder, [HOROVODRUN, "-np", "2", RANK], **POD)
    for text in one_host(2, "horovod"):
        has(program.out, text)


def test_horovodrun_inside_others(folder):
    inner = [HOROVODRUN, "-np", "2", RANK]
    for outer in (openmpi("-np", "1"), [need(MPICH), "-n", "1"]):
        program = run(folder, [*outer, *inner])
        for text in one_host(2, "horovod"):
            has(program.out, text)


def test_others_inside_horovodrun(folder):
    for inner, by in ((openmpi("-np", "2"), "openmpi"), ([need(MPICH), "-n", "2"], "mpiexec")):
        program = run(folder, [HOROVODRUN, "-np", "1", *inner, RANK])
        for text in one_host(2, by):
            has(program.out, text)


def test_one_mpi_inside_the_other(folder):
    """Which of two sets is the inner one cannot be seen; that of one rank is not meant."""
    inner = [need(MPICH), "-n", "2", RANK]
    meets(folder, openmpi("-np", "1", *inner), one_host(2, "mpiexec"))
    program = run(folder, openmpi("-np", "3", *inner), code=None)
    has(program.err, "of two nested launchers: unset")


def test_exported_for_torch_by_a_wrapper(folder):
    script = (
        "RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE MASTER_ADDR=127.0.0.1 "
        f"MASTER_PORT=29511 exec {RANK}"
    )
    meets(folder, openmpi("-np", "2", "sh", "-c", script), one_host(2, "openmpi"))


# --- Python ---------------------------------------------------------------------------------------

SCRIPT = """
import sys
import horovod.torch as hvd, torch
hvd.init()
y = hvd.allreduce(torch.ones(1) * (hvd.rank() + 1), op=hvd.Sum, name="y")
print(f"rank {hvd.rank()}/{hvd.size()} sum {y.item():g}", flush=True)
if hvd.rank() == 1:
    sys.exit(5)
hvd.allreduce(torch.ones(1), name="never")
"""


def test_python_whose_second_rank_exits(folder):
    """No shutdown, no launcher's name: the interpreter's own end must do."""
    if not has_torch(PYTHON):
        raise Skip(f"{PYTHON} has no torch")
    argv = openmpi("-np", "2", PYTHON, "-c", SCRIPT)
    program = run(folder, argv, code=5, PYTHONPATH=python_path())
    same(ranks(program), [f"rank {r}/2 sum 3" for r in range(2)])
    has(program.err, "HorovodInternalError: rank 1 (host ")
    has(program.err, ") exited with code 5")


if __name__ == "__main__":
    sys.exit(run_all([f for n, f in list(globals().items()) if n.startswith("test_")]))
