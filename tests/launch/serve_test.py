#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""horovodrun over several hosts by hvd-agent serve, without ssh: namespaces as hosts. TAP.

usage: serve_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import re
import signal
import sys

from hosts import Hosts
from launched import BIN, HOROVODRUN, agent_of_another_version, environment, looping, met, up
from tap import TOKEN, has, is_alive, main, read, same, secret, wait_until, write

AGENT = os.path.join(BIN, "hvd-agent")
RANK = os.path.join(BIN, "launch-rank")
HOSTS = None


class Serving:
    """hvd-agent serve on some hosts; the same token for all."""

    def __init__(self, folder, names="bc", **tokens):
        global HOSTS
        HOSTS = HOSTS or Hosts()
        self.folder, self.agents = folder, {}
        self.token = secret(folder)
        try:
            for name in names:
                own = name in tokens and secret(folder, "token-" + name, tokens[name])
                self.serve(name, own or self.token)
        except BaseException:
            self.__exit__(BaseException)  # or the next test's would find the port taken
            raise

    def serve(self, name, token, *more, prefix=(), env=None, **how):
        words = [*prefix, AGENT, "serve", *(["--token-file", token] if token else []), *more]
        env = environment(TMPDIR=self.folder, THERE=name, **(env or {}))
        self.agents[name] = HOSTS.start(
            name, *words, folder=self.folder, tag=f"serve-{name}", env=env, **how
        )
        agent = self.agents[name]
        wait_until(f"{name} serves", lambda: "serving" in agent.err or agent.process.poll() is not None)
        assert agent.process.poll() is None, agent.err

    def start(self, *words, env=None, tag="run", **more):
        env = environment(TMPDIR=self.folder, **(env or {}))
        words = [HOROVODRUN, "--token-file", self.token, *words]
        return HOSTS.start("a", *words, env=env, folder=self.folder, tag=tag, **more)

    def run(self, *words, code=0, **more):
        p = self.start(*words, **more)
        got = p.end(40)
        assert got == code, f"exit code {got}, wanted {code}\n{p.out}{p.err}"
        self.only_serving()
        return p

    def only_serving(self):
        """No job's process and no connection is left; the agents still listen."""
        HOSTS.kept = {a.pid for a in self.agents.values()}

        def left():
            return [
                x
                for x in HOSTS.what_is_left().splitlines()
                if not any(f"pid={a.pid}," in x for a in self.agents.values())
            ]

        try:
            wait_until("only the agents are left", lambda: not left(), 30)
        except AssertionError:
            raise AssertionError("left:\n" + "\n".join(left())) from None

    def end(self):
        for name, agent in self.agents.items():
            agent.signal(signal.SIGTERM)
            same(agent.end(), 143, f"{name}: {agent.err}")
        HOSTS.kept = set()
        HOSTS.nothing_left()

    def __enter__(self):
        return self

    def __exit__(self, kind, *more):
        if kind is None:
            self.end()
        for agent in self.agents.values():
            agent.process.kill()
            agent.process.wait()
        HOSTS.kept = set()


def test_ranks_of_all_hosts_meet(folder):
    with Serving(folder, "bc") as s:
        p = s.run("-np", "4", "-H", "a:1,b:2,c:1", RANK)
        same(sorted(p.out.splitlines()), met(4))
        p = s.run("-np", "2", "-H", "b,c", "sh", "-c", "echo $THERE $HVD_RENDEZVOUS_ADDR $MASTER_ADDR $MINE",
                  env={"MINE": "x", "THERE": "no"})  # fmt: skip
        has(p.out, f"[1]<stdout>:no {HOSTS.address('a')} {HOSTS.address('b')} x\n")


def test_the_shared_token_reaches_no_rank(folder):
    with Serving(folder, "b") as s:
        p = s.run("-np", "1", "-H", "b", "sh", "-c", "cat $HVD_TOKEN_FILE; env; cat /proc/self/cmdline")
        first = p.out.splitlines()[0].split(":", 1)[1]
        assert re.fullmatch("[0-9a-f]{64}", first), first
        assert TOKEN not in p.out and "--token-file" not in p.out
        q = s.run("-np", "1", "-H", "b", "sh", "-c", "cat $HVD_TOKEN_FILE", tag="second")
        assert re.fullmatch(r"\[0\]<stdout>:[0-9a-f]{64}\n", q.out) and first not in q.out, q.out


def test_rank_0_reads_nothing(folder):
    """Not what the agent's own standard input holds."""
    with Serving(folder, "") as s:
        write(f"{folder}/input", "for the agent\n")
        with open(f"{folder}/input", encoding="ascii") as f:
            s.serve("b", s.token, stdin=f)
        p = s.run("-np", "1", "-H", "b", "sh", "-c", "cat; echo end")
        same(p.out, "[0]<stdout>:end\n")


def test_two_jobs_at_once(folder):
    with Serving(folder, "bc") as s:
        p = s.start("-np", "2", "-H", "b,c", *looping(folder))
        up(folder, 2)
        s2 = s.start("-np", "2", "-H", "b,c", RANK, tag="second")
        same(s2.end(), 0, s2.err)
        p.signal(signal.SIGTERM)
        same(p.end(), 143)
        s.only_serving()


def test_another_port_and_address(folder):
    with Serving(folder, "") as s:
        s.serve("b", s.token, "--port=7999", "--bind", HOSTS.address("b"))
        s.run("-np", "1", "-H", "b", "--agent-port", "7999", "true")


def test_a_wrong_token_is_refused(folder):
    with Serving(folder, "bc", c="0a" * 32) as s:
        p = s.run("-np", "2", "-H", "b,c", "true", code=125)
        has(p.err, "horovodrun: host c: ")
        has(p.err, "token")
        has(s.agents["c"].err, "connection refused")


def test_nobody_serves(folder):
    with Serving(folder, "b") as s:
        p = s.run("-np", "2", "-H", "b,c", "true", code=125)
        has(
            p.err,
            "horovodrun: host c: cannot connect to c port 7172: Connection refused: is hvd-agent serve running there?",
        )
        p = s.run("-np", "2", "-H", "b,nosuch", "true", code=125)
        has(p.err, 'horovodrun: host nosuch: cannot resolve "nosuch"')
        p = s.run("-np", "2", "-H", "b,silent", "--start-timeout", "2", "true", code=125)
        has(p.err, "horovodrun: host silent: ")


def test_the_launcher_of_an_mpijob_waits(folder):
    with Serving(folder, "b") as s:
        p = s.start("-np", "2", "-H", "b,c", "true", env={"K_MPI_JOB_ROLE": "launcher"})
        wait_until("b is there", lambda: "job accepted" in s.agents["b"].err)
        s.serve("c", s.token)
        same(p.end(40), 0, p.err)
        s.only_serving()


def bad(folder, *words, prefix=()):
    """The error message of hvd-agent serve, which must end at once."""
    q = HOSTS.start("c", *prefix, AGENT, "serve", *words, folder=folder, tag="bad")
    assert q.end() in (2, 125), words
    same(q.err.count("\n"), 1, q.err)
    return q.err


def test_words_that_are_refused(folder):
    with Serving(folder, "") as s:
        for words, sentence in {
            (): "--token-file is missing",
            ("--token-file", "/no/such"): "/no/such",
            ("--token-file", s.token, "--port", "x"): "--port",
            ("--what",): "unknown option --what",
            ("--port",): "a value is missing after --port",
            ("--token-file", s.token, "--bind", "10.9.9.9"): "10.9.9.9",
        }.items():
            has(bad(folder, *words), sentence)


def test_token_files_that_are_refused(folder):
    with Serving(folder, "b") as s:
        by_hand = secret(folder, "by-hand", "correct horse battery staple\n")
        fifo, link, others = f"{folder}/fifo", f"{folder}/link", secret(folder, "others")
        os.mkfifo(fifo, 0o600)
        os.symlink("/dev/zero", link)
        os.chown(others, 12345, 12345)
        files = {
            by_hand: f"{by_hand} does not contain 64 hex digits; create a token with: hvd-agent token FILE",
            fifo: f"{fifo} is not a regular file; create a token with: hvd-agent token FILE",
            link: f"{link} is not a regular file; create a token with: hvd-agent token FILE",
            others: f"the file belongs to user 12345, not to user 0, who runs this; run: chown 0 {others}",
        }
        for mode in 0o660, 0o640, 0o604, 0o602, 0o644:
            path = secret(folder, f"mode-{mode:o}")
            os.chmod(path, mode)
            files[path] = (
                f"mode 0{mode:o} gives access to others than the file's owner; run: chmod 600 {path}"
            )
        for path, sentence in files.items():
            sentence = f"job token: {sentence}\n"
            same(bad(folder, "--token-file", path), f"hvd-agent: serve: {sentence}")
            s.token = path
            p = s.run("-np", "1", "-H", "b", "true", code=125)
            same(p.err, f"horovodrun: {sentence}")


def test_a_token_file_that_becomes_readable_is_refused(folder):
    with Serving(folder, "") as s:
        s.serve("b", secret(folder, "token-b"))
        s.run("-np", "1", "-H", "b", "true")
        os.chmod(f"{folder}/token-b", 0o640)
        p = s.run("-np", "1", "-H", "b", "true", code=125)
        has(p.err, "horovodrun: host b: ")
        has(s.agents["b"].err, f"run: chmod 600 {folder}/token-b")


def test_a_token_that_is_replaced(folder):
    """The next job needs the new one; without the file nobody is admitted."""
    with Serving(folder, "b") as s:
        s.run("-np", "1", "-H", "b", "true")
        secret(folder, "next", "0a" * 32)
        old = secret(folder, "old")
        os.rename(f"{folder}/next", s.token)
        s.run("-np", "1", "-H", "b", "true")
        path, s.token = s.token, old
        has(s.run("-np", "1", "-H", "b", "true", code=125).err, "has another token")
        os.unlink(path)
        s.run("-np", "1", "-H", "b", "true", code=125)
        has(s.agents["b"].err, f"cannot open {path}")
        os.rename(old, path)
        s.token = path
        s.run("-np", "1", "-H", "b", "true")


def test_a_secret_volume(folder):
    """Root's file behind links: all in the pod, or its fsGroup, may read it if the mount is read-only."""
    volume = f"{folder}/volume"
    os.mkdir(volume)
    for mode, how, user, is_good in (
        ("0444", "ro", 12345, True),
        ("0440", "ro", 12345, True),
        ("0444", "rw", 12345, False),
        ("0444", "rw", 0, False),
        ("0664", "ro", 12345, False),
    ):
        script = (
            f"mount -t tmpfs none {volume} && cd {volume} && mkdir ..1 && cp {folder}/token ..1 && ln -s ..1 ..data "
            f"&& ln -s ..data/token token && chmod {mode} ..1/token && chgrp 777 ..1/token "
            f'&& mount -o remount,bind,{how} {volume} && exec setpriv --reuid={user} --regid=777 --clear-groups "$@"'
        )
        prefix = ["unshare", "-m", "sh", "-c", script, "sh"]
        with Serving(folder, "") as s:
            os.chmod(folder, 0o755)
            if is_good:
                s.serve("b", f"{volume}/token", prefix=prefix)
                s.run("-np", "1", "-H", "b", "true")
            else:
                has(bad(folder, "--token-file", f"{volume}/token", prefix=prefix), f"{volume}/token")


def test_a_new_token(folder):
    with Serving(folder, "") as s:
        path = f"{folder}/new"

        def token(*words, code=0):
            p = HOSTS.start("a", AGENT, "token", *words, folder=folder, tag="token", umask=0)
            same((p.end(), p.out), (code, ""), p.err)
            return p.err

        same(token(path), "")
        same(os.stat(path).st_mode & 0o7777, 0o600)
        first = read(path)
        assert re.fullmatch("[0-9a-f]{64}\n", first), first
        same(token(path, code=1), f"hvd-agent: job token: cannot create {path}: File exists\n")
        same(read(path), first)
        token(f"{folder}/other")
        assert read(f"{folder}/other") != first
        for words in (), (path, path), ("--help",):
            has(token(*words, code=2), "hvd-agent: token takes one file: hvd-agent token FILE")
        s.serve("b", path)
        s.token = path
        s.run("-np", "1", "-H", "b", "true")


def test_a_command_that_is_not_there(folder):
    with Serving(folder, "b") as s:
        p = s.run("-np", "1", "-H", "b", "no-such-python", code=127)
        has(p.err, "horovodrun: host b: ")


def test_another_version_is_refused(folder):
    with Serving(folder, "") as s:
        other = f"{folder}/hvd-agent"
        versions = agent_of_another_version(other)
        words = (other, "serve", "--token-file", s.token)
        s.agents["b"] = HOSTS.start("b", *words, folder=folder, tag="serve-b")
        wait_until("b serves", lambda: "serving" in s.agents["b"].err)
        has(s.run("-np", "1", "-H", "b", "true", code=125).err, f"host b: {versions}")


def test_a_killed_launcher_leaves_nothing(folder):
    with Serving(folder, "bc") as s:
        p = s.start("-np", "3", "-H", "a,b,c", *looping(folder))
        pids = up(folder, 3)
        os.kill(p.pid, signal.SIGKILL)
        p.end()
        wait_until("ranks have ended", lambda: not any(map(is_alive, pids)))
        s.only_serving()


def test_an_agent_that_ends_ends_its_jobs(folder):
    for number, code in (signal.SIGKILL, 137), (signal.SIGTERM, 143):
        with Serving(folder, "bc") as s:
            p = s.start("-np", "3", "-H", "a,b,c", *looping(folder), tag=str(number))
            pids = up(folder, 3)
            s.agents["b"].signal(number)
            same(s.agents.pop("b").end(), code)
            same(p.end(), 143, p.err)
            has(p.err, "horovodrun: host b: its hvd-agent received SIGTERM")
            wait_until("ranks have ended", lambda pids=pids: not any(map(is_alive, pids)))
            s.only_serving()
            for rank in range(3):
                os.unlink(f"{folder}/up.{rank}")


def test_a_jobs_process_is_killed(folder):
    with Serving(folder, "bc") as s:
        p = s.start("-np", "2", "-H", "b,c", *looping(folder))
        pids = up(folder, 2)
        HOSTS.kept = set()

        def mine():
            agents = [q for q in HOSTS.pids("b") if "hvd-agent" in read(f"/proc/{q}/comm")]
            return [q for q in agents if q != s.agents["b"].pid]

        wait_until("its guard has its own name", lambda: len(mine()) == 1)
        os.kill(mine()[0], signal.SIGKILL)
        same(p.end(), 125, p.err)
        has(p.err, "horovodrun: host b was lost: ")
        wait_until("ranks have ended", lambda: not any(map(is_alive, pids)))
        s.only_serving()


def test_strangers_do_no_harm(folder):
    with Serving(folder, "b") as s:
        for kind in "silent", "drip", "garbage", "half":
            p = HOSTS.start(
                "b", f"{BIN}/launch-strangers", kind, "500", folder=folder, tag=f"strangers-{kind}"
            )
            wait_until("they are there", lambda: len(HOSTS.sockets("b", "-a").splitlines()) > 500)
            q = s.start("-np", "1", "-H", "b", "true", tag=f"job-{kind}")
            same(q.end(), 0, q.err)
            p.signal(signal.SIGTERM)
            same(p.end(), 0, p.err)
        s.only_serving()
        same(len(HOSTS.pids("b")), 1, "processes on b")


def test_the_wire_shows_nothing(folder):
    """A proxy between launcher and agent sees neither environment nor output."""
    with Serving(folder, "") as s:
        s.serve("b", s.token, "--port", "7999")
        code = """
import socket, sys, threading
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(('', 7172)); l.listen(); print('ready', flush=True)
a, _ = l.accept(); b = socket.create_connection(('127.0.0.1', 7999)); f = open(sys.argv[1], 'wb')
def copy(x, y):
    while True:
        p = x.recv(65536)
        if not p: break
        f.write(p); f.flush(); y.sendall(p)
    try: y.shutdown(socket.SHUT_WR)
    except OSError: pass
t = threading.Thread(target=copy, args=(b, a)); t.start(); copy(a, b); t.join()
"""
        proxy = HOSTS.start("b", sys.executable, "-c", code, f"{folder}/seen", folder=folder, tag="proxy")
        wait_until("the proxy listens", lambda: "ready" in proxy.out or proxy.err)
        same(proxy.err, "")
        q = s.start("-np", "1", "-H", "b", "sh", "-c", "echo the-output-$MY_SECRET",
                    env={"MY_SECRET": "hidden-value"})  # fmt: skip
        code = q.end()
        with open(f"{folder}/seen", "rb") as f:
            seen = f.read()
        proxy.process.kill()
        proxy.process.wait()
        same(code, 0, q.err)
        has(q.out, "[0]<stdout>:the-output-hidden-value")
        assert len(seen) > 1000
        for word in b"hidden-value", b"the-output", b"PATH=":
            assert word not in seen, word


if __name__ == "__main__":
    main(globals())
