#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that others start (mpirun, mpiexec, torchrun, a bare python), on one host and on two. TAP.

usage: found_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)

srun's are in slurm_test.py. Two hosts are network namespaces: root only.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import lru_cache

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launch"))
from hosts import Hosts, sh
from launched import BIN, HOROVODRUN, ROOT, environment
from tap import Program, Skip, has, run_all, same

RANK = os.path.join(BIN, "found-rank")
PYTHON = "/usr/bin/python3"  # Debian's, which has torch
MPIRUN = "mpirun.openmpi"
MPICH = "mpiexec.mpich"
WEAK = "the launcher gives no secret"


def cached(path):
    cache = os.environ.get("RM_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ringmaster"
    )
    return os.path.join(cache, path)


def intel() -> str:
    """Intel MPI's mpiexec, where the peers of `make bench` have been installed."""
    return cached("venv/peers/bin/mpiexec.hydra")


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


def two_hosts(by):
    """Two ranks on each of two hosts."""
    return [line(r, 4, r % 2, 2, r // 2, 2, by) for r in range(4)]


def two_hosts_in_turn(by):
    return [line(r, 4, r // 2, 2, r % 2, 2, by) for r in range(4)]


def run(folder, argv, code=0, deadline_s=60, **env):
    """The program, its exit code checked (None: any but 0)."""
    program = Program(argv, environment(TMPDIR=folder, **env), folder, "run")
    got = program.end(deadline_s)
    wrong = got == 0 if code is None else got != code
    assert not wrong, f"exit code {got}, wanted {code}\n{' '.join(argv)}\n{program.out}{program.err}"
    return program


def ranks(program):
    """What the ranks said, without torchrun's prefix."""
    lines = (re.sub(r"^\[default\d\]:", "", text) for text in program.out.splitlines())
    return sorted(text for text in lines if text.startswith("rank "))


def meets(folder, argv, wanted, warns=False, **env):
    program = run(folder, argv, **env)
    same(ranks(program), wanted, f"{' '.join(argv)}\n{program.err}")
    same(WEAK in program.err, warns, f"the warning about the weak token\n{program.err}")
    return program


# --- one host ---------------------------------------------------------------------------------------


def test_nobody(folder):
    meets(folder, [RANK], one_host(1, "none"))


def test_openmpi(folder):
    meets(folder, openmpi("-np", "3", RANK), one_host(3, "openmpi"))


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


def test_openmpi_one_program_after_the_other(folder):
    program = run(folder, openmpi("-np", "2", "sh", "-c", f"{RANK} && {RANK}"))
    same(ranks(program), sorted(one_host(2, "openmpi") * 2))


def test_pmix_alone_without_open_mpis_variables(folder):
    names = [f"OMPI_COMM_WORLD_{n}" for n in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
    unset = [word for name in names for word in ("-u", name)]
    meets(folder, openmpi("-np", "3", "env", *unset, RANK), one_host(3, "mpiexec"))


def test_mpich(folder):
    meets(folder, [need(MPICH), "-n", "3", RANK], one_host(3, "mpiexec"))


def test_mpich_without_local_ranks(folder):
    argv = [need(MPICH), "-n", "3", "env", "-u", "MPI_LOCALRANKID", "-u", "MPI_LOCALNRANKS", RANK]
    meets(folder, argv, one_host(3, "mpiexec"))


def test_hosts_are_told_apart_by_hvd_host_id(folder):
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
    orders = "hvd mpi, mpi hvd, hvd mpi mpi-end, hvd down mpi, mpi hvd down mpi-end, hvd mpi again"
    for words in orders.split(", "):
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


def test_the_token_is_told_nobody_else(folder):
    script = f"tr '\\0' '\\n' </proc/self/environ; exec {RANK} hvd again"
    for argv in openmpi("-np", "2"), [need(MPICH), "-n", "2"]:
        program = run(folder, [*argv, "sh", "-c", script], HOROVOD_LOG_LEVEL="trace")
        has(program.err, "ranks meet by their launcher")
        text = program.out + program.err
        assert not re.search(r"[0-9a-f]{64}", text), text


def test_several_programs_in_one_job(folder):
    meets(folder, openmpi("-np", "1", RANK, ":", "-np", "2", RANK, "hvd"), one_host(3, "openmpi"))
    meets(folder, [need(MPICH), "-n", "1", RANK, ":", "-n", "2", RANK, "hvd"], one_host(3, "mpiexec"))


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
        env = {"FOUND_END": f"{folder}/end", "HOROVOD_START_TIMEOUT": "1"}
        script = f"{RANK} late=1 hvd; rc=$?; : >{folder}/end; exit $rc"
        program = run(folder, [*argv, "3", "sh", "-c", script], code=None, **env)
        has(program.err, f"waited 1 s for all {by}: {missing} has not called hvd.init() or has failed")
        os.unlink(f"{folder}/end")


# --- contradictions -------------------------------------------------------------------------------


def test_wrong_sets_are_one_sentence(folder):
    table = (
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_RANK=0 and PMI_SIZE=2 are set, but PMI_FD is not"),
        ({"PMI_RANK": "2", "PMI_SIZE": "2", "PMI_FD": "9"}, "PMI_RANK=2 is not below PMI_SIZE=2"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_FD": "9"}, "PMI_FD=9 is not mpiexec's connection"),
        ({"PMI_PORT": "x", "PMI_ID": "0"}, "PMI_PORT=x is not HOST:PORT"),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            "over several hosts ranks meet by PMIx, but PMIX_NAMESPACE",
        ),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "RANK=0 and WORLD_SIZE=2 are set, but MASTER_ADDR"),
        ({"HOROVOD_RANK": "2", "HOROVOD_SIZE": "2"}, "HOROVOD_LOCAL_RANK is unset"),
    )
    for env, says in table:
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
    has(program.err, "of two launchers, one inside the other: unset")


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
    has(program.err, "HorovodInternalError: Horovod has been shut down: rank 1 (host ")


# --- torchrun -------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def has_torch(python):
    argv = [python, "-c", "import torch"]
    try:
        return subprocess.run(argv, check=False, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def torch(*words, launcher="torch.distributed.run", python=PYTHON):
    """Debian's torch 1.13 with Python 3.11 fails without --redirects and --tee; else it looks every 5 s."""
    if not has_torch(python):
        raise Skip(f"{python} has no torch")
    options = ["--redirects", "1", "--tee", "1", "--monitor_interval", "0.1"]
    return [python, "-W", "ignore", "-m", launcher, *options, *words]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


TWO = ("--standalone", "--nproc_per_node", "2", "--no_python")


def test_torchrun(folder):
    meets(folder, torch(*TWO, RANK), one_host(2, "torchrun"), warns=True)


def test_torchrun_inside_mpirun(folder):
    program = run(folder, [*openmpi("-np", "1"), *torch(*TWO, RANK)])
    same(ranks(program), one_host(2, "torchrun"))


def test_torchrun_names_the_first_failing_rank(folder):
    program = run(folder, torch(*TWO, RANK, "hvd", "fail=1:7"), code=1)
    first = program.err[program.err.index("Root Cause") :]
    assert re.search(r"local_rank: 1\)\s+exitcode\s*: 7 ", first), program.err


def test_torchrun_starts_its_ranks_anew(folder):
    """The next generation, on the same port."""
    script = f'[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && exec {RANK} hvd fail=1:7; exec {RANK}'
    argv = torch("--max_restarts", "1", *TWO, "sh", "-c", script)
    same(ranks(run(folder, argv)), sorted(one_host(2, "torchrun") * 2))


PYTHON_RANK = os.path.join(ROOT, "tests/found/torch_rank.py")


def python_path():
    path = os.path.join(os.path.dirname(BIN), "python")
    if not os.path.exists(os.path.join(path, "_hvd/libhvd.so")):
        raise Skip(f"{path} is not built (make all)")
    return path


def launch(folder, *words, python=PYTHON, **env):
    argv = torch(
        "--nproc_per_node", "2", "--master_port", str(free_port()), PYTHON_RANK, *words,
        launcher="torch.distributed.launch", python=python,
    )  # fmt: skip
    return run(folder, argv, **env)


def both(program):
    same(ranks(program), [f"rank {r}/2 c10d 3 hvd 3" for r in range(2)], program.err)


def test_torch_distributed_launch(folder):
    """hvd and torch's own c10d in one script, either first. This torch passes --local_rank."""
    both(launch(folder, "--first=c10d", PYTHONPATH=python_path()))
    both(launch(folder, "--first=hvd", PYTHONPATH=python_path()))


def test_torch_distributed_launch_of_the_newest_torch(folder):
    """It passes --local-rank."""
    if not os.environ.get("FOUND_FULL"):
        raise Skip("runs with `make test-full`")
    python = cached("venv/torch/bin/python")
    both(launch(folder, "--first=hvd", PYTHONPATH=python_path(), python=python))


# --- two hosts ------------------------------------------------------------------------------------


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
        has(program.err, "ranks of openmpi need its PMIx here: ")


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
    """docker0's, say, and one that nobody else reaches: first in rank 0's list, and of no use."""
    need(MPICH)
    with two_hosts_up(folder) as hosts:
        extra = {name: ("172.17.0.1/16", f"198.51.100.{i}/32") for i, name in enumerate(hosts.names)}

        def address(name, what, addr):
            sh("ip", "-n", hosts.ns(name), "addr", what, addr, "dev", "eth0")

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


def test_torchrun_on_two_hosts(folder):
    with two_hosts_up(folder) as hosts:
        a = hosts.address("a")
        parts = []
        for i, host in enumerate(hosts.names):
            argv = torch(
                "--nnodes", "2", "--node_rank", str(i), "--master_addr", a, "--master_port", "29533",
                "--nproc_per_node", "2", "--no_python", RANK,
            )  # fmt: skip
            argv = [hosts.enter, host, *argv]
            parts.append(Program(argv, environment(TMPDIR=folder), folder, f"node{i}"))
        codes = [p.end(60) for p in parts]
        same(codes, [0, 0], "".join(p.err for p in parts))
        same(sorted(text for p in parts for text in ranks(p)), two_hosts("torchrun"))


if __name__ == "__main__":
    sys.exit(run_all([f for n, f in list(globals().items()) if n.startswith("test_")]))
