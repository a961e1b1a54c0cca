# SPDX-License-Identifier: Apache-2.0
"""What chaos.py does to a job on any platform: what it strikes, when the size changes, and what is spared.

A platform is a Driver (chaos_local.py, chaos_hosts.py, chaos_slurm.py, chaos_kube.py). It lists victims of
several kinds: ranks, agents, pods, nodes. With a victim some processes end. The Killer chooses a kind and
a victim of it by the seed, and leaves these out:

 - those that end the last process which has a copy of the state. The job would rightly begin again. A copy
   has who was in a world, lives, is no process of an earlier victim, and stays when the size changes.
 - any, while two strikes have no commit after them. The third failure without a commit rightly ends a job.
 - any, while a new size takes longer than --patience, until a world has that size.
"""

import collections
import os
import random
import shutil
import time
from typing import Callable, NamedTuple

from watch import kill

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../.."))
# of horovodrun. Slots whose processes are killed again and again are soon used again.
BOUNDS = ("-np", "2", "--min-np", "1", "--max-np", "4", "--blacklist-cooldown-range", "1", "5")
AFTER_NS = 1_000_000_000  # a commit so much later is one of the world after the strike
UNANSWERED = 2
FOR_EVER = float("inf")


class Victim(NamedTuple):
    name: str
    takes: frozenset  # names of the records of the processes that end with it
    strike: Callable
    returns: bool = False  # these processes may live on, and be in a later world


class Driver:
    """A platform on which train.py runs. args: of chaos.py; folder: all processes of a job can write there."""

    weights = {"rank": 1}  # kind of victim: how often it is chosen
    defaults = {}  # of the options
    can_scale = True
    hands_over = False  # a size may replace all hosts: the state goes to the new ones

    def __init__(self, args, folder):
        self.args, self.folder, self.job = args, folder, None
        self.random = random.Random(args.seed)

    def begin(self):
        """Called before the first job."""

    def start(self, name, *options):
        """A watch.Followed with the record in folder/name: train.py with these options and the first size."""
        raise NotImplementedError

    def train(self, own, *options, scripts=HERE):
        """Words behind the interpreter."""
        given = ["--steps", str(self.args.steps), "--batch", str(self.args.batch), *options]
        return [os.path.join(scripts, "train.py"), "--records", os.path.join(own, "records"), *given]

    def install(self):
        """Copies the installed tree (make stage): a build meanwhile would end the processes that map it."""
        stage = os.path.join(self.folder, "stage")
        build = os.path.join(ROOT, os.environ.get("BUILD", "build"))
        shutil.copytree(os.path.join(build, "stage"), stage, symlinks=True)
        return stage

    def victims(self, kind):
        """[Victim] of self.job, in an order that does not depend on chance."""
        return self.ranks() if kind == "rank" else []

    def ranks(self):
        return [
            Victim(f"process {pid}", frozenset([name] if name else []), lambda pid=pid: kill(pid))
            for pid, name in sorted(self.job.writers().items())
        ]

    def scale(self, n):
        raise NotImplementedError

    def stays(self, name, n):
        """Whether a process, by the name of its record, has a place in a job of size n."""
        return True

    def can_scale_now(self):
        return True

    def tick(self):
        """Called all the time: brings back what was struck and does not come back by itself."""

    def heal(self):
        """Brings all of it back, and waits for that."""

    def end(self):
        """Called after the last job, also when something failed."""

    def names_on(self, host):
        """Records of the living processes of a host."""
        names = filter(None, self.job.writers().values())
        return frozenset(n for n in names if self.job.processes.get(n, {}).get("host") == host)


def write_hosts(path, lines):
    """Atomically: a discovery script prints the file meanwhile."""
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write("".join(line + "\n" for line in lines))
    os.rename(path + ".new", path)


class Scaler:
    """Changes the size when a world of the last one has trained, and the time of --hold is over."""

    def __init__(self, driver, args):
        self.driver, self.args, self.job = driver, args, driver.job
        self.place, self.n_changes, self.changed = 0, 0, None  # the first size is there already
        self.reached = None
        self.took = []  # [(size, seconds)]

    def target(self):
        return self.args.scale[self.place] if self.args.scale else None

    def is_late(self):
        return (
            self.changed is not None
            and self.reached is None
            and time.monotonic() > self.changed + self.args.patience
        )

    def step(self, holders):
        """holders(): names of the processes that have a copy of the state."""
        world = self.job.last_world()
        if not self.args.scale or not self.job.has_saved(world, self.args.settle):
            return
        if self.reached is None and self.job.sizes[world] == self.target():
            self.reached = time.monotonic()
            if self.changed is not None:
                took = self.job.first_step_ns(world) / 1e9 - self.changed  # it may be there already
                self.took.append((self.target(), max(0.0, took)))
        if self.reached is None or time.monotonic() < self.reached + self.args.hold:
            return
        if not self.driver.can_scale_now():
            return
        place = (self.place + 1) % len(self.args.scale)
        size = self.args.scale[place]
        if not self.driver.hands_over and not any(self.driver.stays(name, size) for name in holders()):
            return  # it would shrink to processes that are new
        self.place, self.reached = place, None
        self.n_changes, self.changed = self.n_changes + 1, time.monotonic()
        self.driver.scale(self.target())


class Killer:
    """Strikes about every so many seconds; 0: never."""

    def __init__(self, driver, scaler, args, log):
        self.driver, self.scaler, self.args, self.job = driver, scaler, args, driver.job
        self.log, self.random, self.began = log, driver.random, time.monotonic()
        self.struck = collections.Counter()  # by kind
        self.n_of_rank_0 = 0
        self.gone = {}  # name of a process of a victim: the worlds up to this one do not count
        self.unanswered = []  # when, in ns
        self._plan()

    def _plan(self):
        self.next = time.monotonic() + self.args.every * self.random.uniform(0.5, 1.5)

    def holders(self):
        last = {}
        for world, ranks in self.job.members.items():
            for name in ranks.values():
                last[name] = max(last.get(name, 0), world)
        size = self.scaler.target()
        return {
            name
            for name in self.job.writers().values()
            if last.get(name, 0) > self.gone.get(name, 0)
            and (size is None or self.driver.stays(name, size))
        }

    def choose(self):
        """(kind, Victim); None: none may be struck now."""
        holders, kinds = self.holders(), dict(self.driver.weights)
        while kinds:
            (kind,) = self.random.choices(list(kinds), list(kinds.values()))
            del kinds[kind]
            victims = [v for v in self.driver.victims(kind) if holders - v.takes]
            if victims:
                return kind, self.random.choice(victims)
        return None

    def step(self):
        if not self.args.every or time.monotonic() < self.next or self.scaler.is_late():
            return
        self.unanswered = [t for t in self.unanswered if self.job.last_save_ns < t + AFTER_NS]
        if len(self.unanswered) >= UNANSWERED:
            return
        chosen = self.choose()
        if chosen:
            self.strike(*chosen)
            self._plan()

    def strike(self, kind, victim):
        world = self.job.last_world()
        ranks = self.job.members.get(world, {})
        hit = [rank for rank, name in ranks.items() if name in victim.takes]
        at = time.monotonic() - self.began
        of = f"ranks {sorted(hit)} of {self.job.sizes[world]}"
        print(f"{at:7.2f} {kind}: {victim.name}; {of}", file=self.log, flush=True)
        self.struck[kind] += 1
        self.n_of_rank_0 += 0 in hit
        if hit:
            self.unanswered.append(time.monotonic_ns())
        for name in victim.takes:
            self.gone[name] = world if victim.returns else FOR_EVER
        victim.strike()
