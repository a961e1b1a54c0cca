# SPDX-License-Identifier: Apache-2.0
"""runtime/backend/nccl/README.md: its program runs as it stands there, here on the CPU."""

import re
import tempfile
import unittest
from pathlib import Path

from job import DEBIAN_PYTHON, HOROVODRUN, ROOT, command

PAGE = ROOT / "runtime/backend/nccl/README.md"


class Page(unittest.TestCase):
    def test_the_program_trains_and_all_ranks_have_one_loss(self):
        program = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "train.py"
            script.write_text(program)
            ended = command([HOROVODRUN, "-np", 2, DEBIAN_PYTHON, script], timeout=600, cwd=folder)
        self.assertEqual(ended.code, 0, ended)
        said = re.findall(r"rank (\d) on cpu: mean loss (\d+\.\d+)", ended.out)
        self.assertEqual(sorted(rank for rank, _ in said), ["0", "1"], ended)
        self.assertEqual(len({loss for _, loss in said}), 1, ended)


if __name__ == "__main__":
    unittest.main()
