#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun over several hosts by ssh: namespaces as hosts, each with a real sshd. TAP.

usage: remote_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

from disks import StallingDisk, enter_namespace
from launched import BIN, LOOP, UNTIL_GO, check_environment, executable, looping, met, tf_tasks, up
from over_ssh import RANK, alone, hosts, refused, run, run_ranks, start
from tap import has, main, read, same, wait_until, write


def rss(pid):
    try:
        return int(read(f"/proc/{pid}/statm").split()[1]) * 4096
    except IndexError:
        return 0


def test_ranks_of_all_hosts_meet(folder):
    p = run(folder, "-np", "6", "-H", "a:2,b:1,c:2,d:4", RANK, "master")
    same((sorted(p.out.splitlines()), p.err), (met(6), ""))


def test_the_runtime_forms_a_world(folder):
    for words in ("a:2,b:1,c:1",), ("b,c,a",), ("b,c", "--network-interfaces", "eth0"):
        p = run(folder, "-H", *words, os.path.join(BIN, "launch-world"), tag=words[0][:1])
        same(p.out.count("fusion_bytes="), len(words[0].split(",")) + words[0].count(":2"), p.err)


def test_the_status_has_the_ranks_of_all_hosts(folder):
    words = [f"{BIN}/launch-world", "50", f"{folder}/go"]
    job = start(folder, "-np", "3", "-H", "a,b,c", *words, env={"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"})

    def status(*flags):
        shown = start(folder, "--status", *flags, tag="status")
        shown.end(40)
        return shown.out

    def stall():
        jobs = [json.loads(line) for line in status("--json").splitlines()]
        return jobs[0].get("stall") if jobs and jobs[0]["ranks"] == 3 else None

    wait_until("the ranks are examined", lambda: (stall() or {}).get("hasStacks"))
    same((stall()["rank"], stall()["host"], stall()["missingRanks"]), (1, "b", [1]))
    text = status("--verbose")
    has(text, "ranks 0, 2:")
    same(
        [line.split()[:3:2] for line in text.splitlines() if " InWorld " in line],
        [[str(r), "InWorld"] for r in range(3)],
    )
    open(f"{folder}/go", "w").close()
    same(job.end(40), 0)
    hosts().nothing_left(10)


def test_horovod_run_sends_a_function_to_other_hosts(folder):
    write(
        f"{folder}/work.py",
        "import os, socket\ndef where(a):\n    return socket.gethostname(), os.environ['HOROVOD_RANK'], a\n",
    )
    code = "import horovod, work; print(horovod.run(work.where, (7,), num_proc=3, hosts='b:2,a:1'))"
    tree = os.path.join(os.path.dirname(BIN), "python")
    p = run(folder, "-c", code, program="/usr/bin/python3", env={"PYTHONPATH": f"{tree}:{folder}"})
    same(p.out, "[('b', '0', 7), ('b', '1', 7), ('a', '2', 7)]\n")


def test_ranks_know_their_place_and_host(folder):
    run(folder, "-np", "5", "-H", "b:2,a:2,c:4", "sh", "-c",
        f'env -0 > {folder}/env.$HOROVOD_RANK; hostname > {folder}/name.$HOROVOD_RANK; '
        f'cp "$HVD_HOSTFILE" {folder}/hosts.$HOROVOD_RANK; pwd > {folder}/pwd.$HOROVOD_RANK',
        cwd=folder)  # fmt: skip
    for rank, (host, local, size, cross, crosses) in enumerate(
        [("b", 0, 2, 0, 3), ("b", 1, 2, 0, 2), ("a", 0, 2, 1, 3), ("a", 1, 2, 1, 2), ("c", 0, 1, 2, 3)]
    ):
        addresses = {"HVD_RENDEZVOUS_ADDR": hosts().address("a"), "MASTER_ADDR": hosts().address("b")}
        place = rank, 5, local, size, cross, crosses
        check_environment(folder, rank, place, HOROVOD_HOSTNAME=host, **addresses)
        same(read(f"{folder}/name.{rank}").strip(), host)
        same(read(f"{folder}/pwd.{rank}").strip(), folder)
        same(read(f"{folder}/hosts.{rank}"), "b slots=2\na slots=2\nc slots=4\n")


def test_ranks_are_tensorflows_tasks_on_all_hosts(folder):
    words, configs = tf_tasks(folder, 5)
    run(folder, "-np", "5", "-H", "b:2,a:2,c:4", "--framework", "tf-ps", *words)
    addresses = [host.rpartition(":")[0] for c in configs() for host in sum(c["cluster"].values(), [])]
    same(addresses, [hosts().address(name) for name in "bbaac"] * 5)
    same(len({str(c["cluster"]) for c in configs()}), 1)
    same([c["task"]["type"] for c in configs()], ["chief", "worker", "worker", "worker", "ps"])


def test_words_and_environment_arrive_as_they_are(folder):
    words = ["it's", 'a "b" $HOME `id` \\', "", "new\nline", "*", "!x", "ä;|&"]
    env = {
        "MY_VALUE": 'it\'s $HOME\nand "more"',
        "BASH_FUNC_f%%": "() { :; }",
        "OLDPWD": "/old",
        "MY_CUDA_VISIBLE_DEVICES": "3",
        "CUDA_VISIBLE_DEVICES": "3",
        "HOROVOD_SECRET_KEY": "secret",
        "OMPI_COMM_WORLD_RANK": "7",
        "SSH_AUTH_SOCK": "/nowhere",
        "USER": "somebody-else",
    }
    run(folder, "-np", "1", "-H", "b", "--cycle-time-ms", "3", sys.executable, "-c",
        f"import os, sys, json; json.dump([sys.argv[1:], dict(os.environ)], open('{folder}/got', 'w'))",
        *words, env=env)  # fmt: skip
    got, there = json.loads(read(f"{folder}/got"))
    same(got, words)
    same(there["MY_VALUE"], env["MY_VALUE"])
    same(there["HOROVOD_CYCLE_TIME"], "3", "a flag's variable")
    for name in env:
        if name != "MY_VALUE":
            assert there.get(name) != env[name], f"{name} was sent"


def test_the_token_is_in_no_command_line_and_no_environment(folder):
    p = start(folder, "-np", "2", "-H", "a,b", *looping(folder))
    up(folder, 2)
    token = bytes.fromhex(read(glob.glob(f"{folder}/*/token")[0]).strip())
    for name in "ab":
        for pid in hosts().pids(name):
            for what in "cmdline", "environ":
                try:
                    with open(f"/proc/{pid}/{what}", "rb") as f:
                        text = f.read()
                except OSError:
                    continue
                assert token not in text and token.hex().encode() not in text, f"{pid} {what}"
    p.signal(signal.SIGTERM)
    same(p.end(), 143, p.err)
    hosts().nothing_left()


def test_exit_code_and_last_lines_of_the_first_failure(folder):
    script = f'echo before; if [ $HOROVOD_RANK = 2 ]; then echo "the cause" >&2; exit 7; fi; {LOOP}'
    p = run_ranks(folder, "a,b,c,d", script, code=7)
    has(p.err, "horovodrun: rank 2 on c exited with code 7\n")
    has(p.err, "last lines of rank 2:\n    before\n    the cause\n")
    has(p.err, "[2]<stderr>:the cause\n")


def test_output_keeps_its_order_and_is_complete(folder):
    script = "i=0; while [ $i -lt 20000 ]; do echo $HOROVOD_RANK.$i; i=$((i+1)); done; printf end"
    p = run_ranks(folder, "a,b,c", script)
    for rank in range(3):
        got = [x.split(":", 1)[1] for x in p.out.splitlines() if x.startswith(f"[{rank}]<stdout>:")]
        same(got[:3], [f"{rank}.{i}" for i in range(3)])
        assert got == [f"{rank}.{i}" for i in range(20000)] + ["end"], f"rank {rank}: {len(got)} lines"


def test_a_slow_reader_holds_up_nothing_else(folder):
    script = (
        f"if [ $HOROVOD_RANK = 0 ]; then yes; fi; while [ ! -e {folder}/go ]; do sleep 0.05; done; exit 5"
    )
    p = start(folder, "-np", "2", "-H", "b,c", "sh", "-c", script, stdout=subprocess.PIPE)
    size = -1

    def is_full():
        nonlocal size
        before, size = size, rss(p.pid)
        time.sleep(0.2)
        return size == before

    wait_until("the reader is behind", is_full)
    assert size < 60 << 20, f"{size} bytes wait in memory"  # 256 KiB wait, and the program itself
    write(f"{folder}/go", "")
    same(p.end(20), 5, p.err)
    has(p.err, "rank 1 on c exited with code 5")
    hosts().nothing_left()


def test_output_files_lie_on_the_launchers_host(folder):
    run(folder, "-np", "2", "-H", "b,c", "--output-filename", f"{folder}/out", "sh", "-c",
        'printf "a\\rb\\n$HOROVOD_RANK"; printf e >&2')  # fmt: skip
    for rank in range(2):
        with open(f"{folder}/out/rank.{rank}/stdout", "rb") as f:
            same(f.read(), f"a\rb\n{rank}".encode())
        same(read(f"{folder}/out/rank.{rank}/stderr"), "e")


def test_a_disk_that_hangs_does_not_stop_a_job_over_hosts(folder):
    enter_namespace()
    with StallingDisk(f"{folder}/disk") as disk:
        numbers = "".join(f"{i}\n" for i in range(1, 300001))
        script = f"echo first; {UNTIL_GO.format(folder)}; seq 1 300000"
        logs = f"{disk.path}/logs"
        p = start(folder, "-np", "2", "-H", "b,c", "--output-filename", logs, "sh", "-c", script,
                  env={"HVD_PEER_TIMEOUT": "2"})  # fmt: skip
        for rank in range(2):
            wait_until("first lines", lambda r=rank: read(f"{logs}/rank.{r}/stdout") == "first\n")
        disk.stall()
        write(f"{folder}/go", "")
        same(p.end(), 0, p.err)
        same(len(re.findall(r"\[\d\]<stdout>:300000\n", p.out)), 2)
        has(p.err, f"output was lost bytes={2 * len(numbers)} files=2 ")
    hosts().nothing_left()


def test_ssh_port_and_identity_are_used(folder):
    other = f"{folder}/key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    log = f"{folder}/ssh.log"
    script = f"{folder}/myssh"
    executable(script, f'#!/bin/sh\necho "$@" >> {log}\nexec ssh -o BatchMode=yes "$@"\n')
    key = f"{hosts().folder}/id"
    run(folder, "-np", "1", "-H", "b", "-p", "2200", "-i", key, "true", env={"HVD_SSH": f"{script} -4"})
    has(read(log), f"-4 -p 2200 -i {key} b exec /bin/sh -c")
    p = run(folder, "-np", "1", "-H", "b", "-p", "2200", "true")
    same(p.err, "")


def test_a_login_shell_that_prints_is_no_harm(folder):
    program = alone(folder)
    executable(
        f"{folder}/bin/hvd-agent",
        f'#!/bin/sh\necho Welcome\necho again >&2\nprintf "no newline"\nexec {BIN}/hvd-agent "$@"\n',
    )
    p = run(folder, "-np", "2", "-H", "b,c", RANK, program=program)
    has(p.out, "[1]<stdout>:rank 1 of 2 met ranks that add up to 1")


def test_a_directory_that_is_not_there_is_said(folder):
    gone = f"{folder}/gone"
    os.mkdir(gone)
    executable(f"{folder}/ssh", f'#!/bin/sh\nrmdir {gone}\nexec ssh "$@"\n')
    p = run_ranks(folder, "b", "pwd", cwd=gone, env={"HVD_SSH": f"{folder}/ssh"})
    has(p.err, f"cannot change to directory {gone} (No such file or directory)")
    has(p.out, f"[0]<stdout>:{os.path.expanduser('~')}\n")


def test_a_tree_of_agents(folder):
    log, script = f"{folder}/ssh.log", f"{folder}/myssh"
    executable(script, f'#!/bin/sh\necho "$(hostname) $1" >> {log}\nexec ssh -o BatchMode=yes "$@"\n')
    env = {"HVD_SSH": script, "HVD_SSH_FANOUT": "1"}
    p = run(folder, "-np", "4", "-H", "b,c,a,d", RANK, env=env)
    same(sorted(p.out.splitlines()), met(4))
    same(read(log), "a b\nb c\nc d\n")
    p = run_ranks(folder, "b,c,a,d", f"[ $HOROVOD_RANK = 3 ] && exit 9; {LOOP}", code=9, env=env)
    has(p.err, "horovodrun: rank 3 on d exited with code 9")


def test_more_hosts_than_one_agent_starts(folder):
    """40 names of this host, each with its own agent, in a tree of the default width."""
    names = [f"h{i}" for i in range(40)]
    script = f"{folder}/myssh"
    executable(script, f'#!/bin/sh\necho "$PPID $1" >> {folder}/ssh.log\nexec sh -c "$2"\n')
    p = run(folder, "-np", "40", "-H", ",".join(names), RANK, env={"HVD_SSH": script})
    same(sorted(p.out.splitlines()), met(40))
    lines = [x.split() for x in read(f"{folder}/ssh.log").splitlines()]
    same(sorted(x[1] for x in lines), sorted(names))
    starters = [x[0] for x in lines]
    same(max(starters.count(s) for s in starters), 32, "agents that one process started")
    same(len(set(starters)), 9, "horovodrun and the first 8 agents, which started one each")


def test_ipv6_addresses_as_hosts(folder):
    h = hosts()
    p = run(folder, "-np", "2", "-H", f"[{h.address6('b')}]:1,[{h.address6('c')}]:1", "sh", "-c",
            f"echo $HVD_RENDEZVOUS_ADDR $MASTER_ADDR; exec {RANK}")  # fmt: skip
    has(p.out, f"[1]<stdout>:{h.address6('a')} {h.address6('b')}\n")
    has(p.out, "[1]<stdout>:rank 1 of 2 met ranks that add up to 1\n")


def test_ranks_are_bound_and_shown_on_their_hosts(folder):
    p = run(folder, "-np", "2", "-H", "b,c", "--binding", "cores", "--verbose", "sh", "-c",
            "grep Cpus_allowed_list /proc/self/status")  # fmt: skip
    for rank, name in enumerate("bc"):
        assert re.search(rf"horovodrun: host {name}: {rank} +{name} ", p.err), p.err
        has(p.out, f"[{rank}]<stdout>:Cpus_allowed_list:")


def test_the_interface_is_a_flag(folder):
    p = run(folder, "-np", "2", "-H", "a,b", "--network-interfaces", "eth0", "sh", "-c",
            f"echo $HVD_RENDEZVOUS_ADDR $NCCL_SOCKET_IFNAME; exec {RANK}")  # fmt: skip
    for rank in range(2):
        has(p.out, f"[{rank}]<stdout>:{hosts().address('a')} eth0\n")
    words = ["-np", "2", "-H", "a,b", "--network-interfaces", "nosuch0", "true"]
    refused(folder, "--network-interfaces", *words, code=2)


def test_names_of_this_host_need_no_ssh(folder):
    for name in "localhost", "a", hosts().address("a"):
        p = run(folder, "-np", "2", "-H", f"{name}:1,b:1", RANK, env={"HVD_SSH": f"{folder}/ssh"},
                code=125)  # fmt: skip
        has(p.err, "host b: ")
        run(folder, "-np", "1", "-H", f"{name}:1,b:1", RANK, env={"HVD_SSH": f"{folder}/ssh"})


if __name__ == "__main__":
    main(globals(), hosts)
