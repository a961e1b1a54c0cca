# SPDX-License-Identifier: Apache-2.0
"""runtime/python/HOWTO.md and the first page, README.md: each program runs, by the command below it, and prints what
is shown there. Keras' program of the first page is in test_tensorflow_examples.py."""

import os
import re
import tempfile
import unittest
from pathlib import Path

from job import DEBIAN_PYTHON, ROOT, STAGE, command, free_port, packages, venv
from test_examples import form, path_variable

PAGES = ROOT / "runtime/python"
HEADINGS = re.compile(r"^## (.*)$", re.MULTILINE)


def section(page, heading):
    """(program, command, lines shown below the command)"""
    text = f"{page.read_text()}\n## ".split(f"\n## {heading}\n")[1].split("\n## ")[0]
    program, line, shown = re.search(
        r"```python\n((?s:.*?))```\n\n    (.*)\n((?:    .*\n)*)", text
    ).groups()
    return program, line, [one.strip() for one in shown.splitlines() if one.strip() != "..."]


def plain(line):
    """A line without what differs from run to run."""
    return re.sub(r'0x[0-9a-f]+|(?<=File ").*/', "", form(line))


class Pages(unittest.TestCase):
    """Without tests of its own."""

    def run_section(self, page, heading, code=0, python=DEBIAN_PYTHON, *more):
        """more: folders for PYTHONPATH"""
        program, line, shown = section(PAGES / page, heading)
        self.assertTrue(shown, heading)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(program)
            paths = os.pathsep.join([str(STAGE / "python"), *more])
            ended = command(
                ["/bin/sh", "-c", line], cwd=folder, PATH=path_variable(python), PYTHONPATH=paths
            )
        self.assertEqual(ended.code, code, ended)
        printed = {plain(one) for one in ended.out.splitlines()}
        for one in shown:
            self.assertIn(plain(one), printed, f"{one}\nis shown, but was not printed: {ended}")
        for loss in re.findall(r"loss (\d\.\d+)", "\n".join(shown)):
            reached = max(map(float, re.findall(r"ranks?.* loss (\d+\.\d+)", ended.out)))
            self.assertLess(reached, max(0.05, 1.3 * float(loss)), ended)


class HowTo(Pages):
    page = "HOWTO.md"

    def test_first_page(self):
        self.run_section("README.md", "PyTorch on two processes")

    def test_start_timeout(self):
        self.run_section(self.page, "Give ranks more time to start", code=1)

    def test_hang(self):
        self.run_section(self.page, "Find the rank that hangs", code=1)

    def test_data_loader(self):
        self.run_section(self.page, "Use DataLoader workers")

    def test_ddp_under_mpirun(self):
        self.run_section(self.page, "Run DDP under mpirun")

    def loop(self, heading):
        self.run_section(self.page, heading, 0, venv("torch"), packages("loops"))

    def test_accelerate(self):
        self.loop("Use Accelerate")

    def test_lightning(self):
        self.loop("Use Lightning")

    def test_transformers(self):
        self.loop("Use Transformers")

    def test_transformers_reports_to_the_agent(self):
        """Its callback is found by the agent's variables, and reports what the agent reads."""
        program = section(PAGES / self.page, "Use Transformers")[0]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(program)
            token = Path(folder) / "token"
            token.touch(0o600)
            token.write_text("5a" * 32)
            job = {
                "HVD_JOB_ID": "ns/demo/uid",
                "HVD_GENERATION": "0",
                "HVD_WORKER_INDEX": "0",
                "HVD_NUM_WORKERS": "1",
                "HVD_SLOTS_PER_WORKER": "2",
                "HVD_CHECKIN_ADDR": "127.0.0.1",
                "HVD_CHECKIN_PORT": str(free_port()),
                "HVD_TOKEN_FILE": str(token),
                "HVD_DIR": str(STAGE),
                "HOROVOD_LOG_LEVEL": "debug",
                "PYTHONPATH": packages("loops"),
                "no_proxy": "127.0.0.1",
            }
            ended = command(
                [STAGE / "bin/hvd-agent", "run", "--", venv("torch"), "train.py"], cwd=folder, **job
            )
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("2 ranks by hvd: loss", str(ended))
        found = re.findall(
            r"trainer status received step=(\d+) total=(\d+) epoch=\S+ metrics=(\d+)", ended.out
        )
        self.assertEqual(found[0], ("0", "40", "0"), ended)  # at the begin, and at the end
        self.assertEqual(found[-1][:2], ("40", "40"), ended)
        self.assertGreaterEqual(int(found[-1][2]), 2, ended)

    def test_every_section_has_a_test(self):
        tests = "".join(
            Path(__file__).with_name(name).read_text() for name in ("test_howto.py", "test_full.py")
        )
        for heading in HEADINGS.findall((PAGES / self.page).read_text()):
            self.assertIn(f'"{heading}"', tests)
