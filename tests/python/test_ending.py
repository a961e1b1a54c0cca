# SPDX-License-Identifier: Apache-2.0
"""The cause of a rank's end travels: the sentence of the other ranks, and all exit codes."""

import re
import tempfile
import textwrap
import unittest
from pathlib import Path

from job import DEBIAN_PYTHON, ROOT, bare_ranks, command, horovodrun, python

OTHER_RANK = 6  # HVD_EXIT_OTHER_RANK
PLACE = r"\(ending\.py:\d+\)"

# how rank 1 ends: its exit code, what the other ranks report of it
FAILURES = {
    "raise": (1, r"ended: ValueError: bad batch \[31m of two lines " + PLACE),
    "library": (1, r"ended: JSONDecodeError: Expecting .* " + PLACE),
    "odd": (1, r"ended: Odd: its message cannot be made " + PLACE),
    "long": (1, r"ended: KeyError: 'x{180,186}\.\.\. " + PLACE),
    "exit": (7, r"exited with code 7"),
    "text": (1, r"exited with code 1: no data left"),
    "quit": (5, r"exited with code 5"),
    "interrupt": (-2, r"ended: KeyboardInterrupt " + PLACE),
    "hook": (1, r"ended: ValueError: bad batch " + PLACE),
    "term": (-15, r"ended by SIGTERM"),
    "term-busy": (-15, r"ended by SIGTERM"),
    "term-self": (-15, r"ended by SIGTERM"),
    "fault": (-11, r"ended by SIGSEGV"),
    "abort": (-6, r"ended by SIGABRT"),
    "kill": (-9, r"was lost: connection closed"),
}
ORDERLY = {"continue": 0, "zero": 0, "again": 0}


class Ending(unittest.TestCase):
    def assert_named(self, ended, how):
        """The uncaught exception of a rank names rank 1 and how it has ended."""
        self.assertRegex(ended.out, rf"(?m)HorovodInternalError: rank 1 \(host [^)]+, pid \d+\) {how}$")

    def test_the_cause_reaches_the_other_ranks_without_a_launcher(self):
        for how, (code, said) in FAILURES.items():
            with self.subTest(how):
                first, culprit, last = bare_ranks(3, "ending.py", how)
                self.assertEqual(culprit.code, code, culprit)
                for ended in (first, last):
                    self.assertEqual(ended.code, OTHER_RANK, ended)
                    self.assert_named(ended, said)
                if code == 1 and how != "text":
                    self.assertIn("Traceback", culprit.out, "the hook hides the traceback")
                if how == "hook":
                    self.assertEqual(culprit.out.count("HOOK"), 1, culprit)

    def test_horovodrun_shows_the_culprit(self):
        for how, said in (
            ("raise", "exited with code 1"),
            ("exit", "exited with code 7"),
            ("interrupt", r"was killed by signal 2 \(SIGINT\)"),
            ("term", r"was killed by signal 15 \(SIGTERM\)"),
            ("kill", r"was killed by signal 9 \(SIGKILL\)"),
        ):
            with self.subTest(how):
                ended = horovodrun(4, "ending.py", how)
                code, sentence = FAILURES[how]
                self.assertEqual(ended.code, code if code > 0 else 128 - code, ended)
                self.assertRegex(ended.out, rf"(?m)^horovodrun: rank 1 on \S+ {said}", ended)
                self.assert_named(ended, sentence)

    def test_an_orderly_end_is_no_failure(self):
        for how, code in ORDERLY.items():
            with self.subTest(how):
                first, leaver, last = bare_ranks(3, "ending.py", how)
                self.assertEqual(leaver.code, code, leaver)
                self.assertNotIn(
                    "Exception in thread", leaver.out, "sys.exit() ends a thread without words"
                )
                for ended in (first, last):
                    self.assertRegex(ended.out, r"shut down: rank 1 \(host [^)]+\) called shutdown\(\)")
                    self.assertEqual(ended.code, 1, f"no other rank has failed: {ended}")

    def test_what_the_other_ranks_do_decides_their_exit_code(self):
        for others, code in (("shutdown", OTHER_RANK), ("wrap", OTHER_RANK), ("survive", 0)):
            with self.subTest(others):
                first, culprit = bare_ranks(2, "ending.py", "raise", others)
                self.assertEqual((first.code, culprit.code), (code, 1), f"{first}\n{culprit}")
                self.assertRegex(first.out, FAILURES["raise"][1])

    def test_a_rank_that_its_launcher_stops_says_so(self):
        with tempfile.TemporaryDirectory() as directory:
            launcher = 'mkfifo "$0"; "$@" >"$0" & read -r said <"$0"; kill -TERM $!; wait $!'
            prefix = {1: ["sh", "-c", launcher, f"{directory}/said"]}
            first, stopped = bare_ranks(2, "ending.py", "wait", prefix=prefix)
        self.assertEqual((first.code, stopped.code), (OTHER_RANK, 128 + 15), f"{first}\n{stopped}")
        self.assert_named(first, "was stopped by its launcher: SIGTERM")

    def test_the_example_of_the_guide(self):
        guide = (ROOT / "runtime/python/GUIDE.md").read_text().split("\n## When a rank fails\n")[1]
        program, shown = (
            textwrap.dedent(block) for block in re.findall(r"(?:(?:    .*)?\n)+    .*\n", guide)[:2]
        )
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "train.py").write_text(program.lstrip())
            ended = horovodrun(2, f"{directory}/train.py")
        wanted = re.sub(r"host b, pid \d+", "host #, pid #", shown.strip())
        self.assertIn(wanted, re.sub(r"host \S+, pid \d+", "host #, pid #", ended.out), ended)
        self.assertEqual(ended.code, 1, ended)

    def test_an_exception_that_a_module_shows_is_no_cause(self):
        program = """
import sys
import horovod.torch as hvd
from _hvd import ending

hvd.init()
def main():
    try:
        1 / 0
    except ZeroDivisionError:
        sys.excepthook(*sys.exc_info())
    assert not ending._has_cause, "the program continues"

main()
raise ValueError("the end")
"""
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "shows.py").write_text(program)
            ended = command([DEBIAN_PYTHON, "-m", "shows"], cwd=directory)
        self.assertEqual(ended.code, 1, ended)
        self.assertNotIn("AssertionError", ended.out)
        self.assertIn("ValueError: the end", ended.out)

    def test_a_name_without_its_call_gets_a_sentence(self):
        basics, torch = "import _hvd.basics as hvd", "import horovod.torch, torch\nhvd = horovod.torch"
        rows = (
            (basics, "0.1 * hvd.size", "horovod: hvd.size is a function: write hvd.size()"),
            (basics, "range(hvd.local_rank)", "horovod: hvd.local_rank is a function"),
            (
                torch,
                "torch.optim.SGD([torch.ones(1)], lr=horovod.torch.size)",
                "write horovod.torch.size()",
            ),
            (basics, "0.1 * hvd.size() * len", None),
            (basics, "size = len; 0.1 * size", None),
        )
        with tempfile.TemporaryDirectory() as directory:
            for i, (start, line, said) in enumerate(rows):
                script = Path(directory) / f"program{i}.py"
                script.write_text(f"{start}\nhvd.init()\n{line}\n")
                ended = command([DEBIAN_PYTHON, script])
                self.assertEqual(ended.code, 1, ended)
                self.assertRegex(ended.out, "(Type|Value)Error: ")
                self.assertIn(said or "Error: ", ended.out)
                self.assertEqual(ended.out.count("horovod: "), 1 if said else 0, ended)

    def test_a_program_without_init_is_left_alone(self):
        code = """
import sys
import horovod.torch as hvd
assert sys.excepthook is sys.__excepthook__ and type(sys.exit).__name__ == "builtin_function_or_method"
hvd.init()
assert sys.excepthook is not sys.__excepthook__
hook = sys.excepthook
hvd.shutdown()
hvd.init()
assert sys.excepthook is hook, "installed twice"
raise ValueError("alone")
"""
        ended = python(code)
        self.assertEqual(ended.code, 1, ended)
        self.assertEqual(len(re.findall("ValueError: alone", ended.out)), 1, ended)


if __name__ == "__main__":
    unittest.main()
