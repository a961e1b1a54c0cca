#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hvd-agent as a whole: several agents on this machine, each as another worker. TAP.

usage: agent_test.py [PART OF A NAME ...]     BIN: folder of the programs (default: $BUILD/plain/bin)
"""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

from hosts import Hosts
from launched import BIN, check_environment, environment, executable, met, pid_namespace, scratch
from tap import DEADLINE_S, Program, children, has, is_alive, main, read, same, secret, wait_until

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from ports import free_port

AGENT = os.path.join(BIN, "hvd-agent")
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
UP = ": > {0}/up.$HOROVOD_RANK; "
VERDICT_BLAME_S = 2  # core/verdict.h


class Job:
    """The agents of one job; each worker has a termination log of its own."""

    def __init__(self, folder, workers, slots=1, **more):
        self.folder, self.workers, self.slots, self.agents = folder, workers, slots, {}
        self.token = secret(folder)
        self.env = environment(
            HVD_JOB_ID="ns/demo/uid",
            HVD_GENERATION="0",
            HVD_NUM_WORKERS=str(workers),
            HVD_SLOTS_PER_WORKER=str(slots),
            HVD_CHECKIN_ADDR="127.0.0.1",
            HVD_CHECKIN_PORT=str(free_port()),
            HVD_TOKEN_FILE=self.token,
            HVD_START_TIMEOUT="30",
            HVD_DIR=os.path.join(folder, "runtime"),
            TMPDIR=folder,
        )
        self.env.update(more)

    def start(self, index, *command, name=None, prefix=(), program=AGENT, **more):
        name = name or f"worker{index}"
        env = dict(
            self.env, HVD_WORKER_INDEX=str(index), HVD_TERMINATION_LOG=f"{self.folder}/{name}.log", **more
        )
        self.agents[index] = Program([*prefix, program, "run", "--", *command], env, self.folder, name)
        return self.agents[index]

    def start_all(self, *command, **more):
        for i in range(self.workers):
            self.start(i, *command, **more)
        return self

    def end(self, deadline_s=DEADLINE_S):
        return [self.agents[i].end(deadline_s) for i in sorted(self.agents)]

    def log(self, index):
        return read(f"{self.folder}/worker{index}.log")

    def ranks_up(self, n):
        wait_until("ranks are up", lambda: all(os.path.exists(f"{self.folder}/up.{i}") for i in range(n)))

    def errors(self):
        return "".join(f"--- worker {i}\n{a.err}" for i, a in sorted(self.agents.items()))

    def logs_name(self, pattern, indices=None):
        """All termination logs are the same failure and match; returns the first."""
        texts = [self.log(i) for i in (indices if indices is not None else range(self.workers))]
        for text in texts:
            assert re.match(pattern, text), f"{pattern!r} does not match {text!r}\n{self.errors()}"
            same(text, texts[0], "termination logs differ")
            assert len(text.encode()) <= 4096
        return texts[0]


def failure(rank, exit_code=0, number=0):
    return rf"ringmaster-failure/1 rank={rank} host=\S+ exit={exit_code} signal={int(number)} at=\d+ why="


def loop(folder):
    return UP.format(folder) + "while :; do sleep 0.02; done"


def test_all_ranks_of_all_workers_run(folder):
    job = Job(folder, 3, 2, OMP_NUM_THREADS="7").start_all(
        "sh",
        "-c",
        f'env -0 > {folder}/env.$HOROVOD_RANK; cat "$HVD_HOSTFILE" > '
        f"{folder}/hosts.$HOROVOD_RANK; echo hello; exec {BIN}/launch-rank master",
    )
    same(job.end(), [0, 0, 0], job.errors())
    wanted = {"OMP_NUM_THREADS": 7, "HVD_JOB_ID": "ns/demo/uid", "WORLD_SIZE": 6}
    for rank in range(6):
        place, host = (rank, 6, rank % 2, 2, rank // 2, 3), f"worker-{rank // 2}"
        env = check_environment(folder, rank, place, HOROVOD_HOSTNAME=host, RANK=rank, **wanted)
        same(env["PYTHONPATH"].split(":")[0], f"{folder}/runtime/python")
        same(env["PATH"].split(":")[0], f"{folder}/runtime/bin")
        for name in "HVD_WORKER_INDEX", "HVD_CHECKIN_ADDR", "HVD_TERMINATION_LOG":
            assert name not in env, name
        same(read(f"{folder}/hosts.{rank}"), "worker-0 slots=2\nworker-1 slots=2\nworker-2 slots=2\n")
        has(job.agents[rank // 2].out, f"[{rank}]<stdout>:hello\n")
        has(job.agents[rank // 2].out, f"{met(6)[rank]}\n")
    same([job.log(i) for i in range(3)], ["", "", ""], "termination logs of a good job")
    same(scratch(folder), [], "scratch")


def test_one_worker_is_a_job_whose_ranks_share_its_cores(folder):
    job = Job(folder, 1, 2)
    job.env.pop("OMP_NUM_THREADS", None)
    job.start_all("sh", "-c", f"echo $OMP_NUM_THREADS > {folder}/n.$HOROVOD_RANK; exec {BIN}/launch-rank")
    same(job.end(), [0], job.errors())
    for rank in 0, 1:
        assert 1 <= int(read(f"{folder}/n.{rank}")) <= max(1, len(os.sched_getaffinity(0)) // 2)


def test_workers_on_different_hosts_find_each_other(folder):
    hosts = Hosts("ab")
    address = hosts.address("a")
    try:
        job = Job(folder, 2, 2, HVD_CHECKIN_ADDR=address)
        for i, name in enumerate("ab"):
            prefix = ("ip", "netns", "exec", hosts.ns(name))
            job.start(
                i, "sh", "-c", f"env > {folder}/env.$HOROVOD_RANK; exec {BIN}/launch-rank", prefix=prefix
            )
        same(job.end(), [0, 0], job.errors())
        for rank in range(4):
            env = read(f"{folder}/env.{rank}")
            has(env, f"HVD_RENDEZVOUS_ADDR={address}\n")  # never 127.0.0.1, not even on worker 0
            has(env, f"MASTER_ADDR={address}\n")
            # both hosts have one name, so their addresses are the names
            has(env, f"HOROVOD_HOSTNAME={hosts.address('ab'[rank // 2])}\n")
    finally:
        hosts.remove()


def test_a_wrong_token_is_refused(folder):
    job = Job(folder, 2, HVD_START_TIMEOUT="4")  # of worker 0, which is to be there when worker 1 asks
    other = secret(folder, "other", "ab" * 32)
    job.start(0, "true")
    begin = time.monotonic()
    same(job.start(1, "true", HVD_TOKEN_FILE=other, HVD_START_TIMEOUT="30").end(), 125)
    assert time.monotonic() - begin < 15, "it should not try again"
    has(job.log(1), "token")
    same(job.agents[0].end(), 124)
    has(job.log(0), "waited 4 s for worker 1 of 2")


def test_agents_of_another_version_of_the_job_are_refused(folder):
    job = Job(folder, 2)
    job.start(0, "true")
    for more, why in (
        ({"HVD_GENERATION": "7"}, "generation"),
        ({"HVD_SLOTS_PER_WORKER": "4"}, "worker 0 refused worker 1: worker 1 has 2 workers, 4 slots"),
    ):
        same(job.start(1, "true", **more).end(), 125)
        has(job.log(1), why)
    job.agents[0].signal(signal.SIGTERM)
    same(job.agents[0].end(), 143)


def test_strangers_do_not_disturb(folder):
    job = Job(folder, 2, 1)
    job.start(0, f"{BIN}/launch-rank")
    port = int(job.env["HVD_CHECKIN_PORT"])
    strangers = []

    def reach():
        try:
            strangers.append(socket.create_connection(("127.0.0.1", port), 1))
            return True
        except OSError:
            return False

    wait_until("the hub listens", reach)
    for i in range(20):
        assert reach()
        if i % 2:
            strangers[-1].sendall(os.urandom(i * 20))
    job.start(1, f"{BIN}/launch-rank")
    same(job.end(), [0, 0], job.errors())
    for s in strangers:
        s.close()


def check_random_failure(folder, seed):
    """Whether the bad rank was named. Other ranks blame it when it is dead, perhaps before its agent has reaped it."""
    rng = random.Random(seed)
    workers, slots = rng.choice([(2, 2), (3, 1), (4, 2), (1, 3)])
    bad = rng.randrange(workers * slots)
    number = rng.choice(
        [0, 0, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT, signal.SIGBUS]
    )
    code = 0 if number else 3
    end = f"kill -{int(number)} $$" if number else "exit 3"
    delay = rng.choice(["0", "0", "0.02", "0.1"])
    blames = rng.choice(
        [f"lost rank {bad} (host x): connection closed", f"rank {bad} on x was lost: closed"]
    )
    job = Job(folder, workers, slots).start_all(
        "sh",
        "-c",
        UP.format(folder)
        + f"while [ $(ls {folder}/up.* | wc -l) -lt {workers * slots} ]; do sleep 0.02; done; "
        f'if [ $HOROVOD_RANK = {bad} ]; then echo "the cause"; echo $$ > {folder}/new; mv {folder}/new {folder}/bad; '
        f"sleep {rng.choice(['0', '0.1'])}; {end}; fi; until [ -e {folder}/bad ]; do sleep 0.01; done; "
        f'while grep -q "^State:.[^Z]" /proc/$(cat {folder}/bad)/status 2>/dev/null; do sleep 0.01; done; '
        f': > {folder}/dead; sleep {delay}; echo "{blames}" >&2; exit 1',
    )
    wanted = 128 + number if number else 3
    codes = job.end()
    dead = f"{folder}/dead"
    if (
        codes != [wanted] * workers
        and os.path.exists(dead)
        and time.time() - os.stat(dead).st_mtime > VERDICT_BLAME_S
    ):
        return False  # an agent was held up for longer than a verdict waits for the rank that others name
    same(codes, [wanted] * workers, f"seed {seed}: {job.errors()}")
    text = job.logs_name(failure(bad, code, number))
    has(text, "the cause\n")
    for agent in job.agents.values():
        has(agent.err, f"rank {bad} on ")
    return True


def test_the_first_failure_is_named_everywhere(folder):
    print(f"# SEED={SEED}")
    for i in range(8):
        for attempt in range(5):
            sub = f"{folder}/{i}.{attempt}"
            os.mkdir(sub)
            if check_random_failure(sub, SEED + i):
                break
        else:
            raise AssertionError(f"seed {SEED + i}: five agents held up")


def test_a_failing_job_ends_at_once(folder):
    """Within a second where the processors are free; a wait for any grace or timeout takes 5."""
    job = Job(folder, 3, 2).start_all("sh", "-c", UP.format(folder) + "exec sleep 600")
    job.ranks_up(6)
    # its shell may not have become sleep yet
    ranks = wait_until("the ranks of worker 1 sleep", lambda: children(job.agents[1].pid, "sleep"))
    begin = time.monotonic()
    os.kill(ranks[0], signal.SIGKILL)
    same(job.end(), [137] * 3, job.errors())
    took = time.monotonic() - begin
    print(f"# {took * 1000:.0f} ms from a killed rank to the end of all agents")
    job.logs_name(failure("[23]", 0, 9))
    assert took < 4, took


def test_a_killed_agent_is_named_with_its_worker(folder):
    job = Job(folder, 3).start_all("sh", "-c", f"echo $$ > {folder}/pid.$HOROVOD_RANK; " + loop(folder))
    job.ranks_up(3)
    job.agents[2].signal(signal.SIGKILL)
    same(job.end(), [125, 125, 137], job.errors())
    text = job.logs_name(failure(-1, 125), [0, 1])
    has(text, "worker 2 (")
    has(text, ") was lost: its agent exited")
    wait_until("its rank is gone", lambda: not is_alive(int(read(f"{folder}/pid.2"))))


def test_a_killed_hub_is_named_by_all_others(folder):
    job = Job(folder, 3).start_all("sh", "-c", loop(folder))
    job.ranks_up(3)
    job.agents[0].signal(signal.SIGKILL)
    same(job.end(), [137, 125, 125], job.errors())
    for i in 1, 2:
        has(job.log(i), "host=worker-0 ")
        assert re.match(failure(-1, 125) + r'"worker 0 \(127.0.0.1\) was lost: ', job.log(i)), job.log(i)


def test_a_silent_worker_is_lost(folder):
    job = Job(folder, 3, HVD_PEER_TIMEOUT="5").start_all("sh", "-c", loop(folder))
    job.ranks_up(3)
    job.agents[1].signal(signal.SIGSTOP)
    same([job.agents[0].end(), job.agents[2].end()], [125, 125], job.errors())
    has(job.logs_name(failure(-1, 125), [0, 2]), "was lost: silent for 5 s")
    job.agents[1].signal(signal.SIGCONT)
    job.agents[1].end()


def threads(pid):
    return [read(f"/proc/{pid}/task/{t}/comm").strip() for t in os.listdir(f"/proc/{pid}/task")]


def test_a_rank_that_hangs_is_named_not_those_that_lost_it(folder):
    job = Job(folder, 3, HVD_PEER_TIMEOUT="5").start_all(f"{BIN}/launch-world", "1000000000")
    (rank,) = wait_until("rank 1 has begun", lambda: children(job.agents[1].pid, "launch-world"))
    wait_until("it is at work", lambda: "hvd-coordinator" in threads(rank))
    os.kill(rank, signal.SIGSTOP)
    same(job.end(), [125] * 3, job.errors())
    text = job.logs_name(failure(1, 0))
    has(text, "silent for 5 s (HVD_PEER_TIMEOUT), as rank ")
    has(job.agents[0].err, "rank 1 on ")
    assert not is_alive(rank), "it is left"


def test_a_silent_hub_is_lost(folder):
    job = Job(folder, 2, HVD_PEER_TIMEOUT="1").start_all("sh", "-c", loop(folder))
    job.ranks_up(2)
    job.agents[0].signal(signal.SIGSTOP)
    same(job.agents[1].end(), 125, job.errors())
    has(job.log(1), "worker 0 (127.0.0.1) was lost: silent for 1 s")
    job.agents[0].signal(signal.SIGKILL)
    job.agents[0].end()


def test_a_quiet_job_outlives_the_peer_timeout(folder):
    """In one of three turns: a busy machine may have an agent wait for longer than that for its own."""
    for timeout in 1, 3, 8:
        sub = f"{folder}/{timeout}"
        os.mkdir(sub)
        job = Job(sub, 2, HVD_PEER_TIMEOUT=str(timeout)).start_all("sleep", str(timeout * 2.5))
        codes = job.end()
        if codes == [0, 0]:
            return
    same(codes, [0, 0], job.errors())


def test_a_bad_command_of_any_worker_ends_all_workers(folder):
    bad = executable(f"{folder}/bad", "#!/no/such/interpreter\n")
    for index, command, code, why in (
        (1, "no-such-program", 127, "command no-such-program was not found in PATH"),
        (0, folder, 126, "is a folder"),
        (1, bad, 127, "its interpreter"),
    ):
        job = Job(folder, 3)
        for i in range(3):
            job.start(i, *([command] if i == index else ["sh", "-c", loop(folder)]))
        same(job.end(), [code] * 3, job.errors())
        has(job.logs_name(failure(-1, code)), why)


def test_a_python_that_ignores_pythonpath_is_warned_about(folder):
    for option, warns in (("-I", True), ("-uE", True), ("-u", False)):
        job = Job(folder, 1)
        job.start(0, sys.executable, option, "-c", "pass")
        same(job.end(), [0], job.errors())
        same("ignores PYTHONPATH" in job.agents[0].err, warns, option)


def test_sigterm_is_forwarded_and_named(folder):
    job = Job(folder, 2).start_all("bash", "-c", f'trap "echo saved; exit 9" TERM; {loop(folder)}')
    job.ranks_up(2)
    job.agents[1].signal(signal.SIGTERM)
    same(job.end(), [143] * 2, job.errors())
    has(job.agents[1].out, "[1]<stdout>:saved")
    has(job.logs_name(failure(-1, 0, signal.SIGTERM)), "worker 1 received SIGTERM")


def test_ranks_that_end_well_after_sigterm_are_a_success(folder):
    job = Job(folder, 2).start_all("bash", "-c", f'trap "exit 0" TERM; {loop(folder)}')
    job.ranks_up(2)
    for agent in job.agents.values():
        agent.signal(signal.SIGTERM)
    same(job.end(), [0, 0], job.errors())


def test_workers_end_together(folder):
    job = Job(folder, 2)
    job.start(0, "true")
    job.start(1, "sh", "-c", f"while [ ! -e {folder}/go ]; do sleep 0.02; done")
    wait_until("both run", lambda: all("ranks started" in a.err for a in job.agents.values()))
    try:
        job.agents[0].process.wait(0.5)
        raise AssertionError("worker 0 did not wait for worker 1")
    except subprocess.TimeoutExpired:
        pass
    open(f"{folder}/go", "w", encoding="ascii").close()
    same(job.end(), [0, 0], job.errors())


def test_fewer_ranks_than_slots(folder):
    for np in 3, 1:
        job = Job(folder, 2, 2, HVD_NP=str(np)).start_all(f"{BIN}/launch-rank")
        same(job.end(), [0, 0], job.errors())
        lines = sorted(line for a in job.agents.values() for line in a.out.splitlines())
        if np > 1:
            same(lines, met(np))


def test_pid_1_reaps_orphans_and_handles_signals(folder):
    job = Job(folder, 1)
    # ten orphans, adopted by PID 1, then no zombie may be left
    agent = job.start(
        0,
        "bash",
        "-c",
        "for i in 1 2 3 4 5 6 7 8 9 10; do (sh -c 'exec true' & exec true) ; done; "
        "for i in $(seq 100); do z=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); "
        "[ $z = 0 ] && break; sleep 0.05; done; echo zombies=$z pid1=$(tr '\\0' ' ' < /proc/1/cmdline); "
        + loop(folder),
        prefix=pid_namespace(),
    )
    job.ranks_up(1)
    wait_until("its line", lambda: "pid1=" in agent.out)
    has(agent.out, "zombies=0 pid1=" + AGENT)
    os.kill(wait_until("the agent", lambda: children(agent.pid))[0], signal.SIGTERM)
    same(agent.end(), 143)
    has(job.log(0), "worker 0 received SIGTERM")


def test_a_read_only_tmp_is_worked_around(folder):
    job = Job(folder, 1, TMPDIR="/proc/nowhere").start_all("sh", "-c", 'cat "$HVD_HOSTFILE"')
    same(job.end(), [0], job.errors())
    has(job.agents[0].out, "slots=1")


def test_wrong_settings_are_named(folder):
    for index, env, part in (
        (5, {}, "HVD_WORKER_INDEX"),
        (0, {"HVD_JOB_ID": ""}, "HVD_JOB_ID"),
        (0, {"HVD_TOKEN_FILE": "/no/such/token"}, "/no/such/token"),
        (0, {"HVD_PEER_TIMEOUT": "soon"}, "HVD_PEER_TIMEOUT"),
    ):
        agent = Job(folder, 2).start(index, "true", **env)
        same(agent.end(), 125)
        has(agent.err, part)


def test_command_line_mistakes_are_refused(folder):
    for words, part in (
        ([], "a command is missing"),
        (["walk"], "unknown command walk"),
        (["run"], "run needs a command"),
        (["run", "--fast", "x"], "unknown option of run: --fast"),
        (["install"], "install takes one"),
    ):
        program = Program([AGENT, *words], dict(os.environ), folder, "usage")
        same(program.end(), 2)
        has(program.err, part)
    same(subprocess.run([AGENT, "--help"], capture_output=True, check=False).returncode, 0)


if __name__ == "__main__":
    main(globals())
