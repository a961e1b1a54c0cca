# SPDX-License-Identifier: Apache-2.0
"""Processes of an elastic job, whose launcher is tests/fakes/elastic_leader.c: losses, new ranks, worlds that
break, and how much a commit costs."""

import queue
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from job import BUILD, DEBIAN_PYTHON, RANKS, environment, start

PATIENCE = 60


class Lines:
    """The lines of a process, read by a thread."""

    def __init__(self, process):
        self.process, self.seen, self._queue = process, [], queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._queue.put(line.strip())
        self._queue.put(None)

    def next(self, prefix):
        """The words of the next line after this prefix; others are kept in `seen`."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                line = self._queue.get(timeout=max(0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line {prefix!r}: {self.seen[-30:]}") from None
            if line is None:
                raise AssertionError(f"ended without a line {prefix!r}: {self.seen[-30:]}")
            self.seen.append(line)
            if line.startswith(prefix):
                return line[len(prefix) :].split()

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()


class Job:
    def __init__(self, directory):
        self.directory = directory
        self.token = Path(directory) / "token"
        self.members = {}
        argv = [BUILD / "plain" / "bin" / "elastic-leader", self.token]
        self.leader = Lines(start(argv, environment(), stdin=subprocess.PIPE))
        (self.name,) = self.leader.next("name ")
        self.generation = 0

    def start(self, slot, incarnation=1, script="elastic_member.py", host="testhost", **extra):
        place = dict.fromkeys(("RANK", "LOCAL_RANK", "CROSS_RANK"), "0")
        place.update(dict.fromkeys(("SIZE", "LOCAL_SIZE", "CROSS_SIZE"), "1"))
        env = environment(**{f"HOROVOD_{name}": value for name, value in place.items()}, **extra)
        env.update(HVD_JOB_ID="unit/test", HVD_TOKEN_FILE=str(self.token), HOROVOD_ELASTIC="1")
        env.update(HVD_ELASTIC=f"{self.name}:{slot}.{incarnation}", HOROVOD_HOSTNAME=host)
        process = start([DEBIAN_PYTHON, RANKS / script], env, stdin=subprocess.PIPE)
        self.members[slot] = Lines(process)

    def ready(self, *expected):
        """These processes, as "SLOT INCARNATION GENERATION", report ready, in any order."""
        got = sorted(" ".join(self.leader.next("ready ")) for _ in expected)
        assert got == sorted(expected), (got, self.leader.seen)

    def form(self, generation, *slots):
        self.generation = generation
        self.leader.send("form", generation, *slots)

    def each(self, slots, prefix):
        return [self.members[slot].next("said " + prefix) for slot in slots]

    def go(self, slots, *words):
        for slot in slots:
            self.members[slot].send(*words)

    def close(self):
        for lines in [self.leader, *self.members.values()]:
            lines.process.kill()
            lines.process.wait()
            lines.process.stdin.close()
            lines.process.stdout.close()


class Elastic(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.job = Job(self.directory.name)
        self.addCleanup(self.job.close)

    def begin(self, *slots):
        """The first world; returns the job."""
        for slot in slots:
            self.job.start(slot)
        self.job.ready(*(f"{slot} 1 0" for slot in slots))
        self.job.form(1, *slots)
        n = str(len(slots))
        self.assertEqual(self.job.each(slots, "init"), [[str(r), n] for r in range(len(slots))])
        self.job.each(slots, "start")
        return self.job

    def steps(self, slots, n, step):
        """All do n steps and are at this one, with the right total and the same weights."""
        self.job.go(slots, "go", n)
        said = self.job.each(slots, "at")
        total = str(float(step * (step + 1) // 2))
        for rank, words in enumerate(said):
            self.assertEqual(words[:4], [str(rank), str(len(slots)), str(step), total], said)
        self.assertEqual(len({words[4] for words in said}), 1, said)

    def starts(self, slots, step, synced, sets):
        said = self.job.each(slots, "start")
        n = str(len(slots))
        self.assertEqual(said, [[str(r), n, str(step), str(synced[r]), sets] for r in range(len(slots))])

    def test_a_job_shrinks_and_grows(self):
        job = self.begin(0, 1, 2)
        self.steps((0, 1, 2), 3, 3)
        self.assertEqual(job.leader.next("commit "), ["0", "1"])

        # A rank is lost: the survivors continue from the last commit.
        job.members[1].process.kill()
        self.assertEqual(job.leader.next("gone "), ["1"])
        job.go((0, 2), "alone")
        job.ready("0 1 1", "2 1 1")
        job.form(2, 0, 2)
        self.starts((0, 2), 3, (2, 2), "2,-")
        self.steps((0, 2), 3, 6)

        # A replacement: it is announced, and joins with the state of the survivors.
        job.start(1, incarnation=2)
        job.ready("1 2 0")
        job.leader.send("notify", 1, 2)  # of an earlier world
        self.steps((0, 2), 1, 7)
        job.leader.send("notify", 2, 2)
        self.interrupt((0, 2), ("0 1 2", "2 1 2"))
        job.form(3, 0, 2, 1)
        step = self.position((0, 2, 1), (3, 3, 1), "2,2")
        self.steps((0, 2, 1), 2, step + 2)

        # Ranks are removed, and none is new: all sync nevertheless.
        job.leader.send("notify", 3, 1)
        self.interrupt((0, 2, 1), ("0 1 3", "2 1 3", "1 2 3"))
        job.form(4, 2, 0)
        self.position((2, 0), (4, 4), "2,-")
        # What waited meanwhile needs the state, although it is no new process. Rank 0 waits without a commit.
        job.leader.send("notify", 4, 2)
        job.go((2,), "wait", 1)
        job.go((0,), "go", 1)
        job.ready("0 1 4", "2 1 4")
        job.form(5, 1, 2, 0)
        step = self.position((1, 2, 0), (2, 5, 5), "2,2")
        self.steps((1, 2, 0), 1, step + 1)
        job.go((0, 1, 2), "end")
        self.assertEqual(job.each((0, 1, 2), "ended"), [["result"]] * 3)
        self.assertEqual([job.members[s].process.wait(PATIENCE) for s in (0, 1, 2)], [0] * 3)

    def interrupt(self, slots, ready):
        """They step until what was announced has interrupted them."""
        self.job.go(slots, "go", 1000000)
        self.job.ready(*ready)

    def position(self, slots, synced, sets):
        """All start at one step, which is returned."""
        said = self.job.each(slots, "start")
        step = int(said[-1][2])
        n = str(len(slots))
        self.assertEqual(said, [[str(r), n, str(step), str(synced[r]), sets] for r in range(len(slots))])
        return step

    def test_worlds_that_the_launcher_breaks_are_not_failures_of_the_ranks(self):
        job = self.begin(0, 1)
        self.steps((0, 1), 2, 2)
        for generation in range(1, 6):
            job.go((0,), "alone")
            job.go((1,), "go", 1)
            job.leader.send("break", generation, f"slot {generation} was replaced")
            job.ready(f"0 1 {generation}", f"1 1 {generation}")
            job.form(generation + 1, 0, 1)
            self.starts((0, 1), 2, (generation + 1, generation + 1), "2,-")
        seen = "\n".join(job.members[1].seen)
        self.assertIn("hvd.elastic.run: slot 5 was replaced; restoring the last commit", seen)
        self.steps((0, 1), 1, 3)

    def test_a_rank_that_raises_is_not_waited_for(self):
        """Its end takes long; the launcher and the other rank know it at once."""
        job = self.job
        job.start(0)
        job.start(1, HVD_TEST_EXIT_S="600")
        job.ready("0 1 0", "1 1 0")
        job.form(1, 0, 1)
        job.each((0, 1), "start")
        job.go((0,), "alone")
        job.go((1,), "raise")
        ending = " ".join(job.leader.next("ending "))
        self.assertRegex(ending, r"^1 1 ended: ValueError: a bad sample \(elastic_member.py:\d+\)$")
        job.ready("0 1 1")
        job.form(2, 0)
        self.starts((0,), 0, (2,), "-,-")
        self.steps((0,), 1, 1)
        self.assertIsNone(job.members[1].process.poll())

    def test_ranks_that_disagree_end_the_job(self):
        job = self.begin(0, 1)
        for generation in (1, 2):
            job.go((0, 1), "differ")
            job.ready(f"0 1 {generation}", f"1 1 {generation}")
            job.form(generation + 1, 0, 1)
            self.starts((0, 1), 0, (generation + 1, generation + 1), "2,-")
        job.go((0, 1), "differ")
        # On a rank that first sees the other one leave the world has ended: it does not count that.
        until, gone = time.monotonic() + PATIENCE, []
        while not gone and time.monotonic() < until:
            gone = [slot for slot in (0, 1) if job.members[slot].process.poll() is not None]
            time.sleep(0.05)
        words = " ".join(*job.each(gone[:1], "raised"))
        self.assertIn("failed 3 times without a commit between; the last error: Mismatched", words)
        self.assertEqual(job.members[gone[0]].process.wait(PATIENCE), 1)

    def test_without_its_launcher_a_process_ends(self):
        job = self.begin(0, 1)
        job.go((0,), "alone")
        job.go((1,), "go", 1)
        job.leader.process.kill()
        for words in job.each((0, 1), "raised"):
            self.assertEqual(" ".join(words), "the launcher of this process has gone")
        self.assertEqual([job.members[s].process.wait(PATIENCE) for s in (0, 1)], [1, 1])


class Shards(unittest.TestCase):
    """Parts that each rank has for itself: on host h0 slot 0, and so on. A rank's copy is on the next one."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.job = Job(self.directory.name)
        self.addCleanup(self.job.close)

    def start(self, slot, incarnation=1, **extra):
        self.job.start(slot, incarnation, "elastic_shards.py", host=f"h{slot}", **extra)

    def begin(self, *slots, **extra):
        for slot in slots:
            self.start(slot, **extra)
        self.job.ready(*(f"{slot} 1 0" for slot in slots))
        self.job.form(1, *slots)
        self.starts(slots, 0, *([str(rank)] for rank in range(len(slots))))
        return self.job

    def starts(self, slots, step, *parts):
        """They start at this step with these parts, whose values are those of the step."""
        said = self.job.each(slots, "start")
        n = str(len(slots))
        expected = [[str(rank), n, str(step), *names, "right"] for rank, names in enumerate(parts)]
        self.assertEqual(said, expected)

    def steps(self, slots, n, step):
        self.job.go(slots, "go", n)
        self.assertEqual(self.job.each(slots, "at"), [[str(step), "right"]] * len(slots))

    def lose(self, generation, stay, *slots):
        """These slots are killed, and those that stay are ready for the next world."""
        for slot in slots:
            self.job.members[slot].process.kill()
        gone = [self.job.leader.next("gone ")[0] for _ in slots]
        self.assertEqual(sorted(gone), sorted(map(str, slots)))
        self.job.go(stay, "alone")
        self.job.ready(*(f"{slot} 1 {generation}" for slot in stay))

    def test_a_successor_gets_the_part_from_the_neighbour(self):
        job = self.begin(0, 1, 2)
        self.steps((0, 1, 2), 5, 5)
        self.lose(1, (0, 2), 1)
        self.start(1, 2)
        job.ready("1 2 0")
        job.form(2, 0, 2, 1)
        self.starts((0, 2, 1), 5, ["0"], ["2"], ["1"])
        self.steps((0, 2, 1), 3, 8)

    def test_survivors_take_the_part_and_give_it_back(self):
        job = self.begin(0, 1, 2)
        self.steps((0, 1, 2), 2, 2)
        self.lose(1, (0, 1), 2)
        job.form(2, 0, 1)
        self.starts((0, 1), 2, ["0", "2"], ["1"])
        # Lost again before a commit of this world but the first: its parts are on both.
        self.lose(2, (1,), 0)
        job.form(3, 1)
        self.starts((1,), 2, ["0", "1", "2"])
        self.steps((1,), 2, 4)
        self.start(2, 2)
        job.ready("2 2 0")
        job.leader.send("notify", 3, 2)
        job.go((1,), "go", 1000000)
        job.ready("1 1 3")
        job.form(4, 1, 2)
        said = job.each((1, 2), "start")
        self.assertEqual([words[3:] for words in said], [["0", "1", "right"], ["2", "right"]])

    def test_a_rank_leaves_at_a_commit(self):
        job = self.begin(0, 1, 2)
        job.leader.send("notify", 1, 1)
        job.go((0, 1, 2), "go", 1000000)
        job.ready("0 1 1", "1 1 1", "2 1 1")
        job.members[1].process.kill()
        self.assertEqual(job.leader.next("gone "), ["1"])
        job.form(2, 0, 2)
        said = job.each((0, 2), "start")
        self.assertEqual([words[3:] for words in said], [["0", "1", "right"], ["2", "right"]])
        self.assertEqual(said[0][2], said[1][2])

    def test_both_copies_are_lost(self):
        job = self.begin(0, 1, 2)
        self.steps((0, 1, 2), 2, 2)
        self.lose(1, (0,), 1, 2)
        self.start(1, 2)
        job.ready("1 2 0")
        job.form(2, 0, 1)
        for words in job.each((0, 1), "lost"):
            self.assertEqual(
                " ".join(words),
                "hvd.elastic: the state of 1 part is lost, because the ranks that had it and its copy have "
                "gone: part 1 (of rank 1 on h1, its copy on rank 2 on h2); continue from the last checkpoint",
            )
        # They load a checkpoint, here one of step 100, and train on.
        self.starts((0, 1), 100, ["0"], ["1"])
        self.steps((0, 1), 2, 102)

    def test_the_copy_of_the_last_commit_has_not_arrived(self):
        """Rank 1 does not copy the part of its last commit, and is lost: the commit before it counts."""
        job = self.begin(0, 1, 2)
        self.steps((0, 1, 2), 3, 3)
        self.job.go((0, 1, 2), "hold")
        self.job.each((0, 1, 2), "held")
        self.lose(1, (0, 2), 1)
        job.form(2, 0, 2)
        self.starts((0, 2), 3, ["0", "1"], ["2"])
        self.steps((0, 2), 2, 5)
