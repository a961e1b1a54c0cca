#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long an elastic job stands still when a rank is killed: elastic.py BUILD --horovod VENV [--check]

From SIGKILL of a rank until every rank of a new world of the old size has committed a step, for 2 and 8
ranks:

    horovod         the original's horovodrun --min-np N; survivors stay, a new process takes the place
    torchrun        --max_restarts: all processes start again, from a checkpoint of the last step
    hvd             horovodrun --min-np N (ours), a new process takes the place
    hvd, a spare    the same, and a process that waits takes the place

All train tests/elastic/train.py (torchrun: elastic_torch.py), the same tiny steps on Debian's torch, a
commit after each. They run one after the other, so that the two processors are theirs; the rounds
alternate. Each job is killed --kills times at a random rank that is not 0, and as often at rank 0.

New processes import torch and horovod first. That time (from fork to the end of the imports, the slowest
new rank in the new world) is listed apart; "rest" is what is left, the median of the differences.

Where the peers run: in a network namespace with nothing but loopback, and a PID namespace, which ends
with this program, and all that it has started with it. The original blacklists the host of a failed
worker for good (with a cooldown the host comes back, but its slot is taken for filled), and kills the
other workers there. So each of its ranks has a host of its own, and there is a host more for each kill.
These hosts are names of 127.0.0.1 in a copy of /etc/hosts, so that it starts all by itself, without ssh.
(With 250 addresses on the loopback interface instead it took 20 s longer for each kill.) torchrun polls
its workers every 5 s by default; here every 0.1 s.

--check fails when a goal is missed: ours 5 times as fast as each peer without the imports, with a spare
10 times as fast as each peer, imports included. Root, or user namespaces.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../elastic"))
from check import check  # noqa: E402
from watch import Job, Late, kill, processes  # noqa: E402

PYTHON = "/usr/bin/python3"
TRAIN, TRAIN_TORCH = os.path.join(HERE, "../elastic/train.py"), os.path.join(HERE, "elastic_torch.py")
OUT = os.path.normpath(os.path.join(HERE, "../../build/bench"))
INSIDE = "HVD_BENCH_ELASTIC_INSIDE"
DEADLINE_S, SETTLE_STEPS, STEPS, BATCH = 180, 20, 50, 24
SPARES = "--spares"  # of our horovodrun
WHO = ("another rank", "rank 0")
FRESH_GOAL, SPARE_GOAL = 5, 10
N_HOSTS = 200


class Peer:
    """command(folder, n, kills): words that start n ranks and append the options of the training."""

    def __init__(self, name, command, train, env, there, n_spares=0):
        self.name, self.command, self.train = name, command, train
        self.env, self.there, self.n_spares = env, there, n_spares

    def start(self, folder, n, kills):
        own = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD_", "HVD_"))}
        own.pop("PYTHONDONTWRITEBYTECODE", None)  # the imports of a user are compiled
        own = {**own, "OMP_NUM_THREADS": "1", **self.env}
        options = ["--records", os.path.join(folder, "records"), "--epochs", "1000000", "--pace", "0.01"]
        options += ["--steps", str(STEPS), "--batch", str(BATCH)]
        return Job([*self.command(folder, n, kills), *self.train, *options], folder, own)


def original(venv):
    def command(folder, n, kills):
        script = folder + ".hosts"
        with open(script, "w", encoding="ascii") as f:
            hosts = "".join(f"echo bench-{i}:1\n" for i in range(n + kills + 1))
            f.write("#!/bin/sh\n" + hosts)
        os.chmod(script, 0o755)
        run = [f"{venv}/bin/horovodrun", "--gloo", "--network-interfaces", "lo", "-np", str(n)]
        run += ["--min-np", str(n), "--max-np", str(n), "--host-discovery-script", script]
        return [*run, f"{venv}/bin/python"]

    env = {"PATH": f"{venv}/bin:{os.environ['PATH']}"}
    return Peer("horovod", command, [TRAIN], env, os.access(f"{venv}/bin/horovodrun", os.X_OK))


def torchrun():
    def command(folder, n, kills):
        # Debian's torch 1.13 on Python 3.11 fails without --redirects and --tee.
        run = [PYTHON, "-m", "torch.distributed.run", "--redirects", "1", "--tee", "1", "--standalone"]
        run += ["--monitor_interval", "0.1", "--max_restarts", str(kills + 1), "--nproc_per_node", str(n)]
        return [*run, TRAIN_TORCH, "--checkpoint", folder + ".checkpoint"]

    return Peer("torchrun", command, [], {}, True)


def ours(build, n_spares):
    build = os.path.abspath(build)
    spares = [SPARES, str(n_spares)] if n_spares else []

    def command(folder, n, kills):
        run = [f"{build}/bin/horovodrun", "-np", str(n), "--min-np", str(n), "--max-np", str(n)]
        return [*run, *spares, "-H", f"localhost:{n + n_spares}", PYTHON]

    there = os.access(f"{build}/bin/horovodrun", os.X_OK) and os.access(f"{build}/bin/hvd-agent", os.X_OK)
    if there and n_spares:
        usage = subprocess.run(
            [f"{build}/bin/horovodrun", "--help"], capture_output=True, text=True, check=False
        )
        there = SPARES in usage.stdout
    name = "hvd, a spare" if n_spares else "hvd"
    return Peer(name, command, [TRAIN], {"PYTHONPATH": f"{build}/python"}, there, n_spares)


def victim(job, world, who, chance):
    """(rank, pid)"""
    rank = 0 if who == "rank 0" else chance.randrange(1, job.sizes[world])
    return rank, job.processes[job.members[world][rank]]["pid"]


def recovered(job, old, n):
    """The first world of n ranks after the old one of which all have committed a step; 0: none yet."""
    later = (w for w in sorted(job.sizes) if w > old and job.sizes[w] == n)
    return next((w for w in later if job.has_saved(w, 1)), 0)


def has_spares(job, n_spares):
    """Whether so many processes have finished their imports and are in no world."""
    members = {name for ranks in job.members.values() for name in ranks.values()}
    alive = set(job.ranks())
    idle = [p for name, p in job.processes.items() if name not in members and p["pid"] in alive]
    return len(idle) >= n_spares


def kill_one(job, peer, n, who, chance):
    """(seconds until all ranks had a step, seconds of the slowest imports)"""
    world = job.last_world()
    job.wait("steps before the kill", lambda: job.has_saved(world, SETTLE_STEPS), DEADLINE_S)
    job.wait(f"{peer.n_spares} spares", lambda: has_spares(job, peer.n_spares), DEADLINE_S)
    _, pid = victim(job, world, who, chance)
    killed = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    new = job.wait(f"a step after the kill of {who}", lambda: recovered(job, world, n), DEADLINE_S)
    members = [job.processes[name] for name in job.members[new].values()]
    imports = [p["imported"] - p["started"] for p in members if p["started"] > killed]
    return (job.first_step_ns(new) - killed) / 1e9, max(imports, default=0) / 1e9


def step_s(job):
    """The median time of a committed step on a rank."""
    times = [t for of in job.saves.values() for t in of.values()]
    return statistics.median(b - a for of in times for a, b in zip(of, of[1:])) / 1e9


def check_epochs(job):
    """[what is wrong] with the epochs that the last world has finished; the job itself does not end."""
    world = job.last_world()
    saved = {name: line[3] for name, line in job.lines if line[0] == "save" and line[2] == world}
    epochs = min(saved.values()) // STEPS
    end = ["end", 0, epochs, epochs * STEPS, STEPS * BATCH, ""]
    return check([*job.lines, ("bench", end)])


def measure(peer, n, kills, folder, chance):
    """{who: [(total, imports)]} of one job; raises Late with the end of its output."""
    job = peer.start(folder, n, 2 * kills)
    took = {who: [] for who in WHO}
    try:
        job.wait("the first steps", lambda: recovered(job, 0, n), DEADLINE_S)
        for _ in range(kills):
            for who in WHO:
                took[who].append(kill_one(job, peer, n, who, chance))
        print(f"# {peer.name}, {n} ranks: a step {step_s(job) * 1e3:.1f} ms; {took}", file=sys.stderr)
        wrong = check_epochs(job)
        if wrong:
            raise Late(f"the record is wrong: {wrong[:3]}")
    except Late as e:
        print(f"# {peer.name}, {n} ranks: {e}\n{job.tail()}", file=sys.stderr)
        took["failed"] = [str(e)]
    finally:
        job.end()
        end_others()
    return took


def end_others():
    """Kills all that is left in this PID namespace, whose first process this is."""
    if os.getpid() != 1:
        raise RuntimeError("not the first process of a PID namespace")
    while [pid for pid, argv in processes() if pid != 1 and argv[0]]:
        for pid, _ in processes():
            if pid != 1:
                kill(pid)
        reap()


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    time.sleep(0.01)


def collect(peers, counts, rounds, kills, folder, seed):
    """{n: {peer: {who: [(total, imports)]}}}"""
    found, chance = {}, random.Random(seed)
    for turn in range(rounds):
        for n in counts:
            for peer in peers:
                own = os.path.join(folder, f"{peer.name.replace(', ', '-').replace(' ', '-')}-{n}-{turn}")
                for who, values in measure(peer, n, kills, own, chance).items():
                    found.setdefault(n, {}).setdefault(peer.name, {}).setdefault(who, []).extend(values)
    return found


def medians(values):
    """(total, imports, rest), in s"""
    rows = [(total, imports, total - imports) for total, imports in values]
    return tuple(statistics.median(column) for column in zip(*rows))


def render(found):
    """Lines of a Markdown table for each number of ranks."""
    head = ["killed", "peer", "median, s", "fastest", "slowest", "imports", "rest", "kills"]
    ratios = ["of hvd", "of hvd's rest", "of a spare"]
    for n, peers in found.items():
        yield from ("", f"**{n} ranks**", "", "| " + " | ".join(head + ratios) + " |")
        yield "|---|---|" + "---:|" * (len(head) + len(ratios) - 2)
        for who in WHO:
            own = {name: medians(of[who]) for name, of in peers.items() if of.get(who)}
            for name, (total, imports, rest) in own.items():
                totals = [t for t, _ in peers[name][who]]
                cells = [f"{x:.2f}" for x in (total, min(totals), max(totals), imports, rest)]
                times = (
                    [f"{total / own['hvd'][0]:.1f}", f"{rest / own['hvd'][2]:.1f}"]
                    if "hvd" in own
                    else ["-", "-"]
                )
                spare = own.get("hvd, a spare")
                times += [f"{total / spare[0]:.1f}" if spare else "-"]
                yield "| " + " | ".join([who, name, *cells, str(len(totals)), *times]) + " |"
        for name, of in peers.items():
            for text in of.get("failed", ()):
                yield f"\n{name}: a job failed: {text}"


def missed(found):
    for n, peers in found.items():
        for who in WHO:
            own = {name: medians(of[who]) for name, of in peers.items() if of.get(who)}
            for name in ("horovod", "torchrun"):
                for mine, goal, column in (("hvd", FRESH_GOAL, 2), ("hvd, a spare", SPARE_GOAL, 0)):
                    if name not in own or mine not in own:
                        yield f"{n} ranks, {who}: {name} or {mine} was not measured"
                    elif own[name][column] < goal * own[mine][column]:
                        times = own[name][column] / own[mine][column]
                        yield f"{n} ranks, {who}: {mine} is {times:.1f} times as fast as {name}, not {goal}"


def enter():
    """Runs this program again as the first process of namespaces of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    with open("/etc/hosts", encoding="utf-8", errors="replace") as f:
        usual = f.read()
    with tempfile.NamedTemporaryFile("w", prefix="hvd-bench-hosts-", delete=False, encoding="utf-8") as f:
        f.write(usual + "\n127.0.0.1 " + " ".join(f"bench-{i}" for i in range(N_HOSTS)) + "\n")
    hosts = f"mount --bind {f.name} /etc/hosts && rm {f.name}"
    shell = f'ip link set lo up && {hosts} && exec "$0" "$@"'
    own = [sys.executable, os.path.abspath(__file__), *sys.argv[1:]]
    command = ["unshare", *user, "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    os.environ[INSIDE] = "1"
    os.execvp("unshare", [*command, "sh", "-c", shell, *own])


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", help="holds bin/ and python/ (build/plain)")
    parser.add_argument("--horovod", metavar="VENV", required=True, help="has the original Horovod")
    parser.add_argument("--names", help="peers to run, with semicolons (default: all)")
    parser.add_argument("--ranks", default="2,8")
    parser.add_argument("--rounds", type=int, default=2, help="jobs of each peer and size")
    parser.add_argument("--kills", type=int, default=2, help="of rank 0, and of another rank, in each job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", metavar="DIR", default=OUT)
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    return parser.parse_args()


def main():
    args = parse_args()
    if os.environ.get(INSIDE) is None:
        enter()
    peers = [original(args.horovod), torchrun(), ours(args.build, 0), ours(args.build, 1)]
    if args.names:
        peers = [peer for peer in peers if peer.name in args.names.split(";")]
    for peer in peers:
        if not peer.there:
            print(f"# left out: {peer.name}: no horovodrun, or it has no {SPARES}", file=sys.stderr)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="hvd-bench-elastic-") as folder:
        counts = [int(n) for n in args.ranks.split(",")]
        here = [peer for peer in peers if peer.there]
        found = collect(here, counts, args.rounds, args.kills, folder, args.seed)
    os.makedirs(args.out, exist_ok=True)
    text = (
        "\n".join([f"SIGKILL of a rank until all have a step; load average {load:.1f}", *render(found)])
        + "\n"
    )
    with open(os.path.join(args.out, "elastic.json"), "w", encoding="utf-8") as f:
        json.dump(found, f, indent=1)
    with open(os.path.join(args.out, "elastic.md"), "w", encoding="utf-8") as f:
        f.write(text)
    print(text, end="")
    goals = list(missed(found)) if args.check else []
    for goal in goals:
        print(f"missed: {goal}")
    sys.exit(bool(goals))


if __name__ == "__main__":
    main()
