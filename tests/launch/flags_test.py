#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every flag of horovodrun by its effect on real ranks; hosts; placement. TAP.

usage: flags_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

from launched import (
    BIN,
    PLACE,
    ROOT,
    environment,
    executable,
    run,
    run_ranks,
    scratch,
    start,
    tf_tasks,
    variables,
)
from tap import Skip, has, is_alive, main, read, same, wait_until, write

WORLD = os.path.join(BIN, "launch-world")
CONTRACT = [f"HOROVOD_{name}" for name in (*PLACE, "HOSTNAME")]


def values(program, rank=0):
    """What launch-world printed on a rank."""
    return dict(re.findall(rf"^\[{rank}\]<stdout>:(\w+)=(.*)$", program.out, re.M))


def test_flags_are_variables_of_the_ranks(folder):
    """launch_options_test checks each flag."""
    env = environment(TMPDIR=folder, HOROVOD_CYCLE_TIME="9", HOROVOD_ELASTIC_TIMEOUT="5")
    words = ["--cycle-time-ms", "2.5", "--network-interface", "lo", "--disable-cache", "--mpi"]
    got, bare = variables(folder, *words, env=env), variables(folder)
    same(got["HOROVOD_CYCLE_TIME"], "2.5", "the flag wins over the environment")
    same(got["HOROVOD_ELASTIC_TIMEOUT"], "5", "without a flag it is unchanged")
    same(got["HOROVOD_GLOO_IFACE"], "lo")
    ours = [n for n in bare if n.startswith(("HOROVOD_", "NCCL_")) and n not in CONTRACT]
    same(ours, [], "without flags the launcher sets none")


def test_every_flag_is_in_a_test(folder):
    tests = "".join(
        read(p)
        for p in glob.glob(f"{ROOT}/tests/launch/*.py") + [f"{ROOT}/tests/unit/launch_options_test.c"]
    )
    names = re.findall(r"(?:^  |, )(-[a-zA-Z-]+)", run(folder, "--help").out, re.M)
    assert len(names) > 60, names
    same([n for n in names if not re.search(rf"[\" ']{n}[\" '=\\]", tests)], [])


def test_knobs_reach_the_runtime(folder):
    ours = values(run(folder, "-np", "2", WORLD))
    same((ours["fusion_bytes"], ours["gather_ns"], ours["cache_hits"]), ("134217728", "0", "8"))
    words = ("--fusion-threshold-mb", "0", "--cycle-time-ms", "1.5", "--cache-capacity", "0")
    got = values(run(folder, "-np", "2", *words, WORLD))
    seen = got["fusion_bytes"], got["gather_ns"], got["cache_hits"], got["fused"]
    same(seen, ("0", "1500000", "0", "0"))


def test_thread_affinity_is_by_local_rank(folder):
    cpus = sorted(os.sched_getaffinity(0))
    chosen = [cpus[0], cpus[-1]]
    program = run(folder, "-np", "2", "--thread-affinity", ",".join(map(str, chosen)), WORLD)
    same([values(program, r)["thread_cpus"] for r in (0, 1)], [str(c) for c in chosen])


def test_a_timeline_is_written(folder):
    def names(*words):
        run(folder, "-np", "2", "--timeline-filename", f"{folder}/t.json", *words, WORLD)
        with open(f"{folder}/t.json", encoding="utf-8") as f:
            return {event.get("name") for event in json.load(f)}

    marked, unmarked = names("--timeline-mark-cycles"), names("--no-timeline-mark-cycles")
    assert "NEGOTIATE_ALLREDUCE" in unmarked, unmarked
    same(marked - unmarked, {"CYCLE_START"})


def test_a_report_is_printed_once(folder):
    program = run(folder, "-np", "2", "--report", WORLD, "20")
    lines = re.findall(r"^(?:\[0\]<stderr>:)?horovod: report: (\S+)", program.err, re.M)
    same(lines[1:2] + lines[2:], ["1.0", "rank", "advice:"])
    assert re.search(r"report: \d+ steps of .* \(\d+ %\) of a step waited", program.err), program.err
    assert "report: 1.0 kB per step and rank" in program.err, program.err


def stalled(folder, *words):
    """Rank 1 submits nothing before folder/go exists."""
    return start(folder, "-np", "2", *words, WORLD, "2", f"{folder}/go")


def test_a_stall_is_reported_after_the_flags_time(folder):
    program = stalled(folder, "--stall-check-warning-time-seconds", "0.3")
    wait_until("the report names rank 1", lambda: re.search(r"tensor/0.*", program.err))
    write(f"{folder}/go", "")
    same(program.end(), 0, program.err)
    os.unlink(f"{folder}/go")
    program = stalled(folder, "--stall-check-warning-time-seconds", "0.3", "--no-stall-check")
    time.sleep(0.7)  # nothing is to happen in this time
    assert "tensor/0" not in program.err, program.err
    write(f"{folder}/go", "")
    same(program.end(), 0, program.err)


def test_a_stall_ends_the_job_after_the_flags_time(folder):
    words = ("--stall-check-warning-time-seconds", "0.2", "--stall-check-shutdown-time-seconds", "0.6")
    program = stalled(folder, *words)
    assert program.end() != 0
    has(program.err, "tensor/0")


def test_silence_counts_after_the_gloo_timeout(folder):
    program = start(
        folder,
        *("-np", "2", "--gloo-timeout-seconds", "1", "sh", "-c"),
        f"[ $HOROVOD_RANK = 0 ] || {{ echo $$ > {folder}/new; mv {folder}/new {folder}/pid; }}; exec {WORLD} 2 {folder}/go",
    )
    wait_until("rank 1 is up", lambda: os.path.exists(f"{folder}/pid"))
    pid = int(read(f"{folder}/pid"))
    wait_until("rank 1 waits in its world", lambda: len(os.listdir(f"/proc/{pid}/task")) > 1)
    os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    assert program.end() != 0
    assert time.monotonic() - begin < 25  # it is 30 s without the option
    has(program.err, "rank 1")


def test_absent_ranks_are_waited_for_until_the_start_timeout(folder):
    begin = time.monotonic()
    program = run(
        folder,
        *("-np", "2", "--start-timeout", "0.5", "sh", "-c"),
        f"[ $HOROVOD_RANK = 1 ] && exec sleep 60; exec {WORLD}",
        code=7,
    )
    assert 0.4 < time.monotonic() - begin < 25
    has(program.err, "rank 0 on localhost exited with code 7")


def test_log_level_and_time_are_the_flags(folder):
    quiet = run(folder, "-np", "1", "--log-level", "error", WORLD).err
    same(quiet, "")
    loud = run(folder, "-np", "1", "--log-level", "debug", "--log-with-timestamp", WORLD).err
    lines = [line.split(":", 1)[1] for line in loud.splitlines() if line.startswith("[0]<stderr>:")]
    assert lines and all(re.match(r"\d{4}-\d\d-\d\dT", line) for line in lines), loud
    bare = run(folder, "-np", "1", "--log-level", "debug", "--log-without-timestamp", WORLD).err
    lines = [line.split(":", 1)[1] for line in bare.splitlines() if line.startswith("[0]<stderr>:")]
    assert lines and not any(re.match(r"\d{4}-\d\d-\d\dT", line) for line in lines), bare


def test_an_autotune_log_is_written(folder):
    run(
        folder,
        *("-np", "2", "--autotune", "--autotune-log-file", f"{folder}/log.csv"),
        *("--autotune-warmup-samples", "1", "--autotune-steps-per-sample", "2", WORLD, "60"),
    )
    assert read(f"{folder}/log.csv").count(",") > 2, read(f"{folder}/log.csv")


def test_interfaces_must_exist(folder):
    same(values(run(folder, "-np", "2", "--network-interfaces", "lo", WORLD))["cache_hits"], "8")
    names = sorted(os.listdir("/sys/class/net"), reverse=True)[:2]
    got = variables(folder, "--network-interface", names[0], "--network-interface", names[-1])
    same(got["HOROVOD_GLOO_IFACE"], names[0], "one is for the control channel")
    same(got["NCCL_SOCKET_IFNAME"], ",".join(dict.fromkeys(names)), "NCCL gets them all")
    err = run(folder, "-np", "2", "--network-interfaces", "lo,nosuch0", "true", code=2).err
    has(err, "--network-interfaces: this host has no interface nosuch0 (see ip link)")


def test_mpi_arguments_are_read_as_far_as_they_mean_something(folder):
    args = "--mpi-args=-x FOO=bar=baz --mca btl ^openib -x PATH --allow-run-as-root"
    program = run(folder, "-np", "1", args, "sh", "-c", "echo $FOO")
    same(program.out, "[0]<stdout>:bar=baz\n")
    has(program.err, "--mpi-args: mpirun is not used, so these have no effect: --mca btl ^openib\n")
    mistakes = {"-x": "-x needs a value", "-x =y": "-x =y: the name is empty", "--mca a": "--mca needs"}
    for bad, part in mistakes.items():
        has(run(folder, "-np", "1", f"--mpi-args={bad}", "true", code=2).err, f"--mpi-args: {part}")


# --- hosts


def test_two_names_of_this_host_are_two_hosts(folder):
    program = run_ranks(folder, 3, 'echo "$HOROVOD_RANK $HOROVOD_HOSTNAME $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE '
                  '$HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE"', "-H", "localhost:2,127.0.0.2:2")  # fmt: skip
    same(
        sorted(line.split(":", 1)[1] for line in program.out.splitlines()),
        ["0 localhost 0/2 0/2", "1 localhost 1/2 0/1", "2 127.0.0.2 0/1 1/2"],
    )
    same(values(run(folder, "-np", "4", "-H", "localhost:2,127.0.0.2:2", WORLD))["cache_hits"], "8")


def test_hosts_may_be_ipv6(folder):
    addresses = subprocess.run(["ip", "-6", "addr"], capture_output=True, text=True, check=False).stdout
    if "::1" not in addresses:
        raise Skip("no IPv6 on the loopback interface")
    hostfile = os.path.join(folder, "hosts")
    write(hostfile, "[::1] slots=2\n")
    for words in ("-H", "[::1]:2"), ("-hostfile", hostfile):
        same(values(run(folder, "-np", "2", *words, WORLD))["cache_hits"], "8")
    got = variables(folder, "-H", "[::1]:1")
    same((got["HVD_RENDEZVOUS_ADDR"], got["MASTER_ADDR"], got["HOROVOD_HOSTNAME"]), ("::1",) * 3)


def test_sizes_that_contradict_each_other_are_refused(folder):
    for words, part in (
        (("-np", "2", "--min-np", "3"), "horovodrun: --min-np 3 exceeds -np 2\n"),
        (("--min-np", "3", "--max-np", "2"), "horovodrun: --max-np 2 is below --min-np 3\n"),
    ):
        same(run(folder, *words, "true", code=2).err, part)


def test_the_discovery_script_names_the_hosts(folder):
    script = executable(
        f"{folder}/hosts.sh", '#!/bin/sh\necho "# ours"\necho "localhost:$1"\necho told >&2\n'
    )
    program = run(folder, "--host-discovery-script", f"{script} 3", "echo", "x")
    same(program.out.count("x"), 3)
    has(program.err, "told\n")
    for slots, line in ("2", "localhost"), ("2", "localhost:2"), ("1", "localhost slots=2"):
        words = "--slots-per-host", slots, "--host-discovery-script", f"echo '{line}'"
        same(run(folder, *words, "echo", "x").out.count("x"), 2, line)
    same(run(folder, "--host-discovery-script", "echo localhost", "echo", "x").out.count("x"), 1)


SRUN = """#!/bin/sh
echo "$*" >>{folder}/srun
case $* in *"--nodelist no-host1 "*) sleep 1 ;; esac
while [ "${{1#-}}" != "$1" ]; do case $1 in --jobid | --nodelist) shift ;; esac; shift; done
exec "$@"
"""


def test_slurm_starts_agents_by_srun(folder):
    """srun is a stand-in that runs the agent here: of node names, none needs to exist. One node is late."""
    os.mkdir(f"{folder}/bin")
    executable(f"{folder}/bin/srun", SRUN.format(folder=folder))
    env = environment(
        PATH=f"{folder}/bin:{os.environ['PATH']}",
        SLURM_JOB_ID="71",
        SLURM_JOB_NODELIST="no-host[1-2]",
        SLURM_TASKS_PER_NODE="2,1",
        SLURM_PROCID="0",
        TMPDIR=folder,
    )
    words = "--slurm", "--network-interfaces", "lo", "-np", "3", "--min-np", "3", "sh", "-c"
    script = "echo $HOROVOD_HOSTNAME $HVD_HOST_INDEX ${SLURM_PROCID-none}"
    out = run(folder, *words, script, env=env).out
    same(
        sorted(line.split(":", 1)[1] for line in out.splitlines()),
        ["no-host1 0 none"] * 2 + ["no-host2 1 none"],
    )
    calls = sorted(read(f"{folder}/srun").splitlines())
    for host, call in zip(("no-host1", "no-host2"), calls, strict=True):
        has(call, "--overlap --nodes=1 --ntasks=1 ")
        has(call, f" --jobid 71 --nodelist {host} ")
    env["SLURM_JOB_NODELIST"] = "no-host[1"
    has(run(folder, *words, "true", env=env, code=2).err, "horovodrun: --slurm: ")
    del env["SLURM_JOB_NODELIST"]
    has(
        run(folder, *words, "true", env=env, code=2).err,
        "SLURM_JOB_NODELIST is not set: this is not in a Slurm job",
    )
    has(run(folder, "--slurm", "-H", "a:1", "true", code=2).err, "-H and --slurm exclude each other")


def test_a_discovery_script_that_fails_is_reported(folder):
    for script, part in (
        ("exit 3", "exit 3 exited with code 3"),
        ("kill -9 $$", "kill -9 $$ was killed by SIGKILL"),
        ("true", "--host-discovery-script: true printed no host"),
        ("echo localhost:two", "line 1"),
        ("echo a b", "line 1"),
        ("yes localhost:1", "yes localhost:1 writes more than 4194304 bytes"),
        ("nosuchcommand", "nosuchcommand exited with code 127"),
    ):
        err = run(folder, "--host-discovery-script", script, "true", code=2).err
        has(err, "horovodrun: --host-discovery-script: ")
        has(err, part)


def test_a_discovery_script_that_hangs_is_killed_with_what_it_started(folder):
    script = f"sleep 60 & echo $! > {folder}/child; echo $$ > {folder}/pid; wait"
    for seconds in "1.5", "6", "20":  # others may have the processors: the script is to have written both
        begin = time.monotonic()
        program = run(folder, "--start-timeout", seconds, "--host-discovery-script", script, "true", code=2)
        assert time.monotonic() - begin < float(seconds) + 20
        has(program.err, f"did not exit within {seconds} s (--start-timeout)")
        texts = [read(f"{folder}/{n}") for n in ("pid", "child")]
        if all(texts):
            break
    pids = [int(text) for text in texts]
    wait_until("all are gone", lambda: not any(map(is_alive, pids)))


def test_a_signal_ends_the_discovery_script(folder):
    script = f"sleep 60 & echo $! > {folder}/new; mv {folder}/new {folder}/child; wait"
    for number, code in (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, 137):
        if os.path.exists(f"{folder}/child"):
            os.unlink(f"{folder}/child")
        program = start(folder, "--host-discovery-script", script, "true")
        wait_until("the script runs", lambda: os.path.exists(f"{folder}/child"))
        program.signal(number)
        same(program.end(20), code)  # not when the script has had its time
        wait_until("its child is gone", lambda: not is_alive(int(read(f"{folder}/child"))))
        wait_until("no scratch", lambda: not scratch(folder))


# --- placement


def cpus_of_ranks(folder, n, *words, **more):
    text = run(
        folder, "-np", str(n), *words, sys.executable, "-c",
        "import os; print(os.environ['HOROVOD_RANK'], *sorted(os.sched_getaffinity(0)), "
        "'T', os.environ.get('OMP_NUM_THREADS'))", **more,
    ).out  # fmt: skip
    rows = sorted(line.split(":", 1)[1].split(" T ") for line in text.splitlines())
    return [set(map(int, cpus.split()[1:])) for cpus, _ in rows], [threads for _, threads in rows]


def cores_here():
    """CPUs of each core that this process may use, as lscpu prints them."""
    cores = {}
    for line in subprocess.run(
        ["lscpu", "-p=CPU,CORE"], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if line[0] != "#":
            cpu, core = map(int, line.split(","))
            if cpu in os.sched_getaffinity(0):
                cores.setdefault(core, set()).add(cpu)
    return list(cores.values())


def test_ranks_are_bound_to_cores_of_their_own(folder):
    cores = cores_here()
    if len(cores) < 2:
        raise Skip("one core")
    sets, threads = cpus_of_ranks(folder, 2, "--binding", "cores")
    assert not sets[0] & sets[1], sets
    for core in cores:
        assert sum(bool(core & s) for s in sets) <= 1, "a core is split"
    for s in sets:
        same(len([c for c in cores if c <= s]), len(cores) // 2)
    same(threads, [str(len(cores) // 2)] * 2)
    same(cpus_of_ranks(folder, 2, "--binding-args=-bind-to core")[0], sets)


def test_no_rank_leaves_the_cpus_that_the_launcher_may_use(folder):
    one = {sorted(os.sched_getaffinity(0))[-1]}
    for how in "cores", "numa", "none":
        sets, _ = cpus_of_ranks(
            folder, 2, "--binding", how, preexec_fn=lambda: os.sched_setaffinity(0, one)
        )
        same(sets, [one, one], how)
    err = run(
        folder, "-np", "2", "--binding", "cores", "true", preexec_fn=lambda: os.sched_setaffinity(0, one)
    ).err
    has(err, "more ranks than cores, so cores are shared ranks=2 cores=1 ranks_of_a_core=2")


def test_without_binding_ranks_run_everywhere(folder):
    for words in (), ("--binding", "none"), ("--binding-args=--bind-to none",):
        sets, _ = cpus_of_ranks(folder, 2, *words)
        same(sets, [os.sched_getaffinity(0)] * 2)


def test_processes_are_the_tasks_of_tensorflows_strategies(folder):
    words, configs = tf_tasks(folder, 6)
    run(folder, "-np", "6", "--framework", "tf-ps", "--tf-ps", "2", "--tf-evaluator", *words)
    roles = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1), ("evaluator", 0)]
    same([tuple(c["task"].values()) for c in configs()], roles)
    cluster = configs()[0]["cluster"]
    same([c["cluster"] for c in configs()], [cluster] * 6, "all have the same")
    same({role: len(hosts) for role, hosts in cluster.items()}, {"chief": 1, "worker": 2, "ps": 2})
    hosts = sum(cluster.values(), [])
    same(len(set(hosts)), 5)
    for host in hosts:
        assert re.fullmatch(r"127\.0\.0\.1:2\d{4}", host), host
    words, configs = tf_tasks(folder, 2)
    run(folder, "-np", "2", "--framework", "tf-multiworker", *words, env=environment(TF_CONFIG="{}"))
    same([c["task"] for c in configs()], [{"type": "worker", "index": i} for i in (0, 1)])
    same([len(c["cluster"].pop("worker")) for c in configs()], [2, 2])


def test_a_task_that_fails_before_the_chief_ends_is_the_jobs_failure(folder):
    script = 'case $TF_CONFIG in *\'"type": "ps"\'*) exit 3 ;; esac; exec sleep 1000'
    has(run_ranks(folder, 3, script, "--framework", "tf-ps", code=3).err, "rank 2")


def test_tasks_that_do_not_fit_are_refused(folder):
    for words, text in (
        (["--framework", "tf-ps"], "framework tf-ps needs at least 3 processes"),
        (["--tf-ps", "2"], "framework horovod has no parameter servers, not 2"),
        (["--framework", "tf-multiworker", "--tf-ps", "1"], "framework tf-multiworker has no parameter"),
        (["--tf-evaluator"], "framework horovod has no evaluator"),
    ):
        has(run_ranks(folder, 2, "true", *words, code=2).err, text)


def test_threads_of_the_user_are_kept(folder):
    env = environment(TMPDIR=folder)
    env.pop("OMP_NUM_THREADS", None)
    same(cpus_of_ranks(folder, 1, env=env)[1], ["None"], "a rank alone has the host as without us")
    share = str(max(1, len(cores_here()) // 2))
    same(cpus_of_ranks(folder, 2, env=env)[1], [share, share])
    same(cpus_of_ranks(folder, 2, "--binding", "cores", env=dict(env, OMP_NUM_THREADS="7"))[1], ["7", "7"])


def test_verbose_shows_the_place_of_each_rank(folder):
    if len(cores_here()) < 2:
        raise Skip("one core")  # with a warning
    program = run(
        folder, "-np", "2", "--verbose", "--binding", "cores", "--network-interfaces", "lo", "true"
    )
    err = program.err
    lines = err.splitlines()
    same(lines[0].split(), ["rank", "host", "cores", "GPU", "NIC"])
    sets, _ = cpus_of_ranks(folder, 2, "--binding", "cores")
    for rank in 0, 1:
        number, host, cores, *_, nic = lines[1 + rank].split()
        same((number, host, nic), (str(rank), "localhost", "lo"))
        shown = set()
        for part in cores.split(","):
            first, _, last = part.partition("-")
            shown |= set(range(int(first), int(last or first) + 1))
        same(shown, sets[rank])
    has(err, "rank ended rank=1 code=0")


if __name__ == "__main__":
    main(globals())
