#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun over several hosts by ssh: namespaces as hosts, each with a real sshd. TAP.

usage: remote_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from hosts import Hosts
from launched import BIN, HOROVODRUN, environment
from tap import Skip, has, is_alive, read, run_all, same, wait_until

RANK = os.path.join(BIN, "launch-rank")
LOOP = "while :; do sleep 0.05; done"
HOSTS = None


def hosts():
    global HOSTS
    if HOSTS is None:
        HOSTS = Hosts()
    HOSTS.start_sshds()
    return HOSTS


def start(folder, *words, env=None, program=HOROVODRUN, tag="run", **more):
    env = environment(TMPDIR=folder, **(env or {}))
    return hosts().start("a", program, *words, env=env, folder=folder, tag=tag, **more)


def run(folder, *words, code=0, left=10, **more):
    p = start(folder, *words, **more)
    got = p.end(40)
    assert got == code, f"exit code {got}, wanted {code}\n{p.out}{p.err}"
    hosts().nothing_left(left)
    return p


def up(folder, n):
    wait_until("ranks are up", lambda: all(read(f"{folder}/up.{i}") for i in range(n)))
    return [int(read(f"{folder}/up.{i}")) for i in range(n)]


def looping(folder):
    """A rank that says its pid and stays."""
    return [
        "sh",
        "-c",
        f"echo $$ > {folder}/.up.$HOROVOD_RANK; mv {folder}/.up.$HOROVOD_RANK {folder}/up.$HOROVOD_RANK; {LOOP}",
    ]


def agents(name):
    """The agents on a host."""
    return [
        p for p in hosts().pids(name) if "hvd-agent attach" in read(f"/proc/{p}/cmdline").replace("\0", " ")
    ]


def test_ranks_of_all_hosts_meet(folder):
    p = run(folder, "-np", "6", "-H", "a:2,b:1,c:2,d:4", RANK)
    lines = sorted(p.out.splitlines())
    same(lines, [f"[{r}]<stdout>:rank {r} of 6 met ranks that add up to 15" for r in range(6)])
    same(p.err, "")


def test_ranks_know_their_place_and_host(folder):
    run(folder, "-np", "5", "-H", "b:2,a:2,c:4", "sh", "-c",
        f'env -0 > {folder}/env.$HOROVOD_RANK; hostname > {folder}/name.$HOROVOD_RANK; '
        f'cp "$HVD_HOSTFILE" {folder}/hosts.$HOROVOD_RANK; pwd > {folder}/pwd.$HOROVOD_RANK',
        cwd=folder)  # fmt: skip
    for rank, (host, local, size, cross, crosses) in enumerate(
        [("b", 0, 2, 0, 3), ("b", 1, 2, 0, 2), ("a", 0, 2, 1, 3), ("a", 1, 2, 1, 2), ("c", 0, 1, 2, 3)]
    ):
        env = dict(p.split("=", 1) for p in read(f"{folder}/env.{rank}").split("\0") if p)
        same(read(f"{folder}/name.{rank}").strip(), host)
        same(read(f"{folder}/pwd.{rank}").strip(), folder)
        same(read(f"{folder}/hosts.{rank}"), "b slots=2\na slots=2\nc slots=4\n")
        for name, value in {
            "HOROVOD_RANK": rank,
            "HOROVOD_SIZE": 5,
            "HOROVOD_LOCAL_RANK": local,
            "HOROVOD_LOCAL_SIZE": size,
            "HOROVOD_CROSS_RANK": cross,
            "HOROVOD_CROSS_SIZE": crosses,
            "HOROVOD_HOSTNAME": host,
            "HVD_RENDEZVOUS_ADDR": hosts().address("a"),
            "MASTER_ADDR": hosts().address("b"),
        }.items():
            same(env.get(name), str(value), f"{name} of rank {rank}")


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
    }
    run(folder, "-np", "1", "-H", "b", "--cycle-time-ms", "3", sys.executable, "-c",
        f"import os, sys, json; json.dump([sys.argv[1:], dict(os.environ)], open('{folder}/got', 'w'))",
        *words, env=env)  # fmt: skip
    import json

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
    token = bytes.fromhex(
        next(
            read(f"{folder}/{d}/token").strip()
            for d in os.listdir(folder)
            if os.path.exists(f"{folder}/{d}/token")
        )
    )
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
    p = run(folder, "-np", "4", "-H", "a,b,c,d", "sh", "-c", script, code=7)
    has(p.err, "horovodrun: rank 2 on c exited with code 7\n")
    has(p.err, "last lines of rank 2:\n    before\n    the cause\n")
    has(p.err, "[2]<stderr>:the cause\n")


def test_a_killed_rank_is_named(folder):
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder))
    pids = up(folder, 3)
    os.kill(pids[1], signal.SIGKILL)
    same(p.end(), 137, p.err)
    has(p.err, "rank 1 on b was killed by signal 9")
    hosts().nothing_left()


def test_output_keeps_its_order_and_is_complete(folder):
    script = "i=0; while [ $i -lt 20000 ]; do echo $HOROVOD_RANK.$i; i=$((i+1)); done; printf end"
    p = run(folder, "-np", "3", "-H", "a,b,c", "sh", "-c", script)
    for rank in range(3):
        got = [x.split(":", 1)[1] for x in p.out.splitlines() if x.startswith(f"[{rank}]<stdout>:")]
        same(got[:3], [f"{rank}.{i}" for i in range(3)])
        assert got == [f"{rank}.{i}" for i in range(20000)] + ["end"], f"rank {rank}: {len(got)} lines"


def test_a_slow_reader_holds_up_nothing_else(folder):
    script = (
        f"if [ $HOROVOD_RANK = 0 ]; then yes; fi; while [ ! -e {folder}/go ]; do sleep 0.05; done; exit 5"
    )
    r, w = os.pipe()
    p = start(folder, "-np", "2", "-H", "b,c", "sh", "-c", script, stdout=w)
    os.close(w)
    size = -1

    def is_full():
        nonlocal size
        before, size = size, sum(map(rss, hosts().pids("a")))
        time.sleep(0.2)
        return size == before

    wait_until("the reader is behind", is_full)
    assert size < 200 << 20, f"{size} bytes wait in memory"
    with open(f"{folder}/go", "w", encoding="ascii"):
        pass
    same(p.end(20), 5, p.err)
    has(p.err, "rank 1 on c exited with code 5")
    os.close(r)
    hosts().nothing_left()


def rss(pid):
    try:
        return int(read(f"/proc/{pid}/statm").split()[1]) * 4096
    except IndexError:
        return 0


def test_output_files_lie_on_the_launchers_host(folder):
    run(folder, "-np", "2", "-H", "b,c", "--output-filename", f"{folder}/out", "sh", "-c",
        'printf "a\\rb\\n$HOROVOD_RANK"; printf e >&2')  # fmt: skip
    for rank in range(2):
        with open(f"{folder}/out/rank.{rank}/stdout", "rb") as f:
            same(f.read(), f"a\rb\n{rank}".encode())
        same(read(f"{folder}/out/rank.{rank}/stderr"), "e")


def test_ssh_port_and_identity_are_used(folder):
    other = f"{folder}/key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    log = f"{folder}/ssh.log"
    script = f"{folder}/myssh"
    with open(script, "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\necho "$@" >> {log}\nexec ssh -o BatchMode=yes "$@"\n')
    os.chmod(script, 0o755)
    key = f"{hosts().folder}/id"
    run(folder, "-np", "1", "-H", "b", "-p", "2200", "-i", key, "true", env={"HVD_SSH": f"{script} -4"})
    has(read(log), f"-4 -p 2200 -i {key} b exec /bin/sh -c")
    p = run(folder, "-np", "1", "-H", "b", "-p", "2200", "true")
    same(p.err, "")


def refused(folder, sentence, *words, code=125, **more):
    started = time.monotonic()
    p = run(folder, *words, code=code, **more)
    has(p.err, sentence)
    errors = [x for x in p.err.splitlines() if x.startswith("horovodrun: ")]
    same(len(errors), 1, f"sentences in {p.err!r}")
    return p, time.monotonic() - started


def test_a_host_whose_name_does_not_resolve(folder):
    refused(folder, "horovodrun: host nosuch: its name does not resolve (DNS)",
            "-np", "3", "-H", "a,b,nosuch", "true")  # fmt: skip


def test_a_refused_connection(folder):
    refused(folder, "horovodrun: host b: ssh connection refused: no sshd listens on that port there",
            "-np", "2", "-H", "a,b", "-p", "2299", "true")  # fmt: skip


def test_an_unknown_and_a_changed_host_key(folder):
    known = f"{hosts().folder}/known_hosts"
    before = read(known)
    try:
        with open(known, "w", encoding="ascii") as f:
            f.write("".join(x + "\n" for x in before.splitlines() if not x.startswith("c,")))
        refused(folder, "horovodrun: host c: its host key is not known (host key verification failed)",
                "-np", "3", "-H", "a,b,c", "true")  # fmt: skip
        keys = before.splitlines()
        with open(known, "w", encoding="ascii") as f:
            f.write(keys[0] + "\n" + keys[1] + f"\nc,{hosts().address('c')} {keys[0].split(' ', 1)[1]}\n")
        refused(folder, "horovodrun: host c: its host key is not the known one",
                "-np", "3", "-H", "a,b,c", "true")  # fmt: skip
    finally:
        with open(known, "w", encoding="ascii") as f:
            f.write(before)


def test_a_login_that_is_refused(folder):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/key"], check=True)
    refused(folder, "horovodrun: host b: ssh login was refused (permission denied)", "-np", "1", "-H", "b", "true",
            env={"HVD_SSH": f"ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i {folder}/key"})  # fmt: skip
    refused(folder, "horovodrun: host b: the identity file of -i does not exist", "-np", "1", "-H", "b",
            "-i", "/no/such", "true",
            env={"HVD_SSH": "ssh -F none -o BatchMode=yes -o IdentityAgent=none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"})  # fmt: skip


def test_a_host_that_does_not_answer(folder):
    _, took = refused(
        folder, "horovodrun: host silent: ", "-np", "2", "-H", "a,silent", "--start-timeout", "2", "true"
    )
    assert took < 6, took


def test_an_sshd_that_accepts_and_says_nothing(folder):
    p = hosts().start("b", sys.executable, "-c",
                      "import socket, time; s = socket.socket(); s.bind(('', 2250)); s.listen(); time.sleep(60)",
                      folder=folder, tag="mute")  # fmt: skip
    wait_until("it listens", lambda: "2250" in hosts().sockets("b", "-l"))
    hosts().kept = {p.pid}
    q = start(folder, "-np", "2", "-H", "a,b", "-p", "2250", "--start-timeout", "2", "true")
    code, took = q.end(10), q.err
    p.process.kill()
    p.process.wait()
    hosts().kept = set()
    same(code, 125, took)
    has(q.err, "horovodrun: host b: ")
    assert re.search(r"not ready within 2 s|does not answer ssh", q.err), q.err
    hosts().nothing_left()


def test_several_hosts_that_fail_are_counted(folder):
    p, _ = refused(folder, " (and 1 more host failed)", "-np", "3", "-H", "a,b,c", "-p", "2299", "true")
    assert re.search(r"host [bc]: ssh connection refused", p.err), p.err


def alone(folder):
    """A horovodrun without an agent beside it."""
    os.mkdir(f"{folder}/bin")
    return shutil.copy(HOROVODRUN, f"{folder}/bin/horovodrun")


def test_no_agent_on_a_host(folder):
    refused(folder, "horovodrun: host b: there is no hvd-agent, neither at the path that it has here nor in PATH",
            "-np", "2", "-H", "a,b", "true", program=alone(folder))  # fmt: skip


def test_an_agent_of_another_version(folder):
    program = alone(folder)
    with open(f"{BIN}/hvd-agent", "rb") as f:
        agent = f.read()
    version = subprocess.run(
        [f"{BIN}/hvd-agent", "--version"], stdout=subprocess.PIPE, check=True
    ).stdout.strip()
    assert agent.count(version + b"\0") >= 1
    with open(f"{folder}/bin/hvd-agent", "wb") as f:
        f.write(agent.replace(version + b"\0", b"9" * len(version) + b"\0"))
    os.chmod(f"{folder}/bin/hvd-agent", 0o755)
    refused(folder, f"host b: its hvd-agent is version {'9' * len(version)}, this horovodrun is {version.decode()}",
            "-np", "2", "-H", "a,b", "true", program=program)  # fmt: skip


def test_an_agent_that_is_no_program(folder):
    program = alone(folder)
    with open(f"{folder}/bin/hvd-agent", "w", encoding="ascii") as f:
        f.write("#!/bin/sh\necho my own words >&2\nexit 3\n")
    os.chmod(f"{folder}/bin/hvd-agent", 0o755)
    refused(folder, "host b: ssh ended before the agent was there: my own words",
            "-np", "1", "-H", "b", "true", program=program)  # fmt: skip


def test_a_login_shell_that_prints_is_no_harm(folder):
    program = alone(folder)
    with open(f"{folder}/bin/hvd-agent", "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\necho "Welcome to HVD-AGENT/1"\necho again >&2\nexec {BIN}/hvd-agent "$@"\n')
    os.chmod(f"{folder}/bin/hvd-agent", 0o755)
    p = run(folder, "-np", "2", "-H", "b,c", RANK, program=program)
    has(p.out, "[1]<stdout>:rank 1 of 2 met ranks that add up to 1")


def test_a_command_that_is_not_there(folder):
    p, _ = refused(
        folder, "horovodrun: host b: ", "-np", "1", "-H", "b", "no-such-python", "train.py", code=127
    )
    has(p.err, "no-such-python")


def test_a_module_that_is_not_there(folder):
    p = run(folder, "-np", "2", "-H", "a,b", sys.executable, "-c",
            "import os\nif os.environ['HOROVOD_RANK'] == '1': import nosuchmodule\nimport time; time.sleep(60)",
            code=1)  # fmt: skip
    has(p.err, "horovodrun: rank 1 on b exited with code 1")
    has(p.err, "No module named 'nosuchmodule'")


def test_a_directory_that_is_not_there_is_said(folder):
    gone = f"{folder}/gone"
    os.mkdir(gone)
    p = start(folder, "-np", "1", "-H", "b", "sh", "-c", "pwd", cwd=gone,
              env={"HVD_SSH": f"{folder}/ssh"})  # fmt: skip
    with open(f"{folder}/ssh.new", "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\nrmdir {gone}\nexec ssh "$@"\n')
    p.process.kill()
    p.process.wait()
    os.chmod(f"{folder}/ssh.new", 0o755)
    os.rename(f"{folder}/ssh.new", f"{folder}/ssh")
    p = run(
        folder,
        "-np",
        "1",
        "-H",
        "b",
        "sh",
        "-c",
        "pwd",
        cwd=gone,
        env={"HVD_SSH": f"{folder}/ssh"},
        tag="second",
    )
    has(p.err, f"cannot go to directory {gone} there (No such file or directory)")
    has(p.out, "[0]<stdout>:/root\n")


def test_signals_reach_all_hosts(folder):
    script = f'trap "echo got; exit 0" TERM; echo $$ > {folder}/up.$HOROVOD_RANK; {LOOP}'
    p = start(folder, "-np", "3", "-H", "a,b,c", "sh", "-c", script)
    up(folder, 3)
    p.signal(signal.SIGTERM)
    same(p.end(), 143, p.err)
    for rank in range(3):
        has(p.out, f"[{rank}]<stdout>:got\n")
    has(p.err, "horovodrun: stopped by SIGTERM\n")
    hosts().nothing_left()


def test_a_second_signal_kills(folder):
    script = f'trap "echo got" TERM; echo $$ > {folder}/up.$HOROVOD_RANK; {LOOP}'
    p = start(folder, "-np", "2", "-H", "a,b", "sh", "-c", script)
    up(folder, 2)
    p.signal(signal.SIGTERM)
    wait_until("the first came", lambda: p.out.count("got") >= 2)
    p.signal(signal.SIGTERM)
    same(p.end(8), 143, p.err)
    hosts().nothing_left()


def test_a_signal_before_the_start(folder):
    p = start(folder, "-np", "2", "-H", "a,silent", "true")
    wait_until("ssh runs", lambda: any("ssh" in read(f"/proc/{q}/comm") for q in hosts().pids("a")))
    p.signal(signal.SIGINT)
    same(p.end(5), 130, p.err)
    hosts().nothing_left()


def test_the_launcher_is_killed_at_any_stage(folder):
    stages = {
        "connecting": lambda: any(read(f"/proc/{q}/comm") == "ssh\n" for q in hosts().pids("a")),
        "an agent is there": lambda: agents("b"),
        "a rank is there": lambda: os.path.exists(f"{folder}/up.1"),
        "all ranks are there": lambda: all(os.path.exists(f"{folder}/up.{i}") for i in range(4)),
    }
    for stage, is_reached in stages.items():
        for i in range(4):
            if os.path.exists(f"{folder}/up.{i}"):
                os.unlink(f"{folder}/up.{i}")
        p = start(folder, "-np", "4", "-H", "a,b,c,d", *looping(folder))
        wait_until(stage, is_reached)
        launcher = [q for q in hosts().pids("a") if read(f"/proc/{q}/cmdline").split("\0")[0] == HOROVODRUN]
        os.kill(p.pid, signal.SIGKILL)
        p.end()
        assert launcher, stage
        hosts().nothing_left(9)
    same([n for n in os.listdir(folder) if n.startswith("hvd-")], [], "scratch")


def test_an_ssh_client_is_killed(folder):
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder))
    up(folder, 3)
    clients = [
        q
        for q in hosts().pids("a")
        if read(f"/proc/{q}/comm") == "ssh\n" and "\0b\0" in read(f"/proc/{q}/cmdline")
    ]
    same(len(clients), 1)
    os.kill(clients[0], signal.SIGKILL)
    same(p.end(), 125, p.err)
    has(p.err, "horovodrun: host b was lost: its agent ended or the connection broke")
    hosts().nothing_left()


def test_an_agent_is_killed(folder):
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder))
    up(folder, 3)
    os.kill(agents("c")[0], signal.SIGKILL)
    same(p.end(), 125, p.err)
    has(p.err, "horovodrun: host c was lost: its agent ended or the connection broke")
    hosts().nothing_left()


def test_an_agent_is_told_to_stop(folder):
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder))
    up(folder, 3)
    os.kill(agents("c")[0], signal.SIGTERM)
    same(p.end(), 143, p.err)
    has(p.err, "horovodrun: host c: hvd-agent received SIGTERM there")
    hosts().nothing_left()


def test_what_a_rank_started_ends_too(folder):
    p = start(folder, "-np", "2", "-H", "b,c", "sh", "-c",
              f"(trap '' TERM HUP; {LOOP}) & echo $! > {folder}/up.$HOROVOD_RANK; wait")  # fmt: skip
    pids = up(folder, 2)
    assert all(map(is_alive, pids))
    os.kill(p.pid, signal.SIGKILL)
    p.end()
    wait_until("they have ended", lambda: not any(map(is_alive, pids)), 9)
    hosts().nothing_left()


def test_a_host_that_falls_silent(folder):
    h = hosts()
    p = start(folder, "-np", "3", "-H", "a,b,c", *looping(folder), env={"HVD_PEER_TIMEOUT": "1.5"})
    up(folder, 3)
    h.on_net(h.ns("c"), "ip", "link", "set", "eth0", "down")
    try:
        same(p.end(), 125, p.err)
        has(p.err, "horovodrun: host c was lost: its agent was silent for 1 s")
        wait_until("its ranks have ended too", lambda: not agents("c"), 10)
    finally:
        h.on_net(h.ns("c"), "ip", "link", "set", "eth0", "up")
    for q in h.pids("c"):  # sshd's own sessions wait for TCP, as for any lost client
        if "sshd" in read(f"/proc/{q}/comm"):
            os.kill(q, signal.SIGKILL)
    h.nothing_left()


def test_a_tree_of_agents(folder):
    log, script = f"{folder}/ssh.log", f"{folder}/myssh"
    with open(script, "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\necho "$(hostname) $1" >> {log}\nexec ssh -o BatchMode=yes "$@"\n')
    os.chmod(script, 0o755)
    env = {"HVD_SSH": script, "HVD_SSH_FANOUT": "1"}
    p = run(folder, "-np", "4", "-H", "b,c,a,d", RANK, env=env)
    same(
        sorted(p.out.splitlines()),
        [f"[{r}]<stdout>:rank {r} of 4 met ranks that add up to 6" for r in range(4)],
    )
    same(read(log), "a b\nb c\nc d\n")
    p = run(
        folder,
        "-np",
        "4",
        "-H",
        "b,c,a,d",
        "sh",
        "-c",
        f"[ $HOROVOD_RANK = 3 ] && exit 9; {LOOP}",
        code=9,
        env=env,
    )
    has(p.err, "horovodrun: rank 3 on d exited with code 9")


def test_a_tree_is_as_wide_as_it_should_be(folder):
    log, script = f"{folder}/ssh.log", f"{folder}/myssh"
    with open(script, "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\necho "$(hostname) $1" >> {log}\nexec ssh -o BatchMode=yes "$@"\n')
    os.chmod(script, 0o755)
    run(folder, "-np", "3", "-H", "b,c,d", RANK, env={"HVD_SSH": script, "HVD_SSH_FANOUT": "2"})
    same(sorted(read(log).splitlines()), ["a b", "a d", "b c"])


def test_a_tree_loses_an_agent_in_its_middle(folder):
    p = start(folder, "-np", "3", "-H", "b,c,d", *looping(folder), env={"HVD_SSH_FANOUT": "1"})
    up(folder, 3)
    os.kill(agents("c")[0], signal.SIGKILL)
    same(p.end(), 125, p.err)
    has(p.err, "horovodrun: host c was lost: its agent ended or the connection broke")
    hosts().nothing_left()


def test_a_tree_names_a_host_far_down(folder):
    p = run(folder, "-np", "3", "-H", "b,c,nosuch", "true", code=125, env={"HVD_SSH_FANOUT": "1"})
    has(p.err, "horovodrun: host nosuch: its name does not resolve (DNS)")


def test_more_hosts_than_one_agent_starts(folder):
    """40 names of this host, each with an agent of its own, in a tree of the default width."""
    names = [f"h{i}" for i in range(40)]
    script = f"{folder}/myssh"
    with open(script, "w", encoding="ascii") as f:  # host, command line
        f.write(f'#!/bin/sh\necho "$PPID $1" >> {folder}/ssh.log\nexec sh -c "$2"\n')
    os.chmod(script, 0o755)
    p = run(folder, "-np", "40", "-H", ",".join(names), RANK, env={"HVD_SSH": script})
    same(
        sorted(p.out.splitlines()),
        sorted(f"[{r}]<stdout>:rank {r} of 40 met ranks that add up to 780" for r in range(40)),
    )
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


def test_each_rank_is_killed_while_it_starts(folder):
    """The job ends as a whole wherever the other ranks are by then."""
    for victim in range(3):
        script = f"if [ $HOROVOD_RANK = {victim} ]; then kill -9 $$; fi; exec {RANK}"
        p = run(folder, "-np", "3", "-H", "a,b,c", "sh", "-c", script, code=137, tag=f"run{victim}")
        has(p.err, f"horovodrun: rank {victim} on {'abc'[victim]} was killed by signal 9")


def test_the_interface_is_a_flag(folder):
    p = run(folder, "-np", "2", "-H", "a,b", "--network-interfaces", "eth0", "sh", "-c",
            f"echo $HVD_RENDEZVOUS_ADDR $NCCL_SOCKET_IFNAME; exec {RANK}")  # fmt: skip
    for rank in range(2):
        has(p.out, f"[{rank}]<stdout>:{hosts().address('a')} eth0\n")
    refused(
        folder,
        "--network-interfaces",
        "-np",
        "2",
        "-H",
        "a,b",
        "--network-interfaces",
        "nosuch0",
        "true",
        code=2,
    )


def test_names_of_this_host_need_no_ssh(folder):
    for name in "localhost", "a", hosts().address("a"):
        p = run(folder, "-np", "2", "-H", f"{name}:1,b:1", RANK, env={"HVD_SSH": f"{folder}/ssh"},
                code=125)  # fmt: skip
        has(p.err, "host b: ")
        run(folder, "-np", "1", "-H", f"{name}:1,b:1", RANK, env={"HVD_SSH": f"{folder}/ssh"})


if __name__ == "__main__":
    try:
        socket.gethostname()
        sys.exit(run_all([f for name, f in sorted(globals().items()) if name.startswith("test_")]))
    except Skip as reason:
        print(f"1..0 # SKIP {reason}")
