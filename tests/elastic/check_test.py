#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What check.py accepts and finds, on records made here, and how record.py writes and reads them."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import record
from check import check, summary

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check.py")


class Story:
    """Lines of a job with one file per process, whose ranks take every size-th sample of a step."""

    def __init__(self, batch=4):
        self.batch, self.lines, self.world = batch, [], 0
        self.base = (0, 0)

    def add(self, name, *line):
        self.lines.append((name, [line[0], len(self.lines), *line[1:]]))

    def begin(self, names, epoch, step):
        """A new world of these processes, rank 0's first."""
        self.world += 10
        self.names = names
        for rank, name in enumerate(names):
            self.add(name, "world", self.world, len(names), rank, epoch, step)

    def attempt(self, epoch, step, samples, by=None):
        """The ranks write what they will use; by: only these processes."""
        for rank, name in enumerate(self.names):
            if by is None or name in by:
                self.add(name, "try", self.world, epoch, step, rank, samples[rank :: len(self.names)])

    def save(self, step, by=None):
        for name in self.names if by is None else by:
            self.add(name, "save", self.world, step)

    def run(self, epoch, step, samples):
        self.attempt(epoch, step, samples)
        self.save(step)

    def end(self, epochs, step, n_samples):
        self.add(self.names[0], "end", epochs, step, n_samples, "abcd")


FIRST, SECOND = [3, 1, 0, 2], [5, 4, 7, 6]  # the samples of two steps that are an epoch


def plain():
    story = Story()
    story.begin("ab", 0, 0)
    story.run(0, 1, FIRST)
    story.run(0, 2, SECOND)
    return story


def broken(saved_by, base):
    """A rank is killed in step 2. saved_by: finished it. base: the step after which a and c continue."""
    story = Story()
    story.begin("ab", 0, 0)
    story.run(0, 1, FIRST)
    story.attempt(0, 2, SECOND)
    story.save(2, by=saved_by)
    story.begin("ac", 0, base)
    return story


class Right(unittest.TestCase):
    """Records that are accepted."""

    def accept(self, story):
        self.assertEqual(check(story.lines), [])

    def test_a_run_without_faults(self):
        story = plain()
        story.run(1, 3, SECOND)
        story.run(1, 4, FIRST)
        story.end(2, 4, 8)
        self.accept(story)

    def test_a_step_that_nobody_finished_is_tried_again(self):
        story = broken(saved_by="", base=1)
        story.run(0, 2, SECOND)
        story.end(1, 2, 8)
        self.accept(story)

    def test_a_step_that_rank_0_finished_counts_with_the_samples_of_the_killed_rank(self):
        story = broken(saved_by="a", base=2)
        story.end(1, 2, 8)
        self.accept(story)

    def test_a_step_that_is_undone_because_rank_0_had_not_finished_it(self):
        story = broken(saved_by="b", base=1)
        story.run(0, 2, SECOND)
        story.end(1, 2, 8)
        self.accept(story)

    def test_a_step_that_is_undone_may_be_tried_again_with_other_samples(self):
        story = Story()
        story.begin("ab", 0, 0)
        story.run(0, 1, SECOND)
        story.begin("cd", 0, 0)
        story.run(0, 1, FIRST)
        story.run(0, 2, SECOND)
        story.end(1, 2, 8)
        self.accept(story)

    def test_a_job_that_starts_anew_undoes_all_worlds_before(self):
        story = Story()
        story.begin("ab", 0, 0)
        story.run(0, 1, FIRST)
        story.begin("ac", 0, 1)
        story.run(0, 2, SECOND)
        story.begin("de", 0, 0)
        story.run(0, 1, FIRST)
        story.run(0, 2, SECOND)
        story.end(1, 2, 8)
        self.accept(story)

    def test_an_attempt_that_not_all_ranks_began(self):
        story = Story()
        story.begin("ab", 0, 0)
        story.attempt(0, 1, FIRST, by="a")
        story.begin("ac", 0, 0)
        story.run(0, 1, FIRST)
        story.run(0, 2, SECOND)
        story.end(1, 2, 8)
        self.accept(story)

    def test_worlds_without_a_step(self):
        story = broken(saved_by="a", base=2)
        story.begin("ad", 0, 2)
        story.begin("dae", 0, 2)
        story.end(1, 2, 8)
        self.accept(story)

    def test_sizes_that_change(self):
        story = Story()
        story.begin("ab", 0, 0)
        story.run(0, 1, FIRST)
        story.begin("abcd", 0, 1)
        story.run(0, 2, SECOND)
        story.begin("d", 1, 2)
        story.run(1, 3, [*FIRST, *SECOND])
        story.end(2, 3, 8)
        self.accept(story)

    def test_a_commit_of_several_steps(self):
        story = Story()
        story.begin("ab", 0, 0)
        story.attempt(0, 1, FIRST)
        story.attempt(0, 2, SECOND)
        story.save(2)
        story.end(1, 2, 8)
        self.accept(story)

    def test_a_process_that_died_before_it_wrote_its_world(self):
        story = Story()
        story.begin("a", 0, 0)
        story.lines = [(name, [*line[:3], 2, *line[4:]]) for name, line in story.lines]
        story.begin("ab", 0, 0)
        story.run(0, 1, [*FIRST, *SECOND])
        story.end(1, 1, 8)
        self.accept(story)


class Wrong(unittest.TestCase):
    """What is found."""

    def find(self, story, *texts):
        self.assertEqual(check(story.lines), list(texts))

    def test_lost_samples(self):
        story = Story()
        story.begin("ab", 0, 0)
        story.run(0, 1, FIRST)
        story.run(0, 2, SECOND[:2])
        story.end(1, 2, 8)
        self.find(story, "epoch 0: 2 of 8 samples are lost: 6, 7")

    def test_samples_used_twice_in_two_steps_and_in_one(self):
        story = plain()
        story.run(0, 3, [4, 4, 1])
        story.end(1, 3, 8)
        twice = "1 (steps 1, 3), 4 (steps 2, 3, 3)"
        self.find(story, f"epoch 0: 2 samples are used more than once: {twice}")

    def test_an_epoch_that_was_skipped(self):
        story = plain()
        story.end(2, 2, 8)
        self.find(story, "epoch 1: 8 of 8 samples are lost: 0, 1, 2, 3, 4, 5, 6, 7")

    def test_an_epoch_too_many(self):
        story = plain()
        story.run(1, 3, [*FIRST, *SECOND])
        story.end(1, 3, 8)
        self.find(story, "epoch 1: beyond the last one, 0")

    def test_a_sample_that_is_none(self):
        story = plain()
        story.end(1, 2, 7)
        self.find(story, "epoch 0: not samples of the data set: 7")

    def test_a_step_that_was_carried_over_without_a_commit(self):
        story = broken(saved_by="", base=2)
        story.end(1, 2, 8)
        self.find(story, "step 2 of world 10 is in the model, but no process has committed it")

    def test_a_step_that_was_skipped(self):
        story = broken(saved_by="", base=1)
        story.run(0, 3, SECOND)
        story.end(1, 3, 8)
        self.find(
            story,
            "step 2 of world 20: lines of ranks [], of 2 ranks",
        )

    def test_a_killed_rank_whose_samples_nobody_has(self):
        story = Story()
        story.begin("ab", 0, 0)
        story.run(0, 1, FIRST)
        story.attempt(0, 2, SECOND, by="a")
        story.save(2, by="a")
        story.end(1, 2, 8)
        self.find(
            story,
            "step 2 of world 10: lines of ranks [0], of 2 ranks",
            "epoch 0: 2 of 8 samples are lost: 4, 6",
        )

    def test_ranks_that_continue_from_different_steps(self):
        story = broken(saved_by="a", base=2)
        story.lines[-1][1][-1] = 1  # c
        story.end(1, 2, 8)
        found = check(story.lines)
        self.assertIn(
            "world 20: its ranks start it with different (size, epoch, step): [(2, 0, 1), (2, 0, 2)]", found
        )

    def test_two_processes_with_one_rank(self):
        story = plain()
        story.add("c", "world", story.world, 2, 1, 0, 0)
        story.end(1, 2, 8)
        self.find(story, "world 10 of 2 ranks: its processes are ranks [0, 1, 1]")

    def test_ranks_in_different_epochs(self):
        story = plain()
        story.lines[-3][1][3] = 1
        story.end(2, 2, 8)
        self.assertIn("step 2 of world 10: its ranks are in epochs [0, 1]", check(story.lines))

    def test_a_run_that_has_not_ended(self):
        self.find(plain(), "0 end lines, not 1: the training has not ended, or not once")

    def test_two_ends(self):
        story = plain()
        story.end(1, 2, 8)
        story.end(1, 2, 8)
        self.find(story, "2 end lines, not 1: the training has not ended, or not once")

    def test_a_beginning_that_is_missing(self):
        story = Story()
        story.begin("ab", 0, 1)
        story.run(0, 2, [*FIRST, *SECOND])
        story.end(1, 2, 8)
        self.find(story, "no world started from the beginning: steps 1 to 1 are in no world")


class Record(unittest.TestCase):
    """Writing and reading."""

    def test_a_later_world_has_a_larger_number(self):
        first = record.next_world(0)
        self.assertGreater(record.next_world(first), first)
        self.assertEqual(record.next_world(first + 10**15), first + 10**15 + 1)

    def test_lines_come_once_and_a_part_of_one_not_at_all(self):
        with tempfile.TemporaryDirectory() as folder:
            writer = record.Writer(folder, 7)
            reader = record.Reader(folder)
            writer.add("save", 10, 1)
            self.assertEqual([line[0] for _, line in reader.lines()], ["process", "save"])
            with open(os.path.join(folder, os.listdir(folder)[0]), "ab") as f:
                f.write(b'["save",1,10')
                f.flush()
                self.assertEqual(reader.lines(), [])
                f.write(b",2]\n")
            self.assertEqual([line for _, line in reader.lines()], [["save", 1, 10, 2]])

    def test_a_process_knows_when_it_was_started(self):
        with tempfile.TemporaryDirectory() as folder:
            record.Writer(folder, 7)
            ((_, line),) = record.Reader(folder).lines()
        self.assertEqual(line[2]["pid"], os.getpid())
        self.assertLess(line[2]["started"], line[1])

    def run_check(self, story):
        with tempfile.TemporaryDirectory() as folder:
            for name, line in story.lines:
                with open(os.path.join(folder, f"{name}.jsonl"), "a", encoding="ascii") as f:
                    f.write(json.dumps(line) + "\n")
            done = subprocess.run(
                [sys.executable, CHECK, folder], capture_output=True, text=True, timeout=60, check=False
            )
        return done.returncode, done.stdout.splitlines()

    def test_the_command(self):
        story = plain()
        status, lines = self.run_check(story)
        self.assertEqual(
            (status, lines[0]), (1, "check.py: 0 end lines, not 1: the training has not ended, or not once")
        )
        story.end(1, 2, 8)
        good = "check.py: 1 epochs, 2 steps of 2 tried, 1 worlds, 2 processes, 0 problems"
        self.assertEqual(self.run_check(story), (0, [good]))

    def test_the_command_without_a_record(self):
        done = subprocess.run(
            [sys.executable, CHECK, "/nonexistent"], capture_output=True, timeout=60, check=False
        )
        self.assertEqual((done.returncode, done.stderr), (1, b"check.py: /nonexistent has no records\n"))

    def test_steps_that_are_undone(self):
        story = broken(saved_by="a", base=1)
        story.run(0, 2, SECOND)
        story.begin("de", 0, 0)
        self.assertEqual([n for _, n in summary(story.lines)["undone"]], [1, 2])

    def test_the_summary(self):
        story = broken(saved_by="", base=1)
        story.run(0, 2, SECOND)
        story.end(1, 2, 8)
        self.assertEqual(
            summary(story.lines),
            {
                "worlds": 2,
                "sizes": [2, 2],
                "processes": 3,
                "tried": 3,
                "epochs": 1,
                "steps": 2,
                "undone": [],
                "digest": "abcd",
            },
        )


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, 0 skipped")
    sys.exit(1 if bad else 0)
