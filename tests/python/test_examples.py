# SPDX-License-Identifier: Apache-2.0
"""runtime/examples/README.md: its commands run as they stand there and print what it shows."""

import functools
import os
import re
import signal
import subprocess
import tempfile
import textwrap
import threading
import unittest
from pathlib import Path

from job import (
    DEBIAN_PYTHON,
    HOROVODRUN,
    ROOT,
    STAGE,
    command,
    each_torch,
    environment,
    free_port,
    only_torch,
)

EXAMPLES = ROOT / "runtime/examples"
README = EXAMPLES / "README.md"
DIGITS = ROOT / "tests/python/digits"
# (epoch, workers) of the jobs that are resumed
RESUMED = [(str(epoch), "2" if epoch < 4 else "3") for epoch in range(1, 9)]
PROGRAMS = ("horovodrun", "mpirun", "torchrun", "python3")

# prints the help of each script named, with one import of torch
HELP = """
import os, runpy, sys
for script in sys.argv[1:]:
    sys.argv = [script, "--help"]
    sys.path[0] = os.path.dirname(script)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as e:
        assert e.code == 0, script
"""


def shown():
    """{command: [lines shown below it]} of the README's indented blocks."""
    blocks = {}
    for block in re.findall(r"(?:^    .*\n)+", README.read_text(), re.MULTILINE):
        line, *output = (text.strip() for text in block.splitlines())
        if re.sub(r"^[A-Z_]+=\S+ ", "", line).split()[0] in PROGRAMS:
            blocks[line] = [text for text in output if text != "..."]
    return blocks


def line_of(words):
    """The README's one command with these words (^, $: its ends)."""
    lines = [line for line in shown() if words in f"^{line}$"]
    assert len(lines) == 1, f"{len(lines)} commands with '{words}' in {README}"
    return lines[0]


def form(line):
    """A line with its numbers and hashes taken out: they differ from machine to machine.

    So do units and the advice of a report.
    """
    if "horovod: report: " in line:
        line = re.sub(r"(?<=advice: ).*", "", re.sub(r"\b(us|ms|s|[kMG]?B)\b", "unit", line))
    return re.sub(r"\b[0-9a-f]{16}\b|\b\d+(\.\d+)?\b", "#", line.strip())


def path_variable(python):
    """python3 is the interpreter under test; torchrun is started as the module that it is."""
    folders = [str(STAGE / "bin"), str(Path(python).parent), "/usr/bin", "/bin"]
    return os.pathsep.join(folders)


@functools.lru_cache(maxsize=None)
def run_line(line, python=DEBIAN_PYTHON, *more):
    """more: folders for PYTHONPATH"""
    line = re.sub(r"^torchrun ", "python3 -m torch.distributed.run ", line)
    paths = [str(STAGE / "python"), *([] if python == DEBIAN_PYTHON else [str(DIGITS)]), *more]
    with tempfile.TemporaryDirectory() as folder:
        line = re.sub(r" (digits\.\w+|ckpt)\b", rf" {folder}/\1", line)
        return command(
            ["/bin/sh", "-c", line],
            timeout=600,
            cwd=ROOT,
            PATH=path_variable(python),
            PYTHONPATH=os.pathsep.join(paths),
            PET_MASTER_PORT=str(free_port()),  # torchrun's own is the same for all jobs of a host
        )


def number(pattern, ended):
    """The one number that the pattern finds in what rank 0 printed."""
    # horovodrun may repeat a line among the last ones of a rank that failed
    found = re.findall(r"(?m)^(?:\[0\]<stdout>:)?" + pattern, ended.out)
    assert len(found) == 1, f"/{pattern}/ is there {len(found)} times: {ended}"
    return float(found[0])


class Runs(unittest.TestCase):
    """Without tests of its own; under the interpreter that self.python is."""

    def run_program(self, program, *saved):
        """Runs a program of a page on 2 ranks; only rank 0 saves files, which are these."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "train.py"
            script.write_text(program)
            ended = command([HOROVODRUN, "-np", 2, self.python, script], timeout=600, cwd=folder)
            self.assertEqual(ended.code, 0, ended)
            self.assertEqual(sorted(os.listdir(folder)), [*saved, "train.py"])
        return ended

    def run_example(self, words, code=0, python=None, *more):
        """Runs the README's one command with these words (^, $: its ends); it prints what is shown."""
        line = line_of(words)
        ended = run_line(line, python or self.python, *more)
        self.assertEqual(ended.code != 0, code != 0, ended)
        self.assert_shown(line, ended)
        return ended

    def assert_benchmarked(self, ended):
        self.assertEqual(len(re.findall(r"Iter #\d: ", ended.out)), 3, ended)
        one = number(r"Img/sec per CPU: (\d+\.\d) \+-\d+\.\d", ended)
        total = number(r"Total img/sec on 2 CPU\(s\): (\d+\.\d) \+-\d+\.\d", ended)
        self.assertGreater(one, 0)
        self.assertAlmostEqual(total, 2 * one, delta=0.11)

    def assert_shown(self, line, ended):
        """What was printed has the lines that the README shows below the command."""
        printed = {form(text) for text in ended.out.splitlines()}
        for text in shown()[line]:
            self.assertIn(form(text), printed, f"{text}\nis shown, but was not printed: {ended}")


@each_torch
class Examples(Runs):
    ended = {}  # by interpreter

    def train_digits(self):
        """The end of the example, which is run once."""
        if self.python not in self.ended:
            self.ended[self.python] = self.run_example("train_digits.py$")
        return self.ended[self.python]

    def test_digits_are_learned_together(self):
        ended = self.train_digits()
        self.assertGreaterEqual(number(r"held-out accuracy.*: ([01]\.\d+)", ended), 0.97)
        self.assertIn("all 2 workers hold identical weights", ended.out)
        self.assertIn("trains on the digits 0 1 2 3 4 ", ended.out)
        self.assertIn("trains on the digits 5 6 7 8 9 ", ended.out)
        self.assertEqual(len(re.findall(r"epoch +\d+ +loss \d", ended.out)), 15, ended)
        self.assertNotIn("[1]<stdout>", ended.out)

    @only_torch("debian")
    def test_without_averaging_half_of_the_digits_are_unknown(self):
        ended = self.run_example("--no-average", code=1)
        self.assertLess(number(r"held-out accuracy.*: ([01]\.\d+)", ended), 0.65)
        self.assertIn("the workers hold different weights", ended.out)
        self.assertIn("is below the target 0.97", ended.out)

    @only_torch("not newest")  # it calls what train_digits calls
    def test_synthetic_benchmark(self):
        self.assert_benchmarked(self.run_example("/synthetic_benchmark.py"))

    def uneven(self, how, steps):
        ended = self.run_example(f"uneven_data.py --how {how}")
        self.assertGreaterEqual(number(rf"uneven_data --how {how}: .* ([01]\.\d+)", ended), 0.93)
        self.assertIn("all 2 workers hold identical weights", ended.out)
        self.assertEqual(len(re.findall(rf"steps of each worker: {steps}$", ended.out, re.M)), 8, ended)

    @only_torch("debian")
    def test_uneven_data_by_a_sampler_under_mpirun(self):
        self.uneven("sampler", "23 23")

    @only_torch("not newest")  # what of torch join() needs is tested without an example
    def test_uneven_data_by_join(self):
        self.uneven("join", "15 30")

    @only_torch("debian")
    def test_gradient_accumulation(self):
        ended = self.run_example("-np 2 python3 runtime/examples/gradient_accumulation.py")
        self.assertIn("all 2 workers hold identical weights", ended.out)
        self.assertGreaterEqual(number(r"gradient_accumulation: .* ([01]\.\d+)", ended), 0.93)
        clipped = re.search(r"(\d+) (\d+) of 176 steps clipped on each worker", ended.out)
        # the norm is of the averaged gradients, so all clip the same steps
        self.assertEqual(clipped[1], clipped[2], ended)
        self.assertTrue(0 < int(clipped[1]) < 176, ended)

    def test_mixed_precision(self):
        ended = self.run_example("python3 runtime/examples/mixed_precision.py")
        self.assertIn("all 2 workers hold identical weights", ended.out)
        self.assertGreaterEqual(number(r"mixed_precision: .* ([01]\.\d+)", ended), 0.93)

    @only_torch("debian")
    def test_an_elastic_job_resumes_on_another_number_of_workers(self):
        ended = self.run_example("runtime/examples/elastic_digits.py --epochs 3")
        self.assertEqual(re.findall(r"epoch (\d) of \d on (\d)", ended.out), RESUMED, ended)
        self.assertEqual(len(re.findall(r"held-out accuracy", ended.out)), 2, ended)

    @only_torch("debian")
    def test_tokens(self):
        ended = self.run_example("train_tokens.py --compression bf16")
        self.assertIn("all 2 workers hold identical weights", ended.out)
        self.assertLessEqual(number(r"train_tokens: held-out perplexity (\d+\.\d+)", ended), 16)

    @only_torch("debian")
    def test_neighbours(self):
        ended = self.run_example("neighbours.py")
        self.assertLess(
            number(r"neighbours: 200 steps of 3 workers, largest error (\d\.\de[+-]\d+)", ended), 1e-12
        )

    @only_torch("not newest")  # Backend trains with DDP under each
    def test_ddp(self):
        ended = self.run_example("train_ddp.py")
        self.assertGreaterEqual(number(r"train_ddp on 2 workers by hvd: .* ([01]\.\d+)", ended), 0.95)
        self.assertIn("all 2 workers hold identical weights", ended.out)

    def test_the_program_in_the_packages_guide(self):
        text = (ROOT / "runtime/python/GUIDE.md").read_text().split("\n## Training with PyTorch\n")[1]
        program = textwrap.dedent(re.match(r"(?:(?:    .*)?\n)+", text)[0])
        ended = self.run_program(program, "model.pt")
        self.assertLess(number(r"loss (\d\.\d\d), 2 ranks", ended), 1.5)

    @only_torch("debian")
    def test_the_program_in_the_page_about_gpus(self):
        """Here on the CPU; all ranks have one loss."""
        page = (ROOT / "runtime/backend/nccl/README.md").read_text()
        ended = self.run_program(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
        said = re.findall(r"rank (\d) on cpu: mean loss (\d+\.\d+)", ended.out)
        self.assertEqual(sorted(rank for rank, _ in said), ["0", "1"], ended)
        self.assertEqual(len({loss for _, loss in said}), 1, ended)

    @only_torch("debian")
    def test_one_process(self):
        ended = self.run_example("^python3")
        self.assertIn("all 1 workers hold identical weights", ended.out)

    @only_torch("newest")  # Debian's torchrun does not work with its Python
    def test_torchrun(self):
        self.assertIn("all 2 workers hold identical weights", self.run_example("^torchrun").out)

    def killed(self, line):
        """How a job ended that got SIGTERM after its epoch 4."""
        job = subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True)
        deadline = threading.Timer(600, job.kill)
        deadline.start()
        for text in job.stdout:
            if "epoch  4" in text:
                job.send_signal(signal.SIGTERM)
                break
        job.communicate()
        deadline.cancel()
        return job.returncode

    @only_torch("debian")
    def test_a_killed_job_resumes_with_equal_weights(self):
        whole = self.train_digits()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Path(folder) / "digits.pt"
            script = [EXAMPLES / "train_digits.py", "--checkpoint", checkpoint]
            line = [str(word) for word in (HOROVODRUN, "-np", 2, self.python, *script)]
            tries = 1
            while (code := self.killed(line)) == 0 and tries < 3:  # all 15 epochs take a second
                checkpoint.unlink()
                tries += 1
            self.assertNotEqual(code, 0)
            ended = command(line, timeout=600)
            self.assertEqual(os.listdir(folder), ["digits.pt"])
        self.assertEqual(ended.code, 0, ended)
        self.assertGreaterEqual(number(r"resumed after epoch (\d+) ", ended), 4)
        weights = [re.search(r"identical weights \(sha256 \w+\)", e.out)[0] for e in (whole, ended)]
        self.assertEqual(weights[0], weights[1])

    @only_torch("debian")
    def test_every_command_has_a_test(self):
        self.assertEqual(len(shown()), 22)

    @only_torch("debian")
    def test_the_table_of_what_to_copy_quotes_the_scripts(self):
        text = README.read_text().split("\n## What to copy from where\n")[1].strip().split("\n\n")[0]
        head, _, *rows = ([cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines())
        scripts = [(EXAMPLES / name.split("`")[1]).read_text() for name in head]
        self.assertGreater(len(rows), 5)
        for row in rows:
            for cell, script in zip(row, scripts):
                if cell != "by `hvd.init()`":
                    self.assertIn(re.fullmatch("`(.*)`", cell)[1], script)

    @only_torch("debian")
    def test_every_script_has_help(self):
        scripts = sorted(EXAMPLES.glob("*.py"))
        helped = [str(s) for s in scripts if re.search(r"(?s)argparse.*import torch", s.read_text())]
        ended = command([DEBIAN_PYTHON, "-c", HELP, *helped])
        self.assertEqual(re.findall(r"usage: (\S+)", ended.out), [Path(s).name for s in helped], ended)
        for script in scripts:
            self.assertIn(f"`{script.name}`", README.read_text(), "the table of examples")
