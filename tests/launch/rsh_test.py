#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-rsh, the remote shell by hvd-agent serve: namespaces as hosts. TAP.

usage: rsh_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import signal
import subprocess

import serve_test
from launched import BIN, HOROVODRUN, LOOP, environment, met
from serve_test import Serving
from tap import TOKEN, has, is_alive, main, read, same, secret, wait_until, write

POD = ["unshare", "-pf", "--kill-child", "--mount-proc"]
RSH = os.path.join(BIN, "hvd-rsh")


class Agents(Serving):
    """hvd-agent serve on b and c; hvd-rsh on a."""

    def __init__(self, folder, names="bc", **tokens):
        super().__init__(folder, names, **tokens)
        self.hosts = serve_test.HOSTS

    def rsh(self, *words, env=None, tag="rsh", on="a", **more):
        env = environment(**{"HVD_TOKEN_FILE": self.token, "MINE": "asker", **(env or {})})
        return self.hosts.start(on, RSH, *words, env=env, folder=self.folder, tag=tag, **more)

    def ran(self, *words, code=0, **more):
        p = self.rsh(*words, **more)
        same(p.end(40), code, f"{words}:\n{p.out}{p.err}")
        return p

    def end_pod(self, name):
        """As the kubelet does: SIGTERM to process 1."""
        first = [
            p
            for p in self.hosts.pids(name)
            if read(f"/proc/{p}/status").partition("NSpid:")[2].split()[1:2] == ["1"]
        ]
        same(len(first), 1)
        os.kill(first[0], signal.SIGTERM)
        same(self.agents.pop(name).end(), 143)


def pid_in(path):
    return int(wait_until(f"{path} is written", lambda: read(path).strip()))


def test_horovodrun_takes_it_for_ssh(folder):
    """As in a launcher pod, where HVD_SSH is set: a plain horovodrun, without --token-file."""
    with Agents(folder) as s:
        env = environment(HVD_SSH=RSH, HVD_TOKEN_FILE=s.token, TMPDIR=folder)
        write(f"{folder}/hostfile", "b slots=2\nc slots=1\n")
        words = [HOROVODRUN, "-np", "3", "--hostfile", f"{folder}/hostfile", serve_test.RANK]
        p = s.hosts.start("a", *words, env=env, folder=folder, tag="run")
        same(p.end(40), 0, p.out + p.err)
        same(sorted(p.out.splitlines()), met(3))
        words[5:] = ["sh", "-c", "test $HOROVOD_RANK != 1 || exit 5; sleep 60"]
        p = s.hosts.start("a", *words, env=env, folder=folder, tag="fails")
        same(p.end(40), 5, p.out + p.err)
        s.only_serving()


def test_streams_code_and_place(folder):
    with Agents(folder) as s:
        p = s.ran("b", "echo out; echo err >&2; exit 7", code=7)
        same((p.out, p.err), ("out\n", "err\n"))
        p = s.ran("b", "echo $THERE $MINE; pwd")  # the agent's environment and folder, nothing of ours
        same(p.out, f"b\n{os.getcwd()}\n")
        s.ran("c", "kill -9 $$", code=137)
        s.ran("c", "/no/such/program", code=127)
        s.only_serving()


def test_words_are_joined_as_ssh_does(folder):
    with Agents(folder, "b") as s:
        for words in (["echo", "a  b", "'c  d'", '"e  $THERE"', "$THERE"], ["  echo x;", "echo", "y"]):
            p = s.ran("b", *words)
            wanted = subprocess.run(["sh", "-c", " ".join(words)], env={**os.environ, "THERE": "b"},
                                    stdout=subprocess.PIPE, text=True, check=True).stdout  # fmt: skip
            same(p.out, wanted)
        same(s.ran("b", "--", "echo", "-n", "x").out, "x")
        same(s.ran("b", "echo", "-q", "--").out, "-q --\n")


def test_standard_input(folder):
    with Agents(folder, "b") as s:
        with open(f"{folder}/data", "wb") as f:
            f.write(os.urandom(3_000_000))
        with open(f"{folder}/data", "rb") as f:
            s.ran("b", "cat", stdin=f)
        with open(f"{folder}/data", "rb") as f, open(f"{folder}/rsh.out", "rb") as g:
            assert f.read() == g.read()
        with open(f"{folder}/data", "rb") as f:
            same(s.ran("-n", "b", "cat; echo end", stdin=f).out, "end\n")
        with open(f"{folder}/data", "rb") as f:  # a command that reads nothing
            s.ran("b", "true", stdin=f)
        with open(f"{folder}/data", "rb") as f:
            same(s.ran("b", "exec <&-; sleep 0; echo end", stdin=f).out, "end\n")
        p = s.rsh(
            "b", "cat; echo end", stdin=subprocess.PIPE
        )  # its end is passed on while the command runs
        p.process.stdin.write(b"one\n")
        p.process.stdin.flush()
        wait_until("it came back", lambda: p.out == "one\n")
        p.process.stdin.close()
        same(p.end(), 0)
        same(p.out, "one\nend\n")
        p = s.rsh("b", "echo end", tag="closed", preexec_fn=lambda: os.close(0))
        same((p.end(), p.out), (0, "end\n"))


def test_a_slow_reader_loses_nothing_and_holds_the_command(folder):
    with Agents(folder, "b") as s:
        command = f"yes 0123456789abcde | head -c 4000000; touch {folder}/wrote"
        p = s.rsh("b", command, stdout=subprocess.PIPE)
        got = p.process.stdout.read(1)
        assert not os.path.exists(f"{folder}/wrote")  # 4 MB fit no buffer on the way
        got += p.process.stdout.read()
        same(p.end(), 0, p.err)
        same(got, b"0123456789abcde\n" * 250000)


def test_a_closed_reader_ends_the_command(folder):
    with Agents(folder, "b") as s:
        p = s.rsh("b", f"echo $$ > {folder}/pid; yes", stdout=subprocess.PIPE)
        pid = pid_in(f"{folder}/pid")
        p.process.stdout.close()
        same(p.end(), 255)
        has(p.err, "cannot write to standard output: Broken pipe")
        wait_until("the command has ended", lambda: not is_alive(pid))
        s.only_serving()


def test_signals_are_forwarded_to_the_command(folder):
    with Agents(folder, "b") as s:
        for sig in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1:
            path = f"{folder}/{sig}"
            p = s.rsh(
                "b", f"trap 'echo got; exit {sig}' {int(sig)}; echo $$ > {path}; {LOOP}", tag=str(sig)
            )
            pid_in(path)
            p.signal(sig)
            same((p.end(), p.out), (int(sig), "got\n"))
        p = s.rsh("b", f"echo $$ > {folder}/group; sleep 1000; exit 0")
        pid_in(f"{folder}/group")
        p.signal(signal.SIGTERM)
        same(p.end(), 143)
        p = s.rsh("b", f"trap 'echo got' TERM; echo $$ > {folder}/deaf; {LOOP}")
        pid = pid_in(f"{folder}/deaf")
        p.signal(signal.SIGTERM)
        wait_until("forwarded", lambda: p.out == "got\n")
        p.signal(signal.SIGTERM)  # a second one ends hvd-rsh, and with it the command
        same(p.end(), 143)
        wait_until("killed", lambda: not is_alive(pid))
        s.only_serving()


def test_a_killed_client_leaves_nothing(folder):
    """Also not what left the command's group, as MPI's ranks do, or is deaf to SIGTERM."""
    with Agents(folder, "b") as s:
        script = (
            f"setsid sh -c 'echo $$ > {folder}/far; trap \"\" TERM; {LOOP}' & "
            f"sh -c 'echo $$ > {folder}/near; {LOOP}' & echo $$ > {folder}/self; wait"
        )
        p = s.rsh("b", script)
        pids = [pid_in(f"{folder}/{name}") for name in ("far", "near", "self")]
        p.signal(signal.SIGKILL)
        p.end()
        wait_until("all have ended", lambda: not any(map(is_alive, pids)))
        s.only_serving()


def test_background_processes_of_a_finished_command_keep_running(folder):
    """As by ssh; and the agent, as process 1 of a pod, reaps it later."""
    with Agents(folder, "") as s:
        s.serve("b", s.token, prefix=POD)
        s.ran(
            "b",
            f"mkfifo {folder}/fifo; setsid sh -c 'cat {folder}/fifo' </dev/null >/dev/null 2>&1 & exit 0",
        )
        wait_until("it lives on", lambda: "cat " in s.ran("b", "ps -eo args").out)
        write(f"{folder}/fifo", "")
        wait_until("ended and reaped", lambda: "cat" not in s.ran("b", "ps -eo comm").out)
        s.end_pod("b")


def test_as_process_1_of_any_user(folder):
    with Agents(folder, "") as s:
        os.chmod(folder, 0o755)
        token = secret(folder, "token-of-12345", read(s.token))
        os.chown(token, 12345, 12345)
        user = ["--reuid=12345", "--regid=12345", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]
        s.serve("b", token, prefix=[*POD, "setpriv", *user])
        p = s.ran("b", "id -u; echo $PPID; cat /proc/1/comm")
        same(p.out.splitlines()[0], "12345")
        same(p.out.splitlines()[2], "hvd-agent")
        assert not subprocess.run(["getent", "passwd", "12345"], check=False, stdout=subprocess.PIPE).stdout
        q = s.rsh("b", f"echo up; {LOOP}", tag="looping")
        wait_until("up", lambda: q.out)
        s.end_pod("b")
        same(q.end(), 143, q.err)


def test_many_at_once(folder):
    with Agents(folder, "b") as s:
        all_of_them = [
            s.rsh("b", f"read x; echo $x {i}", tag=f"rsh{i}", stdin=subprocess.PIPE) for i in range(30)
        ]
        for i, p in reversed(list(enumerate(all_of_them))):
            p.process.communicate(b"hello\n", 30)
            same((p.end(), p.out), (0, f"hello {i}\n"), p.err)
        s.only_serving()


def test_a_host_that_starts_late_is_waited_for(folder):
    with Agents(folder, "b") as s:
        p = s.rsh("c", "echo hello", env={"HVD_START_TIMEOUT": "24"})
        q = s.rsh("late", "echo hello", tag="unknown", env={"HVD_START_TIMEOUT": "24"})
        wait_until("it says for whom it waits", lambda: "waiting for host c, " in p.err)
        has(p.err, "of 24 s: cannot connect to c port 7172: Connection refused")
        wait_until("the other too", lambda: "waiting for host late, " in q.err)
        has(q.err, 'cannot resolve "late"')
        s.serve("c", s.token)
        same((p.end(), p.out), (0, "hello\n"))
        hosts = f"/etc/netns/{s.hosts.ns('a')}/hosts"
        before = read(hosts)
        with open(hosts, "a", encoding="ascii") as f:  # in place: it is mounted
            f.write(f"{s.hosts.address('b')} late\n")
        same((q.end(), q.out), (0, "hello\n"))
        write(hosts, before)


def test_a_host_that_does_not_come(folder):
    with Agents(folder, "b") as s:
        for limit in 1, 5, 25:  # a busy machine may not get its first refusal within a second
            p = s.ran("c", "true", code=255, env={"HVD_START_TIMEOUT": str(limit)})
            has(p.err, f"hvd-rsh: host c did not answer within {limit} s (HVD_START_TIMEOUT): ")
            if "no answer yet" not in p.err:
                break
        has(p.err, ": cannot connect to c port 7172: ")
        p = s.ran("silent", "true", code=255, env={"HVD_START_TIMEOUT": "1"})
        has(p.err, "hvd-rsh: host silent did not answer within 1 s")
        p = s.rsh("c", "true")
        wait_until("it runs", lambda: "hvd-rsh" in read(f"/proc/{p.pid}/cmdline"))
        wait_until("it takes signals", lambda: "signalfd" in links(p.pid))
        p.signal(signal.SIGTERM)
        same(p.end(), 143)


def links(pid):
    try:
        return " ".join(os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return ""


def test_tokens(folder):
    with Agents(folder, "bc", c="0a" * 32) as s:
        p = s.ran("c", "true", code=255)
        same(p.err, f"hvd-rsh: host c: its hvd-agent serve has another token than {s.token}\n")
        has(s.agents["c"].err, "connection refused")
        p = s.ran("b", "true", code=255, env={"HVD_TOKEN_FILE": "/no/such"})
        has(p.err, "hvd-rsh: job token: cannot open /no/such: ")
        by_hand = secret(folder, "by-hand", "correct horse battery staple")
        p = s.ran("b", "true", code=255, env={"HVD_TOKEN_FILE": by_hand})
        has(p.err, f"hvd-rsh: job token: {by_hand} does not contain 64 hex digits; ")
        p = s.ran("b", "true", code=255, env={"HVD_AGENT_PORT": "x"})
        has(p.err, "hvd-rsh: HVD_AGENT_PORT: ")
        p = s.ran("b", "env; cat /proc/$PPID/cmdline /proc/$PPID/environ")
        assert TOKEN not in p.out
        s.only_serving()


def test_defaults_of_serve(folder):
    with Agents(folder, "") as s:
        s.serve("b", None, env={"HVD_TOKEN_FILE": s.token, "HVD_AGENT_PORT": "7999"})
        same(s.ran("b", "echo hello", env={"HVD_AGENT_PORT": "7999"}).out, "hello\n")


def test_a_killed_agent(folder):
    with Agents(folder, "bc") as s:
        p = s.rsh("b", f"echo $$ > {folder}/pid; {LOOP}")
        pid = pid_in(f"{folder}/pid")
        shell = int(read(f"/proc/{pid}/stat").split()[3])
        os.kill(shell, signal.SIGKILL)  # the process that serves this command
        same(p.end(), 255)
        has(p.err, "hvd-rsh: host b: its agent exited or the connection broke")
        wait_until("the command has ended", lambda: not is_alive(pid))
        p = s.rsh("c", f"echo $$ > {folder}/pid2; {LOOP}")
        pid = pid_in(f"{folder}/pid2")
        s.agents["c"].signal(signal.SIGKILL)
        same(p.end(), 143, p.err)
        wait_until("the command has ended", lambda: not is_alive(pid))
        s.agents.pop("c").process.wait()


def test_its_own_host_needs_no_agent(folder):
    with Agents(folder, "") as s:
        for name in "a", "a.test", "a.svc.nowhere":
            same(s.ran(name, "echo $MINE; exit 3", code=3).out, "asker\n")
        with open("/etc/hostname", encoding="ascii") as f:  # no descriptor but 0, 1 and 2 is passed on
            p = s.ran("a", "ls /proc/self/fd | wc -l", pass_fds=[f.fileno()])
        same(p.out.strip(), "4")  # and that of ls


def test_the_clients_name_is_waited_for(folder):
    """MPICH's proxy calls back by name, once."""
    with Agents(folder, "b") as s:
        hosts = f"/etc/netns/{s.hosts.ns('b')}/hosts"
        before = read(hosts)
        write(hosts, "127.0.0.1 localhost\n")
        p = s.rsh("b", "getent hosts a; echo --control-port a:1234")
        wait_until("it is there", lambda: "command accepted" in s.agents["b"].err)
        write(hosts, before)
        same(p.end(), 0, p.err)
        has(p.out, s.hosts.address("a"))


if __name__ == "__main__":
    main(globals())
