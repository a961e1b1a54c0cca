# SPDX-License-Identifier: Apache-2.0
"""hvd.guard: its files, and jobs whose ranks and agents are killed. Names of this host stand for several hosts."""

import os
import re
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

from job import DEBIAN_PYTHON, HOROVODRUN, RANKS, ROOT, STAGE, command, python

sys.path.append(str(STAGE / "python"))
from _hvd.guard import Files, Guard

HOSTS = "localhost:1,127.0.0.2:1,127.0.0.3:1"

# Before a program: die() kills the rank on 127.0.0.2 after step 27, once.
DIE = """
import os, signal, sys
def die(names):
    names["count"] = names.get("count", 0) + 1
    if sys.argv[1] and names["count"] == 27 and os.environ["HOROVOD_HOSTNAME"] == "127.0.0.2":
        try:
            os.mkdir(sys.argv[1] + "/died")
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Snapshots(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.files = Files(self.folder.name, "x")

    def write(self, step, content):
        view = self.files.begin(len(content))
        view[:] = content
        self.files.finish(view, step)

    def names(self):
        return sorted(os.listdir(self.folder.name))

    def test_the_two_newest_stay(self):
        self.assertEqual(self.files.whole(), [])
        for step in (4, 8, 12):
            self.write(step, b"%d" % step * 1000)
        self.assertEqual(self.names(), ["guard.x.12", "guard.x.8"])
        self.assertEqual(self.files.whole(), [12, 8])
        self.assertEqual(bytes(self.files.open(8)), b"8" * 1000)

    def test_another_size_in_the_same_memory(self):
        for step, size in ((1, 5000), (2, 5000), (3, 10), (4, 9000)):
            self.write(step, bytes([step]) * size)
            self.assertEqual(bytes(self.files.open(step)), bytes([step]) * size)
        self.assertEqual(self.files.whole(), [4, 3])

    def test_one_that_is_not_finished_does_not_count(self):
        self.write(4, b"four")
        self.write(8, b"eight")
        self.files.begin(5)[:] = b"twelv"
        self.assertEqual(self.files.whole(), [8])
        self.write(16, b"sixteen")
        self.assertEqual(self.names(), ["guard.x.16", "guard.x.8"])

    def test_files_that_have_changed_do_not_count(self):
        for step, at in ((1, 100), (2, 0), (3, 9), (4, 17), (5, 25)):
            self.write(step, bytes(1000))
            with open(self.files.path(step), "r+b") as file:
                file.seek(at)
                file.write(b"\x7f")
            self.assertEqual(self.files.whole(), [], (step, at))
        os.truncate(self.files.path(5), 10)
        self.assertEqual(self.files.whole(), [])

    def test_a_view_is_a_copy(self):
        self.write(4, b"four")
        self.files.open(4)[0] = 0
        self.assertEqual(bytes(self.files.open(4)), b"four")

    def test_other_files_stay(self):
        Files(self.folder.name, "y").begin(1)
        self.write(4, b"four")
        self.assertEqual(self.names(), ["guard.x.4", "guard.y.new"])
        self.assertEqual(self.files.steps(), [4])

    def test_memory_that_is_too_small(self):
        real = os.statvfs(self.folder.name)
        for free, fits in ((3_000_000, True), (1_500_000, False)):
            space = mock.Mock(f_bavail=free // real.f_frsize, f_frsize=real.f_frsize)
            with mock.patch("os.statvfs", return_value=space):
                if fits:
                    self.files.begin(1_000_000)
                    continue
                os.unlink(f"{self.folder.name}/guard.x.new")
                with self.assertRaisesRegex(
                    RuntimeError, "two snapshots of 1 MB do not fit into .* has 1 MB free"
                ):
                    self.files.begin(1_000_000)
        self.assertEqual(self.names(), [])


class Arguments(unittest.TestCase):
    def refused(self, error, text, *args):
        with self.assertRaisesRegex(error, text):
            Guard(*args)

    def test_refused(self):
        self.refused(ValueError, "every=0 is not a number of steps", {}, 0, "x")
        self.refused(ValueError, "name='a/b' has other characters", {}, 1, "a/b")
        self.refused(TypeError, "epoch, a int, has no state_dict", {"epoch": 3}, 1, "x")


class Jobs(unittest.TestCase):
    def run_job(self, *kills):
        """(steps at which rank 0 started, its model at the end, what was printed)"""
        with tempfile.TemporaryDirectory() as folder:
            words = ["-np", 3, "--min-np", 3, "-H", HOSTS, DEBIAN_PYTHON, RANKS / "guarded.py"]
            ended = command([HOROVODRUN, *words, folder, 20, *kills], timeout=300)
        self.assertEqual(ended.code, 0, ended)
        models = re.findall(r"ends with step 20 model (\w+)", ended.out)
        self.assertEqual((len(models), len(set(models))), (3, 1), ended)
        starts = [int(n) for n in re.findall(r"rank 0 of 3 on \S+ starts after step (\d+)", ended.out)]
        return starts, models[0], ended.out

    def test_killed_ranks_and_hosts(self):
        starts, undisturbed, _ = self.run_job()
        self.assertEqual(starts, [0])
        # A rank; a host with all it had; rank 0, before the next snapshot.
        starts, model, out = self.run_job("6:127.0.0.3:rank", "10:127.0.0.2:agent", "11:localhost:rank")
        self.assertEqual(starts, [0, 4, 8, 8])
        self.assertEqual(model, undisturbed)
        said = re.findall(r"hvd.guard: (.*)", out)
        self.assertEqual(said[0], "continues after step 4, from the memory of host localhost")
        self.assertEqual(
            said[1], "continues after step 8, from the memory of host localhost, sent to 127.0.0.2"
        )
        # The host without it has kept what was sent.
        self.assertEqual(said[2], "continues after step 8, from the memory of host localhost")

    def test_all_hosts_but_one(self):
        starts, _, out = self.run_job("10:127.0.0.2:agent", "10:127.0.0.3:agent", "10:localhost:rank")
        self.assertEqual(starts, [0, 8])
        self.assertIn("from the memory of host localhost, sent to 127.0.0.2, 127.0.0.3", out)

    def run_page(self, number, step, kill):
        """What a program of GUIDE.md prints at its end; kill: of 127.0.0.2, once, after this step."""
        text = (ROOT / "runtime/python/GUIDE.md").read_text().split("\n## State from neighbours\n")[1]
        text = text.split("\n## ")[0]
        programs = re.findall(r"(?:^    (?!horovodrun).*\n|^\n(?=    (?!horovodrun)))+", text, re.MULTILINE)
        program = textwrap.dedent(programs[number])
        counted = re.search(rf"^ *{re.escape(step)}.*\n", program, re.MULTILINE)[0]
        indent = counted[: len(counted) - len(counted.lstrip())]
        self.assertEqual(program.count(counted), 1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.py"
            path.write_text(DIE + program.replace(counted, f"{counted}{indent}die(globals())\n"))
            words = ["-np", 3, "--min-np", 3, "-H", HOSTS, DEBIAN_PYTHON, path]
            ended = command([HOROVODRUN, *words, folder if kill else ""], timeout=300)
        self.assertEqual(ended.code, 0, ended)
        self.assertEqual("was killed by signal 9" in ended.out, kill, ended)
        return sorted(re.findall(r"<stdout>:(rank \d: .*)", ended.out))

    def test_the_guides_program_with_shards(self):
        said = self.run_page(0, "state.step += 1", kill=False)
        self.assertEqual(len(said), 3, said)
        losses = {line.split("loss ")[1] for line in said}
        self.assertEqual(len(losses), 1, said)
        again = self.run_page(0, "state.step += 1", kill=True)
        self.assertEqual({line.split("loss ")[1] for line in again}, losses)
        shards = [line.split("shards ")[1].split(",  loss")[0] for line in again]
        self.assertEqual(
            sorted(re.findall(r"\d", "".join(s.split("loss")[0] for s in shards))), list("0123")
        )

    def test_the_guides_program_with_guard(self):
        said = self.run_page(1, "guard.step()", kill=False)
        again = self.run_page(1, "guard.step()", kill=True)
        self.assertEqual([line.replace("after 0", "after 20") for line in said], again)

    def test_a_job_that_restarts_no_process(self):
        ended = python("""if 1:
            import horovod.torch as hvd, torch
            hvd.init()
            guard = hvd.guard(torch.nn.Linear(1, 1), every=1)
            assert guard.restore() == 0
            guard.step()
            assert guard.steps == 1
        """)
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("hvd.guard: no snapshots are made, because nothing restarts the processes", ended.out)
