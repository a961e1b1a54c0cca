# SPDX-License-Identifier: Apache-2.0
"""Jobs from a Jupyter notebook: the example as it stands there, and the stop button."""

import os
import tempfile
import unittest
from pathlib import Path

from job import ROOT, STAGE, command, venv

HERE = Path(__file__).resolve().parent
NOTEBOOK = ROOT / "runtime/examples/notebook.ipynb"


class Notebook(unittest.TestCase):
    def kernel(self, *args, **extra):
        python = venv("notebook")
        path = os.pathsep.join([str(STAGE / "bin"), str(Path(python).parent), "/usr/bin", "/bin"])
        return command([python, HERE / "notebook.py", *args], timeout=600, cwd=ROOT, PATH=path, **extra)

    def test_every_cell_of_the_example_trains(self):
        ended = self.kernel("execute", NOTEBOOK)
        self.assertEqual(ended.code, 0, ended)
        for rank in range(2):
            self.assertIn(f"[{rank}]<stdout>:worker {rank} of 2 is done, loss", ended.out)
            self.assertRegex(ended.out, rf"(?m)^rank {rank}: accuracy 0\.9")
        trained = [
            line for line in ended.out.splitlines() if "all 2 workers hold identical weights" in line
        ]
        self.assertEqual(len(trained), 2, ended)  # by horovodrun, whose lines have ranks, and by mpirun
        self.assertEqual(sum(line.startswith("[0]<stdout>:") for line in trained), 1, ended)

    def test_the_stop_button_ends_the_job(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = self.kernel("interrupt", HVD_RUN_DIR=folder)
            self.assertEqual(ended.code, 0, ended)
            self.assertIn("ERROR KeyboardInterrupt", ended.out)
            self.assertEqual(os.listdir(folder), [])
